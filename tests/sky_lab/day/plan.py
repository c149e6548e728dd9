"""What a day holds, drawn from a seed: jobs at their times, and what goes wrong at its times."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.sky_lab.day.faults import Fault, faults
from tests.sky_lab.day.jobs import Kind, PlannedJob, kinds

T = TypeVar("T")
K = TypeVar("K", Kind, Fault)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Something that goes wrong, not before its time, and is made good so many seconds later."""

    fault: Fault
    at_s: float
    away_s: float

    def __str__(self) -> str:
        return f"{self.fault.name} at {self.at_s:.0f} s for {self.away_s:.0f} s"


@dataclass(frozen=True, slots=True)
class DayPlan:
    """All of a day."""

    seed: int
    jobs: tuple[PlannedJob, ...]
    faults: tuple[PlannedFault, ...]


def plan_day(
    seed: int, jobs: int, span_s: float, wrong: int, longest_s: float, *, only: Collection[str] = ()
) -> DayPlan:
    """Jobs and what goes `wrong`, so many of each, evenly over a span, each kind as often as any other.

    Jobs live up to `longest_s`; the first fault waits until machines can be there. If `only` names kinds of
    jobs, there are no others; and likewise of faults.
    """
    draw = random.Random(seed)
    drawn_jobs = [
        PlannedJob(
            f"{kind.name}-{number}",
            kind,
            span_s * number / jobs,
            draw.randrange(10, max(11, int(longest_s * 5))),
            draw.choice((True, False, None)),
        )
        for number, kind in enumerate(_in_turns(_named(kinds(), only), jobs, draw))
    ]
    lead_s = min(40.0, span_s / 2)
    drawn_faults = [
        PlannedFault(fault, lead_s + (span_s - lead_s) * number / wrong, draw.uniform(*fault.away_s))
        for number, fault in enumerate(_in_turns(_named(faults(), only), wrong, draw))
    ]
    return DayPlan(seed, tuple(drawn_jobs), tuple(drawn_faults))


def _named(all_of: Sequence[K], only: Collection[str]) -> Sequence[K]:
    """Those whose names are among these; all, if none is."""
    return [one for one in all_of if one.name in only] or all_of


def _in_turns(all_of: Sequence[T], count: int, draw: random.Random) -> list[T]:
    """So many of these, in random order, none twice before every other one was there."""
    found: list[T] = []
    while len(found) < count:
        found += draw.sample(all_of, len(all_of))
    return found[:count]
