"""Follows the decision log and sends notices: a cursor in the store says how far.

What is decided while nothing runs is notified of at the next start. A notice may come twice after a crash,
and never before its decision is stored. The first start begins with the next decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from starburst.app.config.notify import NotifyRule
from starburst.app.daemon.orphan_ledger import OrphanLedger
from starburst.app.notices.notices import Notice, message, of_decisions, of_machines, wanted
from starburst.policy.caps import Cap
from starburst.store.listings import pages, queries
from starburst.store.store import Store

#: Wall seconds between looks at the log, and rows of one look.
POLL_S, ROWS = 2.0, 500
#: Key of the fact with the cursor.
FACT = "notified"

#: Sends a message by a rule; whether it arrived.
Deliver = Callable[[NotifyRule, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class NoticeCursor:
    """Up to which decision, and up to which reaped machine (scheduler seconds), notices were sent."""

    seq: int
    reaped_at: float


class Notifier:
    """Sends what the rules ask for, until cancelled."""

    def __init__(
        self, store: Store, rules: Sequence[NotifyRule], caps: Sequence[Cap], deliver: Deliver
    ) -> None:
        """`store` is a connection of its own."""
        self._store = store
        self._rules = rules
        self._caps = {cap.name: cap for cap in caps}
        self._deliver = deliver

    async def run(self) -> None:
        """Follow the log."""
        while True:
            notices, cursor = await self._store.in_order(self.look)
            await asyncio.gather(*(self._tell(rule, wanted(rule, notices)) for rule in self._rules))
            await self._store.in_order(partial(self._keep, cursor))
            await asyncio.sleep(POLL_S)

    def look(self) -> tuple[list[Notice], NoticeCursor]:
        """What is new, and the cursor behind it."""
        known = self._store.fact(FACT)
        reaped = OrphanLedger(self._store).all()
        last = max((machine.reaped_at for machine in reaped), default=0.0)
        if known is None:
            cursor = NoticeCursor(pages.head(self._store), last)
            self._keep(cursor)
            return [], cursor
        rows = queries.decisions(self._store, after_seq=known["seq"], limit=ROWS)
        ids = {row.subject for row in rows}
        jobs = {row.id: row for row in queries.jobs(self._store, ids=ids)} if ids else {}
        lost = [machine for machine in reaped if machine.reaped_at > known["reaped_at"]]
        cursor = NoticeCursor(rows[-1].seq if rows else known["seq"], max(last, known["reaped_at"]))
        return [*of_decisions(rows, jobs, self._caps), *of_machines(lost)], cursor

    async def _tell(self, rule: NotifyRule, notices: list[Notice]) -> None:
        if notices:
            await self._deliver(rule, message(notices))

    def _keep(self, cursor: NoticeCursor) -> None:
        document = {"seq": cursor.seq, "reaped_at": cursor.reaped_at}
        if self._store.fact(FACT) != document:
            self._store.set_fact(FACT, document)
