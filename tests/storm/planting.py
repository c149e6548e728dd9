"""How a bug is planted into the product, and runs that look for it.

A bug is a change of the text of one function. If that text is not there any more, planting it fails, so
that the table (`planted.py`) follows the product.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

from tests.storm.run import Ask, Told, run


@dataclass(frozen=True, slots=True)
class Planted:
    """One bug: in this function of the product, `old`, which stands there once, becomes `new`."""

    what: str
    #: "module:name" or "module:Class.name".
    where: str
    old: str
    new: str
    #: A run that finds it: seed, jobs, days, and what else goes wrong there.
    found_by: tuple[int, int, float, tuple[str, ...]] = (8, 6, 0.05, ())

    @property
    def ask(self) -> Ask:
        """The run that finds it."""
        seed, jobs, days, faults = self.found_by
        return Ask(seed, jobs, days, frozenset(faults))

    def function(self) -> FunctionType:
        """The function that is changed."""
        module, _, path = self.where.partition(":")
        found: Any = import_module(module)
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
        found = getattr(found, "fget", found)
        assert isinstance(found, FunctionType), self.where
        return found

    def changed(self) -> FunctionType:
        """The function with its bug.

        Raises:
            ValueError: the text is not there, or more than once.
        """
        function = self.function()
        source = inspect.getsource(function)
        if source.count(self.old) != 1:
            raise ValueError(f"{self.where}: {self.old!r} stands there {source.count(self.old)} times")
        text = textwrap.dedent(source.replace(self.old, self.new))
        text = "\n".join(line for line in text.splitlines() if not line.startswith("@"))
        made: dict[str, Any] = {}
        code = compile(f"from __future__ import annotations\n{text}", self.where, "exec")
        exec(code, function.__globals__, made)
        bad = made[function.__name__]
        assert isinstance(bad, FunctionType)
        return bad

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The bug is there until the end of the block, wherever the function was imported."""
        function, good = self.function(), self.function().__code__
        function.__code__ = self.changed().__code__
        try:
            yield
        finally:
            function.__code__ = good


def hunted(bug: Planted, asks: Iterable[Ask]) -> Told | None:
    """The first run in which something was wrong with the bug; None if there is none."""
    with bug.planted():
        return next((told for told in map(run, asks) if told.wrong), None)
