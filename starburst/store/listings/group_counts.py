"""Counts and bills of the jobs of one queue, user or array."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, select

from starburst.domain.phase import Phase
from starburst.store import schema as t
from starburst.store.listings.dashboard_queries import PLACED
from starburst.store.listings.job_list import JobChoice
from starburst.store.listings.row_types import SUBMITTED

#: All of them, listed so that SQLite uses the indexes that begin with the phase.
_PHASES = [phase.value for phase in Phase]


@dataclass(frozen=True, slots=True)
class GroupTally:
    """Numbers of a group of jobs."""

    #: Jobs by phase, also those that the scheduler has not taken up.
    counts: Counter[str]
    #: Micro-dollars of instances that have ended, also for jobs whose records were removed since.
    settled_micro_usd: int
    #: Ids of jobs that may have slots, and of those that pay for instances that have not ended.
    placed: frozenset[str]
    sharing: frozenset[str]


def tally(conn: Connection, choice: JobChoice) -> GroupTally:
    """The numbers of the jobs that a choice of queue, user or array means."""
    c = t.jobs.c
    chosen = [c.phase.in_(_PHASES), *choice.conditions()]
    by_phase = select(c.phase, func.count(), func.sum(c.cloud_micro_usd)).where(*chosen).group_by(c.phase)
    counts, settled = Counter[str](), 0
    for phase, count, micro_usd in conn.execute(by_phase):
        counts[phase], settled = count, settled + int(micro_usd)
    r, a, h = t.requests.c, t.arrays.c, t.history.c
    new: list[ColumnElement[bool]] = [r.kind == "submit"]
    whole: list[ColumnElement[bool]] = []
    old: list[ColumnElement[bool]] = []
    for table, conditions in ((r, new), (a, whole), (h, old)):
        conditions += [
            column == value
            for column, value in ((table.user, choice.user), (table.queue, choice.queue))
            if value
        ]
    if choice.array:
        new.append(r.job_id.startswith(f"{choice.array}-", autoescape=True))
        old.append(h.id.startswith(f"{choice.array}-", autoescape=True))
        whole.append(a.id == choice.array)
    counts[SUBMITTED] = conn.scalar(select(func.count()).where(*new)) or 0
    for limited, phase in ((a.at_once.is_(None), SUBMITTED), (a.at_once.is_not(None), Phase.BLOCKED.value)):
        counts[phase] += int(conn.scalar(select(func.sum(a.jobs_left)).where(limited, *whole)) or 0)
    settled += int(conn.scalar(select(func.sum(h.cloud_micro_usd)).where(*old)) or 0)
    placed = conn.scalars(select(c.id).where(c.phase.in_(PLACED), *choice.conditions()))
    sharing = conn.scalars(select(c.id).where(c.open_bills > 0, *chosen))
    return GroupTally(counts, settled, frozenset(placed), frozenset(sharing))
