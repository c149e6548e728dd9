"""The packing gap for pages and scrapes: proven in the background, cached while tasks and offers stay."""

from __future__ import annotations

from starburst.app.packing_gap import GapQuestion, PackingGap, least, question
from starburst.domain.money import Money
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.web import aggregates
from starburst.web.background import BackgroundCache

#: Wall seconds that the first request of a new proof waits for it; later requests get the last known gap.
WAIT_S = 0.8
#: Pause after a proof, as a multiple of its CPU time: the scheduler needs the same cores.
REST = 20.0


class PackingGapCache:
    """Caches the last proven lower bound on the cost of machines for the present tasks. Thread-safe."""

    def __init__(self, store: Store, wait_s: float = WAIT_S) -> None:
        self._store = store
        self._wait_s = wait_s
        self._proofs = BackgroundCache[GapQuestion, Money | None]("packing-gap", lambda cpu_s: REST * cpu_s)
        self._gap: PackingGap | None = None

    def ask(self, ceiling: Money | None) -> PackingGap | None:
        """The present gap or, while its proof runs, the last known one.

        `ceiling` is the highest hourly price of a machine, as for `question`. None: no machine is rented, or
        the bound is too weak to be of use.
        """
        with self._store.read() as conn:
            machines = queries.machines(conn)
            asked = question(conn, machines, ceiling)
        if asked is None:
            self._gap = None
            return None
        self._proofs.refresh(asked, lambda: least(asked), self._wait_s)
        proven = self._proofs.latest()
        if proven is not None and proven[0] == asked:
            bound = proven[1]
            self._gap = None if bound is None else PackingGap(aggregates.rate(machines), bound)
        return self._gap
