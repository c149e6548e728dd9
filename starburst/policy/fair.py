"""Weighted fair order between queues: start-time fair queueing over GPU-seconds.

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996); for several jobs in service at a time
the virtual time is the largest start tag that was dispatched (Jin, Chase, Kaur, "Interposed proportional
sharing for a storage service utility", SIGMETRICS 2004, SFQ(D)). Of job j of queue q, of l GPU-seconds by
estimate, and share r of the queue:

    S_j = max(v, F_q),   F_q = S_j + l / r,   and who has the smallest S goes first.

Tags are given at arrival and stay, so that the order of the queue is static. Once nobody waits, what queues
had before is forgotten: v is then the largest F there was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: Priorities of queues, and by how many GPU-seconds one goes before the next: more than a thousand GPUs
#: compute in thirty years, and still fine enough for tags of a hundredth of a second beside it.
MOST_PRIORITY = 100
PRIORITY_STEP = 2.0**40


@dataclass(frozen=True, slots=True)
class Queue:
    """What an admin says of a queue."""

    name: str
    #: Of the cluster, in proportion to those of the other queues that want it at the time.
    share: float = 1.0
    #: Under the order "fair" queues of a higher one go first, whatever their shares.
    priority: int = 0
    #: P of its jobs; None is the P of all.
    budget_percent: float | None = None


@dataclass(slots=True)
class Tags:
    """The virtual time v, and F of each queue, in GPU-seconds per share."""

    virtual: float = 0.0
    finishes: dict[str, float] = field(default_factory=dict)

    def arrive(self, queue: str, gpu_s: float, share: float, *, alone: bool) -> float:
        """The start tag of a job that comes; `alone`: nobody else waits."""
        if alone:
            self.virtual = max((self.virtual, *self.finishes.values()))
            self.finishes.clear()
        start = max(self.virtual, self.finishes.get(queue, 0.0))
        self.finishes[queue] = start + gpu_s / share
        return start

    def dispatch(self, start: float) -> None:
        """A job of this start tag has its place."""
        self.virtual = max(self.virtual, start)

    def copy(self) -> Tags:
        """The same, cut off from it."""
        return Tags(self.virtual, dict(self.finishes))


def fair_key(tag: float, priority: int) -> float:
    """The order key of a job: first the priority of its queue, then its tag."""
    return tag - priority * PRIORITY_STEP


def named_twice(queues: Iterable[Queue]) -> str | None:
    """A name that two queues have."""
    seen: set[str] = set()
    for queue in queues:
        if queue.name in seen:
            return queue.name
        seen.add(queue.name)
    return None
