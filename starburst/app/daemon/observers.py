"""Observers of the scheduler's steps, and the one that keeps how long steps take for the metrics."""

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

#: Seconds after which the times of a step are stored at the latest. A crash loses them; no counter falls.
KEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step that is stored. Times are of the wall, seconds."""

    began: float
    #: Duration of the decision, and of its commit.
    core_s: float
    commit_s: float
    events: Sequence[Event]
    changes: Changes
    #: All jobs that have not ended.
    jobs: Mapping[str, JobRecord]


class StepObserver(Protocol):
    """Called with every step, in the scheduler's own loop: it may neither block nor raise."""

    def stepped(self, step: Stepped) -> None:
        """A step is stored."""

    def close(self) -> None:
        """There will be no more steps. This may block for some seconds."""


class StepTimes:
    """Stores the distribution of step times every `KEEP_S`, since one more row with each step is dear."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: asyncio.TimerHandle | None = None
        self._writing = TaskSet()
        with store.read() as conn:
            self._kept = counters.steps(conn)

    def stepped(self, step: Stepped) -> None:
        """Count it."""
        self._kept.core.add(step.core_s)
        self._kept.commit.add(step.commit_s)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(KEEP_S, self._keep)

    def close(self) -> None:
        """Write what is not written yet."""
        if self._due is not None:
            self._due.cancel()
            self._write()

    def _keep(self) -> None:
        self._due = None
        self._writing.ensure("step times", lambda: self._store.in_order(self._write))

    def _write(self) -> None:
        """Write all times so far; what the store cannot take now is part of the next write."""
        with suppress(StoreError, SQLAlchemyError):
            self._store.set_fact(counters.STEPS, self._kept)
