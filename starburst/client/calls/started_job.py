"""A job that Python starts, a command or a call of a function, as the manifest that is submitted."""

from __future__ import annotations

import difflib
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from starburst.app.directories.packing import SubmittersFiles
from starburst.app.errors import UserError
from starburst.app.jobs.command_options import CommandOptions
from translator.kinds.command_job import job_name, name_of_command
from translator.kinds.conversion import command_manifest
from translator.kinds.python_call import call_manifest

#: What makes a text more than words to sh.
_SHELL = frozenset("|&;<>()$`*?[]{}~#=!\n")
#: Commands that only a shell has.
_BUILTINS = frozenset(
    (".", ":", "cd", "eval", "exec", "exit", "export", "set", "source", "trap", "ulimit", "umask")
)
_DURATIONS = ("time", "estimate", "max_wait")
_AMOUNTS = ("gpus", "cpus", "memory")


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass(frozen=True)
class RunOptions(CommandOptions):
    """The options of `Client.run`, which its documentation names."""

    workdir: str | Path | None = "."
    wait: bool = False
    allow_unsatisfiable: bool = False
    python: str = ""
    note: Callable[[str], None] = _to_stderr


@dataclass(frozen=True, slots=True)
class StartedJob:
    """What is submitted: a name for errors, the manifest's text, the key of the result ("" of a command)."""

    source: str
    text: str
    key: str = ""


def chosen_options(given: Mapping[str, Any]) -> tuple[RunOptions, dict[str, Any]]:
    """The options among keywords, and the other keywords.

    Raises:
        TypeError: the value of an option has a wrong type.
    """
    names = {field.name for field in fields(RunOptions)}
    found = {
        name: _value(name, value) for name, value in given.items() if name in names and value is not None
    }
    if "workdir" in given:
        found["workdir"] = given["workdir"]
    return RunOptions(**found), {name: value for name, value in given.items() if name not in names}


def started_command(
    what: str | Sequence[str], arguments: Sequence[Any], given: Mapping[str, Any]
) -> StartedJob:
    """A command: a string is a line of sh, a sequence a program and its arguments.

    Raises:
        TypeError: there are arguments that a command does not take.
        UserError: an option is not valid, or the directory is too large.
    """
    options, others = chosen_options(given)
    if others:
        raise TypeError(_unknown(next(iter(others))))
    if arguments or options.python:
        raise TypeError("run: arguments and python= are for a function; write them into the command")
    words = _words(what) if isinstance(what, str) else tuple(what)
    if not words or not words[0] or not all(isinstance(word, str) for word in words):
        raise TypeError(f"run: {what!r}: give a command, such as 'python train.py', or a function")
    name = name_of_command(what.split() if isinstance(what, str) else words)
    manifest = command_manifest(words, name, _local(options), options.overrides(), ray=options.ray)
    return StartedJob(f"command {shlex.join(words[:1])}", json.dumps(manifest))


def started_call(
    function: Callable[..., Any], arguments: Sequence[Any], given: Mapping[str, Any]
) -> StartedJob:
    """A call of a function with the arguments and with the keywords that are no options.

    Raises:
        TypeError: the function does not take them, an option has the name of a parameter, or the call cannot
            be pickled.
        UserError: an option is not valid, or the directory or the call is too large.
    """
    from starburst.client.calls.packed_call import packed_call  # noqa: PLC0415 - commands do without cloudpickle

    options, keywords = chosen_options(given)
    clash = sorted((set(given) - set(keywords)) & _parameters(function))
    if clash:
        raise TypeError(
            f"run: {clash[0]!r} is an option and a parameter of the function; bind the parameter with "
            f"functools.partial(…, {clash[0]}=…)"
        )
    if options.ray:
        raise UserError("ray: is for a command")
    local = _local(options)
    call = packed_call(function, arguments, keywords, Path(local.directory) if local.directory else None)
    ours = "python3" if options.image else sys.executable or "python3"
    pythons = (options.python, options.python) if options.python else (ours, "python3")
    manifest = call_manifest(job_name(call.name, "function"), call.files, pythons, local, options.overrides())
    return StartedJob(f"function {call.name}", json.dumps(manifest), call.key.hex())


def _local(options: RunOptions) -> SubmittersFiles:
    if options.workdir is None:
        return SubmittersFiles("", options.note, no_directory="workdir=None")
    found = Path(options.workdir).expanduser()
    if not found.is_dir():
        raise UserError(f"workdir: {str(options.workdir)!r}: is no directory; name one, or give workdir=None")
    return SubmittersFiles(str(found.resolve()), options.note, no_directory="workdir=None")


def _words(line: str) -> tuple[str, ...]:
    """The words of a plain line, so that signals reach the program; sh for any other."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote without its end, of which sh complains
        return ("/bin/sh", "-c", line)
    plain = not words or not (_SHELL & set(line) or words[0] in _BUILTINS)
    return tuple(words) if plain else ("/bin/sh", "-c", line)


def _value(name: str, value: Any) -> Any:
    """The value of an option as its text.

    Raises:
        TypeError: it has a wrong type.
    """
    if name in _DURATIONS and isinstance(value, timedelta):
        value = value.total_seconds()
    if name in (*_DURATIONS, *_AMOUNTS) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value}s" if name in _DURATIONS else str(value)
    if name == "env" and isinstance(value, Mapping):
        return [f"{key}={text}" for key, text in value.items()]
    if name == "after":
        each = [value] if isinstance(value, str) or hasattr(value, "id") else value
        return [one if isinstance(one, str) else str(one.id) for one in each]
    if name in _TEXTS and not isinstance(value, str):
        raise TypeError(f"run: {name}: {value!r}: must be a text")
    return value


_TEXTS = frozenset(field.name for field in fields(RunOptions) if field.type == "str")


def _parameters(function: Callable[..., Any]) -> set[str]:
    """Names by which a function takes keywords that are not bound yet."""
    bound = set[str]()
    at = function
    while isinstance(at, partial):
        bound |= set(at.keywords)
        at = at.func
    try:
        there = inspect.signature(function).parameters.values()
    except ValueError:  # some builtins have none
        return set()
    return {one.name for one in there if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)} - bound


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, [field.name for field in fields(RunOptions)], 1)
    return f"run: there is no option {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
