"""Sort keys of the queue. The smallest key goes first; ties are broken by order of arrival.

Under a discipline (`policy.disciplines`) the key is the order of arrival: it breaks ties between jobs of
equal rank and selects the last jobs when the queue exceeds its cap.
"""

from __future__ import annotations

from collections.abc import Callable

from starburst.domain.value import value
from starburst.policy.disciplines.registry import DISCIPLINES


@value
class Candidate:
    """The attributes of a job that an order may use."""

    #: Position in order of arrival; a job that returns to the queue keeps it.
    seq: int
    runtime_s: float
    #: Deadline at which the job offloads, seconds; may be infinite.
    deadline: float
    priority: int
    #: Fair key from its queue's priority and its start tag (policy/fair.py), assigned on arrival.
    fair: float = 0.0


Order = Callable[[Candidate], float]


def fifo(job: Candidate) -> float:
    """First in, first out."""
    return job.seq


def sjf(job: Candidate) -> float:
    """Shortest job first, by estimated run time."""
    return job.runtime_s


def edf(job: Candidate) -> float:
    """Earliest due first: arrival, allowed wait and estimated run time (a + w + d)."""
    return job.deadline + job.runtime_s


def priority(job: Candidate) -> float:
    """Highest priority first."""
    return -job.priority


def fair(job: Candidate) -> float:
    """Start-time fair queueing: queues alternate in proportion to their shares."""
    return job.fair


ORDERS: dict[str, Order] = {
    "fifo": fifo,
    "sjf": sjf,
    "edf": edf,
    "priority": priority,
    "fair": fair,
    **dict.fromkeys(DISCIPLINES, fifo),
}
