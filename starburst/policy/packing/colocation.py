"""The co-location throughput table, learnt while jobs run (Eva, EuroSys'25, sections 4.3 and 4.4).

A table never asks for the time: an observation says when it was made. What was observed of a single-task job
is averaged, each older observation at half its weight for every half-life that has passed. What was deduced
of a multi-task job is a guess at which task was the straggler: it has no weight of its own, so the next
observation replaces it. A table keeps a limited number of sets; the least recently confirmed goes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starburst.policy.packing.throughput import DEFAULT_PAIR, Company, throughputs

#: Seconds after which an observation weighs half.
HALF_LIFE_S = 6 * 3600.0
#: Sets of workloads that are remembered.
MAX_SETS = 4096
#: Smaller changes are no news to whoever made a plan.
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Seen:
    """Throughput of one workload in one set."""

    value: float
    #: How many recent direct observations stand behind it; 0 if it was deduced.
    weight: float
    #: When it was last observed, seconds.
    at: float
    #: The value by which `version` last grew.
    announced: float


@dataclass(slots=True)
class Colocation:
    """Throughput of workloads by what runs beside them; changes only by `observe`."""

    #: Of a pair that was never seen; smaller packs more carefully.
    default: float = DEFAULT_PAIR
    half_life_s: float = HALF_LIFE_S
    max_sets: int = MAX_SETS
    #: A known profile is not learnt any further.
    learns: bool = True
    #: Grows when a plan may be out of date, as a value changed by more than `TOLERANCE`.
    version: int = 0
    #: Sets of two and more, the most recently confirmed last.
    _sets: dict[Company, dict[str, Seen]] = field(default_factory=dict)

    @property
    def workloads(self) -> frozenset[str]:
        """Those of which something was seen."""
        return frozenset(workload for known in self._sets.values() for workload in known)

    @classmethod
    def known(cls, pairs: Mapping[tuple[str, str], float], default: float = DEFAULT_PAIR) -> Colocation:
        """A profile measured beforehand, (workload, beside) → throughput; pairs not in it get the default."""
        table = cls(default, max_sets=max(MAX_SETS, len(pairs)), learns=False)
        for (workload, beside), value in pairs.items():
            known = table._sets.setdefault(_company(workload, (beside,)), {})
            known[workload] = Seen(value, 1.0, 0.0, value)
        return table

    def pair(self, workload: str, beside: str) -> float:
        """Of `workload` beside one task of `beside`."""
        company = (workload, beside) if workload <= beside else (beside, workload)
        seen = self._sets.get(company, {}).get(workload)
        return self.default if seen is None else seen.value

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Of those workloads of a set of three or more (sorted) that were seen in it; None if none was."""
        known = self._sets.get(company)
        return None if known is None else {workload: seen.value for workload, seen in known.items()}

    def observe(self, job: Sequence[tuple[str, Sequence[str]]], throughput: float, *, now: float) -> None:
        """A job of these tasks (workload, workloads beside it) ran at this normalised throughput.

        At most one entry changes: that of the straggler. No task that is alone is one. Above 1 counts as 1.

        Raises:
            ValueError: the throughput is no finite number, or is negative.
        """
        if not math.isfinite(throughput) or throughput < 0:
            raise ValueError(f"{throughput!r} is not a throughput")
        value = min(throughput, 1.0)
        suspect = self._straggler(job, value) if self.learns else None
        if suspect is not None:
            self._record(*suspect, value, 1.0 if len(job) == 1 else 0.0, now)

    def _straggler(
        self, job: Iterable[tuple[str, Sequence[str]]], value: float
    ) -> tuple[str, Company] | None:
        """The task whose entry takes the observation, by the three rules of section 4.4.

        Nothing recorded: the one beside most tasks. Something recorded that is not above the observation:
        the lowest. All recorded are above it: the unrecorded one beside most tasks; the paper does not say
        what if every task is recorded: then the lowest, as the likeliest straggler, has become slower.
        """
        tasks = [(workload, _company(workload, beside)) for workload, beside in job if beside]
        recorded = [(seen, task) for task in tasks if (seen := self._value(*task)) is not None]
        unrecorded = [task for task in tasks if self._value(*task) is None]
        lowest = min(recorded, key=lambda item: item[0], default=None)
        if lowest is not None and (lowest[0] <= value + TOLERANCE or not unrecorded):
            return lowest[1]
        return max(unrecorded, key=lambda task: len(task[1]), default=None)

    def _value(self, workload: str, company: Company) -> float | None:
        seen = self._sets.get(company, {}).get(workload)
        return None if seen is None else seen.value

    def _record(self, workload: str, company: Company, value: float, weight: float, now: float) -> None:
        known = self._sets.pop(company, {})
        self._sets[company] = known
        old = known.get(workload)
        if old is None:
            new = Seen(value, weight, now, self._estimate(workload, company))
        else:
            mean, kept = faded(old.value, old.weight, value, age_s=now - old.at, half_life_s=self.half_life_s)
            new = Seen(mean, kept + weight, max(now, old.at), old.announced)
        if abs(new.value - new.announced) > TOLERANCE:
            self.version += 1
            new = replace(new, announced=new.value)
        known[workload] = new
        while len(self._sets) > self.max_sets:
            del self._sets[next(iter(self._sets))]
            self.version += 1

    def _estimate(self, workload: str, company: Company) -> float:
        """What the table says of a workload that was not yet seen in this set."""
        return throughputs(self, company)[company.index(workload)]

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain data, for `restored`."""
        return {
            "default": self.default,
            "half_life_s": self.half_life_s,
            "max_sets": self.max_sets,
            "learns": self.learns,
            "version": self.version,
            "seen": [
                [list(company), workload, seen.value, seen.weight, seen.at, seen.announced]
                for company, known in self._sets.items()
                for workload, seen in known.items()
            ],
        }

    @classmethod
    def restored(cls, snapshot: Mapping[str, Any]) -> Colocation:
        """The table that `snapshot` was taken of."""
        facts = dict(snapshot)
        rows = facts.pop("seen")
        table = cls(**facts)
        for company, workload, *figures in rows:
            table._sets.setdefault(tuple(company), {})[workload] = Seen(*figures)
        return table


def faded(
    old: float, weight: float, value: float, *, age_s: float, half_life_s: float
) -> tuple[float, float]:
    """The mean of a new value and of older ones, which weigh half after every half-life; what is left of
    their weight."""
    kept = weight * 0.5 ** (max(age_s, 0.0) / half_life_s)
    return (kept * old + value) / (kept + 1.0), kept


def _company(workload: str, beside: Sequence[str]) -> Company:
    return tuple(sorted((workload, *beside)))
