"""Weighted fair order between queues: start-time fair queueing over GPU seconds.

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996). With several jobs in service at a time
the virtual time v is the largest start tag dispatched so far (Jin, Chase, Kaur, "Interposed proportional
sharing for a storage service utility", SIGMETRICS 2004, SFQ(D)). For job j of queue q with an estimate of l
GPU seconds, and share r of the queue:

    S_j = max(v, F_q),   F_q = S_j + l / r;   the smallest S goes first.

Tags are assigned on arrival and never change, so the order is static. When a job arrives and no other job
waits, v is set to the largest F and all F are cleared: past use of a queue is then forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: Largest queue priority, and the GPU seconds by which one priority level precedes the next. 2⁴⁰ GPU seconds
#: are more than a thousand GPUs deliver in thirty years; a double still resolves tags to a hundredth of a
#: second beside 100 such steps.
MOST_PRIORITY = 100
PRIORITY_STEP = 2.0**40


@dataclass(frozen=True, slots=True)
class Queue:
    """Configured properties of a queue."""

    name: str
    #: Share of the cluster, relative to the other queues that have demand at the time.
    share: float = 1.0
    #: Under the order "fair" queues of higher priority go first, whatever their shares.
    priority: int = 0
    #: Wait budget P of the queue's jobs, percent; None uses the global P.
    budget_percent: float | None = None


@dataclass(slots=True)
class Tags:
    """The virtual time v, and the finish tag F of each queue, in GPU seconds per share."""

    virtual: float = 0.0
    finishes: dict[str, float] = field(default_factory=dict)

    def arrive(self, queue: str, gpu_s: float, share: float, *, alone: bool) -> float:
        """The start tag of an arriving job; `alone` means that no other job waits."""
        if alone:
            self.virtual = max((self.virtual, *self.finishes.values()))
            self.finishes.clear()
        start = max(self.virtual, self.finishes.get(queue, 0.0))
        self.finishes[queue] = start + gpu_s / share
        return start

    def dispatch(self, start: float) -> None:
        """Advance the virtual time to the start tag of a job that got its placement."""
        self.virtual = max(self.virtual, start)

    def copy(self) -> Tags:
        """An independent copy."""
        return Tags(self.virtual, dict(self.finishes))


def fair_key(tag: float, priority: int) -> float:
    """Order key of a job: the priority of its queue first, then its start tag."""
    return tag - priority * PRIORITY_STEP


def named_twice(queues: Iterable[Queue]) -> str | None:
    """The first name shared by two queues; None if all names differ."""
    seen: set[str] = set()
    for queue in queues:
        if queue.name in seen:
            return queue.name
        seen.add(queue.name)
    return None
