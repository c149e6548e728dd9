"""A copy of the scheduler's core, rebuilt from the store, that answers questions about jobs.

A question such as "what is free?" needs the whole core. Rebuilding it from the last committed step takes a
third of a second while 10,000 jobs wait. The cache therefore keeps one rebuilt core and answers such
questions of a process from it; explanations of single jobs need it under some policies only. Two freshness
rules exist: `current` rebuilds the core when a newer step or config is stored; `recent`, for pages that
refresh by themselves, accepts a core up to `STALE_S` old.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from starburst.app.times import local_clock
from starburst.app.wiring.stored import core_of, live_core
from starburst.core.scheduler import Scheduler
from starburst.core.views.explain import Explanation, ended, explain, needs_whole
from starburst.domain.job import Phase, is_over
from starburst.store.listings import queries
from starburst.store.listings.around_job import around_job
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store

#: Maximum age of a `recent` core, wall seconds. The position of a job in the queue may be this old.
STALE_S = 5.0


class SnapshotCache:
    """Rebuilt cores, with and without waiting jobs. Thread-safe: a lock serialises their users."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        #: The core with waiting jobs and that without: its stored version, when it was built, the core.
        self._cores: dict[bool, tuple[object, float, Scheduler]] = {}

    @contextmanager
    def current(self, *, waiting: bool = True) -> Iterator[Scheduler]:
        """The core as last committed, at the present time; read-only, and only within the `with` block.

        `waiting=False`: without the jobs that hold no room.
        """
        with self._lock:
            version, _, core = self._cores.get(waiting, (None, 0.0, None))
            fresh = core is not None and version == self._stored_version()
            yield self._at_present(core if core is not None and fresh else self._build(waiting=waiting))

    @contextmanager
    def recent(self, decided: int) -> Iterator[Scheduler]:
        """A core at most `STALE_S` old that includes the decision with the sequence number `decided`."""
        with self._lock:
            _, built_at, core = self._cores.get(True, (None, 0.0, None))
            if core is None or core.state.decided < decided or time.monotonic() - built_at > STALE_S:
                core = self._build(waiting=True)
            yield self._at_present(core)

    def explanation(
        self,
        row: JobRow,
        sees: Callable[[str], bool] = lambda _: True,
        *,
        decided: int | None = None,
    ) -> Explanation:
        """The state of a job and its reason.

        The stored row explains a job that the scheduler has not taken up yet, or that is over; any other is
        explained by a core that holds little but the job, or by the whole one where its prospects depend on
        all jobs. `sees(queue)` hides jobs of other queues from the sentence. `decided` selects a whole core
        that is `recent`, with this decision; None the `current` one.
        """
        if row.seq is None:
            waits = row.message or "is stored and waits for the scheduler to take it up"
            return Explanation(row.id, row.phase, waits)
        around = None if is_over(row.phase) else around_job(self._store, row.id)
        if around is None:
            clock = local_clock(queries.pace(self._store).scheduler_time(time.time()))
            sentence = ended(row.phase, row.ended_at, row.message, row.cloud_micro_usd, clock)
            return Explanation(row.id, row.phase, sentence)
        state = core_of(self._store, around.snapshot).state
        is_queued = around.record.phase is Phase.QUEUED
        if not is_queued or (around.position and not needs_whole(state)):
            clock = local_clock(state.now)
            return explain(state, around.record, clock, sees, lambda *_: around.position)
        with self.current() if decided is None else self.recent(decided) as core:
            record = core.state.jobs.get(row.id, around.record)
            return explain(core.state, record, local_clock(core.state.now), sees)

    def _stored_version(self) -> object:
        """Changes with each step of the scheduler (its facts) and with each start (its config)."""
        return self._store.fact("facts"), self._store.fact("config")

    def _build(self, *, waiting: bool) -> Scheduler:
        version, now = self._stored_version(), time.monotonic()
        core = live_core(self._store, waiting=waiting)
        self._cores[waiting] = version, now, core
        return core

    def _at_present(self, core: Scheduler) -> Scheduler:
        """The core with its clock at the present time."""
        core.state.now = max(core.state.now, queries.pace(self._store).scheduler_time(time.time()))
        return core
