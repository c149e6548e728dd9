"""Observers of the scheduler's steps, and the observer that stores step durations for the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from starburst.aio import TaskSet
from starburst.core.model.events import Event
from starburst.core.model.jobs import JobRecord
from starburst.core.state import Changes
from starburst.store import counters
from starburst.store.errors import StoreError
from starburst.store.store import Store

#: Seconds after which the durations of a step are stored. A crash loses those since; no counter decreases.
KEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class CommittedStep:
    """A step that has been committed. Times are wall seconds."""

    began: float
    #: Duration of the decision, and of its commit.
    core_s: float
    commit_s: float
    events: Sequence[Event]
    changes: Changes
    #: All jobs that have not ended.
    jobs: Mapping[str, JobRecord]


class StepObserver(Protocol):
    """Called after every step in the scheduler's event loop: it may neither block nor raise."""

    def stepped(self, step: CommittedStep) -> None:
        """Process a committed step."""

    def close(self) -> None:
        """Finish after the last step; may block for some seconds."""


class StepTimes:
    """Stores histograms of step durations every `KEEP_S`; a write with each step would cost too much."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: asyncio.TimerHandle | None = None
        self._writing = TaskSet()
        with store.read() as conn:
            self._kept = counters.steps(conn)

    def stepped(self, step: CommittedStep) -> None:
        """Count the durations of a step."""
        self._kept.core.add(step.core_s)
        self._kept.commit.add(step.commit_s)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(KEEP_S, self._keep)

    def close(self) -> None:
        """Store the durations that are not stored yet."""
        if self._due is not None:
            self._due.cancel()
            self._write()

    def _keep(self) -> None:
        self._due = None
        self._writing.ensure("step times", lambda: self._store.in_order(self._write))

    def _write(self) -> None:
        """Store all durations so far; after an error the next write includes them."""
        with suppress(StoreError, SQLAlchemyError):
            self._store.set_fact(counters.STEPS, self._kept)
