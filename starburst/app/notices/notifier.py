"""Follows the decision log and sends notices: a cursor in the store says how far, for each rule its own.

What is decided while nothing runs is notified of at the next start. A notice may come twice after a crash,
and never before its decision is stored. The first start begins with the next decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from starburst.aio import first_of
from starburst.app.config.notify import NotifyRule
from starburst.app.daemon.orphan_ledger import OrphanLedger
from starburst.app.notices.notices import Notice, message, of_decisions, of_machines, wanted
from starburst.policy.caps import Cap
from starburst.store.listings import pages, queries
from starburst.store.store import Store

#: Wall seconds between looks at the log, and rows of one look.
POLL_S, ROWS = 2.0, 500
#: Key of the fact with the cursors, by key of the rule; of an older version with one for all rules.
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
        self._rules = {_key(rule): rule for rule in rules}
        self._caps = {cap.name: cap for cap in caps}
        self._deliver = deliver

    async def run(self) -> None:
        """Follow the log by each rule: a server that is away holds up no other."""
        await first_of({key: self._follow(key, rule) for key, rule in self._rules.items()})

    async def _follow(self, key: str, rule: NotifyRule) -> None:
        while True:
            notices, cursor = await self._store.in_order(partial(self.look, key))
            if chosen := wanted(rule, notices):
                await self._deliver(rule, message(chosen))
            await self._store.in_order(partial(self._keep, key, cursor))
            await asyncio.sleep(POLL_S)

    def look(self, key: str) -> tuple[list[Notice], NoticeCursor]:
        """What is new by the rule of a key, and the cursor behind it."""
        known = self._known(key)
        reaped = OrphanLedger(self._store).all()
        last = max((machine.reaped_at for machine in reaped), default=0.0)
        if known is None:
            cursor = NoticeCursor(pages.head(self._store), last)
            self._keep(key, cursor)
            return [], cursor
        rows = queries.decisions(self._store, after_seq=known["seq"], limit=ROWS)
        ids = {row.subject for row in rows}
        jobs = {row.id: row for row in queries.jobs(self._store, ids=ids)} if ids else {}
        lost = [machine for machine in reaped if machine.reaped_at > known["reaped_at"]]
        cursor = NoticeCursor(rows[-1].seq if rows else known["seq"], max(last, known["reaped_at"]))
        return [*of_decisions(rows, jobs, self._caps), *of_machines(lost)], cursor

    def _known(self, key: str) -> dict[str, Any] | None:
        """The stored cursor of a rule; a new rule goes on from the furthest one."""
        kept = self._store.fact(FACT) or {}
        if "seq" in kept or key in kept:
            found: dict[str, Any] = kept.get(key, kept)
            return found
        return max(kept.values(), key=lambda cursor: float(cursor["seq"]), default=None)

    def _keep(self, key: str, cursor: NoticeCursor) -> None:
        kept = self._store.fact(FACT) or {}
        others = dict.fromkeys(self._rules, kept) if "seq" in kept else kept
        document = {name: each for name, each in others.items() if name in self._rules}
        document[key] = {"seq": cursor.seq, "reaped_at": cursor.reaped_at}
        if kept != document:
            self._store.set_fact(FACT, document)


def _key(rule: NotifyRule) -> str:
    """Tells rules apart; a hash, as the address of a webhook is a secret."""
    return sha256(rule.model_dump_json().encode()).hexdigest()[:16]
