"""Drives disciplines through small random histories and keeps its own account of who is where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

from starburst.policy.disciplines.best_fit import BestFitBoth, BestFitJobs, BestFitServers
from starburst.policy.disciplines.discipline import Discipline, Make
from starburst.policy.disciplines.fifo import FifoFirstFit
from starburst.policy.disciplines.vqs import VirtualQueues
from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit

LEVELS = 4
DISCIPLINES: dict[str, Make] = {
    "fifo-ff": FifoFirstFit,
    "bf-j": BestFitJobs,
    "bf-s": BestFitServers,
    "bf-j/s": BestFitBoth,
    "bf-j/s, stalling": lambda servers, capacity: BestFitBoth(servers, capacity, stall=True),
    "vqs": lambda servers, capacity: VirtualQueues(servers, capacity, levels=LEVELS),
    "vqs, stalling": lambda servers, capacity: VirtualQueues(servers, capacity, levels=LEVELS, stall=0.5),
    "vqs-bf": lambda servers, capacity: VirtualQueuesBestFit(servers, capacity, levels=LEVELS),
    "vqs-bf, stalling": lambda servers, capacity: VirtualQueuesBestFit(
        servers, capacity, levels=LEVELS, stall=0.5
    ),
}


@dataclass(frozen=True)
class History:
    """Servers of one capacity, and jobs in order: slot of arrival, size, slots of service."""

    servers: int
    capacity: int
    jobs: tuple[tuple[int, int, int], ...]


@st.composite
def histories(draw: st.DrawFn) -> History:
    servers = draw(st.integers(1, 4))
    capacity = draw(st.sampled_from([1, 2, 7, 12, 60, 1024, 5000]))
    # Some of every type, and many of a few, so that configurations of all kinds are the heaviest at times.
    few = draw(st.lists(st.sampled_from([5, 10, 16, 20, 24, 30, 40, 55, 60, 90]), min_size=1, max_size=3))
    size = st.integers(1, capacity)
    size |= st.sampled_from([max(1, percent * capacity // 100) for percent in few])
    job = st.tuples(st.integers(0, 2), size, st.integers(1, 6))
    slot, jobs = 0, []
    for gap, drawn, service in draw(st.lists(job, max_size=40)):
        slot += gap
        jobs.append((slot, drawn, service))
    return History(servers, capacity, tuple(jobs))


@dataclass
class Account:
    """Where every job is after a slot: waiting, on a server, or done."""

    history: History
    waiting: dict[int, int] = field(default_factory=dict)
    running: list[dict[int, int]] = field(default_factory=list)
    done: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)

    def free(self, server: int) -> int:
        return self.history.capacity - sum(self.running[server].values())


def slots(history: History, discipline: Discipline) -> Iterator[Account]:
    """The account after every slot, until all jobs are done."""
    account = Account(history, running=[{} for _ in range(history.servers)])
    ends: dict[int, list[tuple[int, int]]] = {}
    slot = 0
    while account.done < len(history.jobs):
        for job, server in sorted(ends.pop(slot, [])):
            discipline.leave(job, server)
            del account.running[server][job]
            account.done += 1
        for job, (arrival, size, _) in enumerate(history.jobs):
            if arrival == slot:
                discipline.arrive(job, size)
                account.waiting[job] = size
        account.starts = discipline.start()
        for job, server in account.starts:
            account.running[server][job] = account.waiting.pop(job)
            ends.setdefault(slot + history.jobs[job][2], []).append((job, server))
        slot += 1
        assert slot < 10_000, "jobs wait for ever"
        yield account
