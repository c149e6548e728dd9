"""What goes wrong in one run, drawn from its seed: each fault from a stream of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

#: Share of the faults that are on in a run, least and most: few faults at a time find what many hide.
ON = (0.1, 0.6)
#: Every so many seeds nothing goes wrong: what happens then all the same is wrong.
FAIR = 8


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: of calls with a chance, or of the world every so often."""

    name: str
    #: One line, in plain words.
    what: str
    #: Per opportunity.
    chance: float = 0.0
    #: Mean seconds between two, and what then happens.
    every_s: float = 0.0
    act: Callable[[Any], Coroutine[Any, Any, bool]] | None = None


FAULTS: dict[str, Fault] = {}
Act = Callable[[Any], Coroutine[Any, Any, bool]]


def chance(name: str, share: float, what: str) -> None:
    """Declare a fault that calls meet with this chance."""
    FAULTS[name] = Fault(name, what, chance=share)


def every(name: str, hours: float, what: str) -> Callable[[Act], Act]:
    """Declare a fault that happens about every so many hours; its function says whether it could."""

    def declare(act: Act) -> Act:
        FAULTS[name] = Fault(name, what, every_s=3600 * hours, act=act)
        return act

    return declare


class Weather:
    """The faults of one run. After `calm` nothing goes wrong any more."""

    def __init__(self, seed: int, only: Collection[str] | None, now: Callable[[], float]) -> None:
        """`only`: these faults are on; None draws which."""
        share = Random(f"{seed}/weather").uniform(*ON) if seed % FAIR else 0.0
        # Each by itself, so that a new fault changes nothing of the others.
        drawn = {name for name in FAULTS if Random(f"{seed}/weather/{name}").random() < share}
        self.on = drawn if only is None else set(only) & FAULTS.keys()
        self._draws = {name: Random(f"{seed}/{name}") for name in FAULTS}
        self._now = now
        self.is_calm = False
        self.counts: Counter[str] = Counter()
        #: Faults that have begun and are not over yet; they count when they are.
        self.under_way: set[str] = set()
        #: (when, fault, to what), in order.
        self.struck: list[tuple[float, str, str]] = []

    def strikes(self, name: str, subject: str = "") -> bool:
        """Whether this fault happens now."""
        if self.is_calm or name not in self.on or self._draws[name].random() >= FAULTS[name].chance:
            return False
        self.note(name, subject)
        return True

    def note(self, name: str, subject: str = "") -> None:
        """It happened."""
        self.counts[name] += 1
        self.struck.append((self._now(), name, subject))

    def draw(self, name: str) -> Random:
        """The stream of a fault."""
        return self._draws[name]

    async def blow(self, world: Any, name: str) -> None:
        """Until it is calm, let this fault happen now and then."""
        fault, draw = FAULTS[name], self._draws[name]
        assert fault.act is not None
        while True:
            await asyncio.sleep(draw.expovariate(1 / fault.every_s))
            if self.is_calm:
                return
            self.under_way.add(name)
            happened = await fault.act(world)
            self.under_way.discard(name)
            if happened:
                self.note(name)
