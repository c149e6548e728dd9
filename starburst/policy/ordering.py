"""Who goes first: the sort key of the queue. Smaller goes first; ties go to whoever came first.

Under a discipline (`policy.disciplines`) the key only says who came first of equals, and who is last when the
queue is too long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starburst.policy.disciplines.registry import DISCIPLINES


@dataclass(frozen=True, slots=True)
class Candidate:
    """What an order may look at."""

    #: Position in order of arrival; a job that comes back keeps it.
    seq: int
    runtime_s: float
    #: When it leaves for the cloud, seconds; may be infinite.
    deadline: float
    priority: int
    #: Of its queue's priority and its start tag (policy/fair.py), given at its arrival.
    fair: float = 0.0


Order = Callable[[Candidate], float]


def fifo(job: Candidate) -> float:
    """First in, first out."""
    return job.seq


def sjf(job: Candidate) -> float:
    """Shortest job first, by estimated run time."""
    return job.runtime_s


def edf(job: Candidate) -> float:
    """Earliest due first: a job is due when its wait and its estimated run time are over (a + w + d)."""
    return job.deadline + job.runtime_s


def priority(job: Candidate) -> float:
    """Highest priority first."""
    return -job.priority


def fair(job: Candidate) -> float:
    """By turns between queues, in proportion to their shares (start-time fair queueing)."""
    return job.fair


ORDERS: dict[str, Order] = {
    "fifo": fifo,
    "sjf": sjf,
    "edf": edf,
    "priority": priority,
    "fair": fair,
    **dict.fromkeys(DISCIPLINES, fifo),
}
