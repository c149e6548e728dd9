"""The packing gap for pages and scrapes: proven beside them, remembered, and never waited for for long."""

from __future__ import annotations

import threading
import time

from starburst.app.packing_gap import GapQuestion, PackingGap, least, question
from starburst.domain.money import Money
from starburst.store import queries
from starburst.store.store import Store
from starburst.web import aggregates

#: How long whoever asks first waits for a proof, wall seconds; after that the last one known is told.
WAIT_S = 0.8
#: After a proof there is none for this many times as long as it took: the scheduler has the same cores.
REST = 20.0


class PackingGapCache:
    """Knows the last proof, which holds as long as tasks and offers are the same."""

    def __init__(self, store: Store, wait_s: float = WAIT_S) -> None:
        self._store = store
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._busy = False
        self._next = 0.0
        self._proven: GapQuestion | None = None
        self._least: Money | None = None
        self._gap: PackingGap | None = None

    def ask(self, ceiling: Money | None) -> PackingGap | None:
        """The gap as of now or, while it is being proven, the last one known; `ceiling` as for `question`.

        None if there is nothing to compare, or if it cannot be told.
        """
        with self._store.read() as conn:
            machines = queries.machines(conn)
            asked = question(conn, machines, ceiling)
        if asked is not None and self._begins(asked):
            proof = threading.Thread(target=self._prove, args=(asked,), name="packing-gap", daemon=True)
            proof.start()
            proof.join(self._wait_s)
        with self._lock:
            if asked is None:
                self._gap = None
            elif asked == self._proven:
                self._gap = (
                    None if self._least is None else PackingGap(aggregates.rate(machines), self._least)
                )
            return self._gap

    def _begins(self, asked: GapQuestion) -> bool:
        with self._lock:
            begins = not self._busy and asked != self._proven and time.monotonic() >= self._next
            self._busy = self._busy or begins
            return begins

    def _prove(self, asked: GapQuestion) -> None:
        began, found = time.thread_time(), None
        try:
            found = least(asked)
        finally:
            with self._lock:
                self._busy, self._proven, self._least = False, asked, found
                self._next = time.monotonic() + REST * (time.thread_time() - began)
