"""The co-location throughput table, learnt from running jobs (Eva, EuroSys'25, sections 4.3 and 4.4).

The table reads no clock: each observation carries its time. Observations of single-task jobs are averaged,
with weights that halve every half-life. An observation of a multi-task job is attributed to the presumed
straggler; such a deduced entry has weight 0, so the next observation replaces it. The number of sets is
limited; the set observed least recently is dropped first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starburst.policy.packing.throughput import DEFAULT_PAIR, Company, throughputs

#: Seconds after which the weight of an observation has halved.
HALF_LIFE_S = 6 * 3600.0
#: Largest number of remembered sets.
MAX_SETS = 4096
#: A smaller change of a throughput does not raise the table's version.
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Seen:
    """Throughput of one workload in one set."""

    value: float
    #: Faded number of direct observations; 0 if the value was deduced.
    weight: float
    #: Time of the last observation, seconds.
    at: float
    #: The value at the last increase of `version` for it.
    announced: float


@dataclass(slots=True)
class Colocation:
    """Throughput of workloads by the other workloads on the instance; only `observe` changes it."""

    #: Throughput of a pair that was never observed; a smaller value packs more cautiously.
    default: float = DEFAULT_PAIR
    half_life_s: float = HALF_LIFE_S
    max_sets: int = MAX_SETS
    #: False for a profile measured beforehand, which observations do not change.
    learns: bool = True
    #: Increases when a value has changed by more than `TOLERANCE` or a set was dropped: plans may be
    #: outdated.
    version: int = 0
    #: Sets of two or more workloads, the most recently observed last.
    _sets: dict[Company, dict[str, Seen]] = field(default_factory=dict)

    @property
    def workloads(self) -> frozenset[str]:
        """Workloads with at least one entry."""
        return frozenset(workload for known in self._sets.values() for workload in known)

    @classmethod
    def known(cls, pairs: Mapping[tuple[str, str], float], default: float = DEFAULT_PAIR) -> Colocation:
        """A profile measured beforehand: (workload, beside) → throughput; other pairs have the default."""
        table = cls(default, max_sets=max(MAX_SETS, len(pairs)), learns=False)
        for (workload, beside), value in pairs.items():
            known = table._sets.setdefault(_company(workload, (beside,)), {})
            known[workload] = Seen(value, 1.0, 0.0, value)
        return table

    def pair(self, workload: str, beside: str) -> float:
        """Throughput of `workload` beside one task of `beside`."""
        company = (workload, beside) if workload <= beside else (beside, workload)
        seen = self._sets.get(company, {}).get(workload)
        return self.default if seen is None else seen.value

    def exact(self, company: Company) -> Mapping[str, float] | None:
        """Recorded throughputs within this sorted set (three or more), by workload; None without a record."""
        known = self._sets.get(company)
        return None if known is None else {workload: seen.value for workload, seen in known.items()}

    def observe(self, job: Sequence[tuple[str, Sequence[str]]], throughput: float, *, now: float) -> None:
        """Record the normalised throughput of a job, given each task's workload and the workloads beside it.

        At most one entry changes, that of the presumed straggler; a task alone on its instance cannot be the
        straggler. Values above 1 count as 1.

        Raises:
            ValueError: the throughput is not a finite number, or is negative.
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
        """The task to which the observation is attributed, by the three rules of section 4.4.

        No entry is recorded: the task beside most others. Some recorded entry does not exceed the
        observation: the lowest entry. All recorded entries exceed it: the unrecorded task beside most others.
        The paper leaves open the case that all tasks are recorded and exceed it; the lowest entry is then
        lowered, as the likeliest straggler.
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
        """The table's current value for a workload that has no entry in this set."""
        return throughputs(self, company)[company.index(workload)]

    def snapshot(self) -> dict[str, Any]:
        """The whole table as plain data, for `restored`."""
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
        """The table of a `snapshot`."""
        facts = dict(snapshot)
        rows = facts.pop("seen")
        table = cls(**facts)
        for company, workload, *figures in rows:
            table._sets.setdefault(tuple(company), {})[workload] = Seen(*figures)
        return table


def faded(
    old: float, weight: float, value: float, *, age_s: float, half_life_s: float
) -> tuple[float, float]:
    """Weighted mean of a new value and the older ones, whose weight halves per half-life; and that weight."""
    kept = weight * 0.5 ** (max(age_s, 0.0) / half_life_s)
    return (kept * old + value) / (kept + 1.0), kept


def _company(workload: str, beside: Sequence[str]) -> Company:
    return tuple(sorted((workload, *beside)))
