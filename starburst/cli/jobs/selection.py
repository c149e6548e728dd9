"""Which jobs a command is about: the options that choose, sort and limit them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from starburst.app.errors import UserError
from starburst.cli.backend.backend import JobLister
from starburst.domain.phase import Phase
from starburst.store.listings.row_types import SUBMITTED, JobRow
from translator.duration import seconds

PHASES = (SUBMITTED, *(phase.value for phase in Phase))


class SortKey(str, Enum):
    """The values of `--sort`."""

    NEWEST = "newest"
    OLDEST = "oldest"
    USER = "user"
    QUEUE = "queue"
    PHASE = "phase"
    BILL = "bill"


class SiteName(str, Enum):
    """The values of `--site`."""

    CLUSTER = "cluster"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of jobs; empty fields choose all."""

    phases: Sequence[str] = ()
    user: str | None = None
    queues: Sequence[str] = ()
    site: SiteName | None = None
    #: Submitted at or after this time, scheduler seconds.
    since: float | None = None
    sort: SortKey | None = None

    @property
    def is_choice(self) -> bool:
        """Whether it leaves some jobs out."""
        return replace(self, sort=None) != Selection()

    def rows(self, backend: JobLister) -> list[JobRow]:
        """The chosen jobs, sorted; in order of arrival without a sort key."""
        return self.among(backend.jobs(phases=self.phases, user=self.user))

    def among(self, jobs: Iterable[JobRow]) -> list[JobRow]:
        """Those of these jobs that are chosen, sorted; in their order without a sort key."""
        rows = [row for row in jobs if self._chooses(row)]
        if self.sort is SortKey.NEWEST:
            rows.reverse()
        elif self.sort is not None:
            rows.sort(key=_KEYS[self.sort])
        return rows

    def _chooses(self, row: JobRow) -> bool:
        return (
            (not self.phases or row.phase in self.phases)
            and self.user in (None, row.user)
            and (not self.queues or row.queue in self.queues)
            and (self.site is None or row.site == self.site.value)
            and (self.since is None or row.submitted_at >= self.since)
        )


_KEYS: dict[SortKey, Callable[[JobRow], Any]] = {
    SortKey.OLDEST: lambda row: 0,
    SortKey.USER: lambda row: row.user,
    SortKey.QUEUE: lambda row: row.queue,
    SortKey.PHASE: lambda row: PHASES.index(row.phase),
    SortKey.BILL: lambda row: -row.cloud_micro_usd,
}


def check_phases(phases: Sequence[str]) -> None:
    """Refuse an unknown phase.

    Raises:
        UserError: it is none.
    """
    for phase in phases:
        if phase not in PHASES:
            raise UserError(f"--phase: {phase!r} is not a phase; choose one of {', '.join(PHASES)}")


def since_time(text: str, now: float, option: str = "--since") -> float:
    """The time that an option means: a duration before `now`, or a local time; 1970 at the earliest.

    Raises:
        UserError: the text is neither.
    """
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except ValueError:
        pass
    try:
        return max(0.0, now - seconds(text))
    except ValueError:
        mend = "write a duration such as 2h or 7d, or a time such as 2026-03-02"
        raise UserError(f"{option}: {text!r}: {mend}") from None
