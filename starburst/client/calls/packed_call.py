"""A call of a Python function as the files that go along with its job."""

from __future__ import annotations

import importlib.resources
import inspect
import json
import pickle
import secrets
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from starburst.client.calls import runner

#: Names of the module of cloudpickle in a pickle that has code in it.
_CODE = b"cloudpickle.cloudpickle"
_OTHER_PYTHON = (
    "starburst: {name} was submitted from Python {there} and came along as bytecode, which Python {{here}} "
    "of this job cannot run: give run an image or python= with Python {there}, or put the function into a "
    "module of the directory that goes along, which goes by name"
)


@dataclass(frozen=True, slots=True)
class PackedCall:
    """The files of a call by name, and the key with which its job signs the result."""

    name: str
    files: Mapping[str, bytes]
    key: bytes


def packed_call(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    directory: Path | None,
) -> PackedCall:
    """Pack a call. `directory` goes along, so that functions of its modules go by name; others go as code.

    Raises:
        TypeError: the function does not take these arguments, or something cannot be pickled.
    """
    name = function_name(function)
    _check_arguments(function, name, arguments, keywords)
    with _as_code(_module_that_stays(function, directory)):
        try:
            call = cloudpickle.dumps((function, tuple(arguments), dict(keywords)), protocol=5)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            raise TypeError(f"{name}: the call cannot be pickled: {error}") from error
    key = secrets.token_bytes(16)
    there = _this_python()
    origin = {
        "key": key.hex(),
        "python": there,
        "by_value": _CODE in call,
        "other_python": _OTHER_PYTHON.format(name=name, there=there),
        "paths": list(_paths_below(directory)),
    }
    files = {
        "__main__.py": Path(runner.__file__).read_bytes(),
        runner.ORIGIN: json.dumps(origin).encode(),
        runner.CALL: call,
    }
    return PackedCall(name, {**files, **_cloudpickle()}, key)


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function, also of one with some arguments bound."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _check_arguments(
    function: Callable[..., Any], name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """Refuse here what would fail when the job starts."""
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{name}: is a coroutine function; give one that calls asyncio.run")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _module_that_stays(function: Callable[..., Any], directory: Path | None) -> ModuleType | None:
    """The module of a function, if it is neither installed nor in the directory; not __main__."""
    while isinstance(function, partial):
        function = function.func
    module = inspect.getmodule(function)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return None
    path = Path(file).resolve()
    installed = [Path(place).resolve() for place in sysconfig.get_paths().values()]
    if any(path.is_relative_to(place) for place in installed):
        return None
    return None if directory is not None and path.is_relative_to(directory.resolve()) else module


def _this_python() -> str:
    return "{}.{}".format(*sys.version_info[:2])


@contextmanager
def _as_code(module: ModuleType | None) -> Iterator[None]:
    """Within it, what is of this module is pickled as code, not by name."""
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _paths_below(directory: Path | None) -> Iterator[str]:
    """Where Python looks for modules in the directory, but for an environment in it."""
    if directory is None:
        return
    root, environment = directory.resolve(), Path(sys.prefix).resolve()
    for entry in sys.path:
        path = Path(entry).resolve()
        if path != root and path.is_relative_to(root) and not path.is_relative_to(environment):
            yield str(path.relative_to(root))


def _cloudpickle() -> dict[str, bytes]:
    """The package that made the pickle, which reads it again: the job's Python need not have it."""
    package = importlib.resources.files(cloudpickle)
    return {
        f"cloudpickle/{file.name}": file.read_bytes()
        for file in package.iterdir()
        if file.name.endswith(".py")
    }
