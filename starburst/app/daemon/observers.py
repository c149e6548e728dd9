"""What is told of each step of the scheduler once it is stored; how long steps take, kept for the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from starburst.core.model.events import Event
from starburst.core.model.jobs import JobRecord
from starburst.core.state import Changes
from starburst.store import counters
from starburst.store.errors import StoreError
from starburst.store.store import Store

#: What steps took is in the store so many seconds later at most. A crash loses that; nothing counts back.
KEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step that is stored. Times are of the wall, seconds."""

    began: float
    #: How long it took to decide, and to store that.
    core_s: float
    commit_s: float
    events: Sequence[Event]
    changes: Changes
    #: All jobs that are not over.
    jobs: Mapping[str, JobRecord]


class Watcher(Protocol):
    """Hears of every step in the scheduler's own loop, so it may neither wait nor fail."""

    def stepped(self, step: Stepped) -> None:
        """A step is stored."""

    def close(self) -> None:
        """There will be no more steps. This may take some seconds."""


class StepTimes:
    """Keeps how long steps took: now and then, for with every step it would be one more row to write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: asyncio.TimerHandle | None = None
        with store.read() as conn:
            self._kept = counters.steps(conn)

    def stepped(self, step: Stepped) -> None:
        """Count it."""
        self._kept.core.add(step.core_s)
        self._kept.commit.add(step.commit_s)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(KEEP_S, self._keep)

    def close(self) -> None:
        """Keep what is not kept yet."""
        if self._due is not None:
            self._due.cancel()
            self._keep()

    def _keep(self) -> None:
        """What the store cannot take now is in what it is given after the next step."""
        self._due = None
        with suppress(StoreError, SQLAlchemyError):
            self._store.set_fact(counters.STEPS, self._kept)
