"""Access to jobs, of a server or in a home, as handles of jobs need it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from starburst.client.connection import NotFoundError

JsonRow = dict[str, Any]
#: Phases in which a job has ended.
OVER = frozenset({"succeeded", "failed", "cancelled"})


class JobAccess(ABC):
    """Looks at jobs, waits for them and cancels them."""

    #: Receives wall seconds.
    _sleep: Callable[[float], None]

    @abstractmethod
    def jobs_by_id(self, ids: Iterable[str]) -> list[JsonRow]:
        """The jobs with these ids, as far as they exist, in order of arrival."""

    @abstractmethod
    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        rank: int | None = None,
        since: str | None = None,
    ) -> Iterator[str]:
        """The log of a job in pieces; with `follow` until the job ends."""

    @abstractmethod
    def cancel(self, job: str, *, now: bool = False) -> JsonRow:
        """Cancel a job; the job as it was before."""

    def wait(
        self, ids: Iterable[str], *, timeout_s: float | None = None, poll_s: float = 1.0
    ) -> list[JsonRow]:
        """Wait until all jobs have ended; the jobs in the order of `ids`.

        Raises:
            NotFoundError: one of them does not exist, or no more.
            TimeoutError: after `timeout_s` wall seconds.
        """
        wanted = list(ids)
        over: dict[str, JsonRow] = {}
        began = time.monotonic()
        while True:
            waiting = [job for job in wanted if job not in over]
            rows = {row["id"]: row for row in self.jobs_by_id(waiting)}
            if gone := [job for job in waiting if job not in rows]:
                raise NotFoundError(404, f"there is no job {gone[0]!r}, or no more")
            over |= {job: row for job, row in rows.items() if row["phase"] in OVER}
            if all(job in over for job in wanted):
                return [over[job] for job in wanted]
            if timeout_s is not None and time.monotonic() - began > timeout_s:
                left = [job for job in wanted if job not in over]
                raise TimeoutError(f"{len(left)} of {len(wanted)} jobs are not over, such as {left[0]}")
            self._sleep(poll_s)
