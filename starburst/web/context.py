"""What a request is answered from."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from starburst.app.config.home import Home
from starburst.app.daemon.progress_inbox import Inbox
from starburst.bus.hints import Throughput
from starburst.store import queries
from starburst.store.store import Store

#: A scheduler that was not heard of for so long hangs, wall seconds. Its longest steps take some.
STALL_LIMIT_S = 30.0


class ProgressSink(Protocol):
    """Where to leave what runs say of themselves; any thread may."""

    def put(self, said: Throughput) -> None:
        """Leave a word."""


class SchedulerHeartbeat:
    """When the scheduler's loop last went round, as far as that is known here. Monotonic seconds."""

    def __init__(self) -> None:
        self.beat_at = time.monotonic()

    def stalled_s(self) -> float:
        """How long ago that is if it is too long, else 0."""
        stalled_s = time.monotonic() - self.beat_at
        return stalled_s if stalled_s > STALL_LIMIT_S else 0.0


@dataclass(frozen=True, slots=True)
class AppContext:
    """A home and its store, which any thread may ask."""

    home: Home
    store: Store
    #: The scheduler's, for what runs say of themselves.
    inbox: ProgressSink = field(default_factory=Inbox)
    #: The scheduler's, if this is another process.
    heartbeat: SchedulerHeartbeat | None = None

    def now(self) -> float:
        """The scheduler's time."""
        return queries.pace(self.store).scheduler_time(time.time())
