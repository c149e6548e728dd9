"""Who pays for the waiting: slowdowns and waits per size class and per user.

A job's slowdown is its completion time over its run time, of which at least ten seconds are taken
(Feitelson's bounded slowdown), so that jobs of a second do not fill the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Floats, Ints, Trace

SHORTEST_RUN_H = 10 / 3600
#: Most GPUs of each size class but the last.
CLASSES = (0, 1, 4, 8, 32)
CLASS_NAMES = ("0 GPUs", "1 GPU", "2-4 GPUs", "5-8 GPUs", "9-32 GPUs", "33+ GPUs")


@dataclass(frozen=True, slots=True)
class GroupSlowdown:
    """Slowdowns of a group's counted jobs: values of single jobs, not interpolated."""

    name: str
    jobs: int
    p50_slowdown: float
    p90_slowdown: float
    p99_slowdown: float
    longest_wait_h: float


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """Who pays; users are empty if the trace tells of none."""

    #: Of all counted jobs.
    everyone: GroupSlowdown
    #: From small to large; classes without jobs are left out.
    classes: tuple[GroupSlowdown, ...]
    #: The user with the worst p99 first.
    users: tuple[GroupSlowdown, ...]

    @property
    def worst_class(self) -> GroupSlowdown:
        """The size class with the largest p99."""
        return max(self.classes, key=lambda group: group.p99_slowdown)

    def as_dict(self) -> dict[str, Any]:
        """Stable keys, as in `-o json`."""
        figures = asdict(self)
        everyone = figures.pop("everyone")
        return {name: everyone[name] for name in everyone if name not in ("name", "jobs")} | figures


def slowdowns(trace: Trace, outcomes: Outcomes, spec: Spec) -> Slowdowns:
    """Slowdowns of the counted jobs."""
    counted = slice(spec.warmup, len(trace) - spec.warmup + 1)
    jct_h = (outcomes.end_h - trace.arrival_h)[counted]
    slowdown = np.maximum(1.0, jct_h / np.maximum(trace.duration_h[counted], SHORTEST_RUN_H))
    wait_h = outcomes.wait_h[counted]
    size = np.searchsorted(CLASSES, trace.gpus[counted])
    users: tuple[GroupSlowdown, ...] = ()
    if trace.users is not None:
        names, user = np.unique(np.array(trace.users[counted], object), return_inverse=True)
        groups = _groups([str(name) for name in names], user, slowdown, wait_h)
        users = tuple(sorted(groups, key=lambda group: (-group.p99_slowdown, group.name)))
    (everyone,) = _groups(["everyone"], np.zeros(len(slowdown), np.int64), slowdown, wait_h)
    return Slowdowns(everyone, tuple(_groups(CLASS_NAMES, size, slowdown, wait_h)), users)


def _groups(names: Sequence[str], group: Ints, slowdown: Floats, wait_h: Floats) -> list[GroupSlowdown]:
    """The groups that have jobs, by their numbers."""
    order = np.lexsort((slowdown, group))
    jobs = np.bincount(group, minlength=len(names))
    first = np.cumsum(jobs) - jobs
    longest = np.full(len(names), -np.inf)
    np.maximum.at(longest, group, wait_h)
    found = []
    for number in np.flatnonzero(jobs).tolist():
        ranked = slowdown[order[first[number] : first[number] + jobs[number]]]
        p50, p90, p99 = (float(ranked[(len(ranked) - 1) * percent // 100]) for percent in (50, 90, 99))
        found.append(GroupSlowdown(names[number], len(ranked), p50, p90, p99, float(longest[number])))
    return found
