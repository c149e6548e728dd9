"""The context of the application: home, store, and the connections to the scheduler."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from starburst.app.config.home import Home
from starburst.app.daemon.home_lock import LockHolder
from starburst.app.daemon.progress_inbox import ProgressInbox
from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.app.leadership.status import leader_of, scheduler_of
from starburst.bus.hints import ThroughputHint
from starburst.store.leader import leader_record
from starburst.store.listings import queries
from starburst.store.store import Store

#: The scheduler counts as stalled without a heartbeat for so many wall seconds; its longest steps take
#: some.
STALL_LIMIT_S = 30.0


class ProgressSink(Protocol):
    """Takes progress reports of runs. Thread-safe."""

    def put(self, said: ThroughputHint) -> None:
        """Hand over one report."""


class SchedulerHeartbeat:
    """Time of the last known iteration of the scheduler's loop, monotonic seconds."""

    def __init__(self) -> None:
        self.beat_at = time.monotonic()

    def stalled_s(self) -> float:
        """Seconds since the last heartbeat if they exceed `STALL_LIMIT_S`, otherwise 0."""
        stalled_s = time.monotonic() - self.beat_at
        return stalled_s if stalled_s > STALL_LIMIT_S else 0.0


@dataclass(frozen=True, slots=True)
class AppContext:
    """A home, its store and its scheduler, as request handlers use them. Thread-safe."""

    home: Home
    store: Store
    #: Takes progress reports for the scheduler.
    inbox: ProgressSink = field(default_factory=ProgressInbox)
    #: Heartbeat of a scheduler in another process; None if the scheduler is in this process.
    heartbeat: SchedulerHeartbeat | None = None
    #: Name of that scheduler in the store's row of the leader; "" if none else can lead.
    replica: str = ""
    #: Answers questions that need the whole core.
    snapshots: SnapshotCache = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "snapshots", SnapshotCache(self.store))

    def scheduler(self) -> LockHolder | None:
        """The status of the scheduler; None if none runs."""
        return scheduler_of(self.home, self.store) if self.replica else self.home.scheduler()

    def leads(self) -> bool:
        """Whether the scheduler beside this API leads; true if none else can."""
        if not self.replica:
            return True
        record = leader_record(self.store)
        return record is not None and record.holder == self.replica

    def leader(self) -> str | None:
        """The name of the leader of several replicas, "" if none leads; None for a single scheduler."""
        if not self.replica:
            return None
        record = leader_of(self.store)
        return "" if record is None else record.holder

    def now(self) -> float:
        """The present on the scheduler's clock."""
        return queries.pace(self.store).scheduler_time(time.time())
