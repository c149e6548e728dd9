"""What tasks leave behind themselves when they begin and end: the truth about runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Mark:
    """One task of one attempt, by itself. Seconds since the epoch, by the world's clock."""

    job: str
    attempt: int
    rank: int
    began_at: float
    ended_at: float | None = None
    #: None: it was killed.
    code: int | None = None


class Marks:
    """All of them, and what must never be (`broken`)."""

    def __init__(self) -> None:
        self.all: list[Mark] = []
        self.broken: list[str] = []
        #: When the scheduler stored the end of a job.
        self.over: dict[str, float] = {}
        self.open: dict[str, Mark] = {}
        #: Brings up to date what is only computed when somebody looks.
        self.settle: Callable[[], None] = lambda: None
        #: Whether the scheduler that calls a site has not lost the lead.
        self.may_act: Callable[[], bool] = lambda: True

    def acts(self, what: str) -> None:
        """A site is about to do what a scheduler asks for."""
        if not self.may_act():
            self.broken.append(f"{what}: asked for by one that leads no longer")

    def begins(self, job: str, attempt: int, rank: int, key: str, now: float) -> None:
        """A task begins; `key` names its process."""
        mine = Mark(job, attempt, rank, now)
        self.all.append(mine)
        for other in self.open.values():
            if other.job == job and other.attempt != attempt:
                self.broken.append(f"{job}: attempt {attempt} begins while attempt {other.attempt} lives")
            elif (other.job, other.attempt, other.rank) == (job, attempt, rank):
                self.broken.append(f"{job}: rank {rank} of attempt {attempt} begins beside itself")
        if job in self.over:
            self.broken.append(f"{job}: attempt {attempt} begins after its end was stored")
        self.open[key] = mine

    def ends(self, key: str, now: float, code: int | None) -> None:
        """A process is over; more than one word of it counts once."""
        mine = self.open.pop(key, None)
        if mine is not None:
            mine.ended_at, mine.code = now, code

    def has_begun(self, job: str, attempt: int) -> bool:
        """Whether a task of an attempt ever began."""
        return any((mark.job, mark.attempt) == (job, attempt) for mark in self.all)

    def succeeded(self, job: str, tasks: int, least: int, *, counts_on: bool = False) -> bool:
        """Whether every task of an attempt exited with 0; `counts_on`: of all attempts together, as a Job of
        Kubernetes keeps what it has completed while it is suspended.

        `least`: an attempt of so many of its tasks, or more, is one, too.
        """
        good: dict[int, set[int]] = {}
        begun: dict[int, set[int]] = {}
        for mark in self.all:
            if mark.job == job:
                attempt = 0 if counts_on else mark.attempt
                begun.setdefault(attempt, set()).add(mark.rank)
                if mark.code == 0:
                    good.setdefault(attempt, set()).add(mark.rank)
        whole = (ranks for attempt, ranks in good.items() if ranks == begun[attempt])
        return any(least <= len(ranks) <= tasks and ranks == set(range(len(ranks))) for ranks in whole)
