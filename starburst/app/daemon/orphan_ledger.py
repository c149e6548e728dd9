"""The ledger of instances that the reaper ended because no record claimed them: no job pays their bills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from starburst.domain.cloud import Instance
from starburst.domain.money import Money

FACT = "reaped"
#: Number of entries kept, the newest ones.
KEPT = 500


class FactStore(Protocol):
    """The part of a store that keeps the ledger."""

    def fact(self, key: str) -> Any:
        """A small JSON document; None if it was never set."""

    def set_fact(self, key: str, value: object) -> None:
        """Keep a small JSON document."""


@dataclass(frozen=True, slots=True)
class ReapedMachine:
    """An instance in the ledger. Times are scheduler seconds."""

    id: str
    controller: str
    offer: str
    #: Micro-dollars per hour; None if unknown.
    rate: int | None
    launched_at: float
    #: Time of the first termination request.
    reaped_at: float
    #: The reaper's classification (`reaper.Fate`).
    why: str
    #: Time of the first listing of the cloud without it.
    ended_at: float | None = None

    @classmethod
    def of(cls, machine: Instance, why: str, rate: Money | None, now: float) -> ReapedMachine:
        """The entry of an instance that is about to be ended; `rate` is that of each of its machines."""
        micro = None if rate is None else rate.micro_usd * machine.nodes
        return cls(machine.id, machine.controller, machine.offer_name, micro, machine.launched_at, now, why)


class OrphanLedger:
    """The ledger, as one document of the store; the newest KEPT entries."""

    def __init__(self, facts: FactStore) -> None:
        self._facts = facts

    def all(self) -> list[ReapedMachine]:
        """All entries in the order of their termination requests."""
        return [ReapedMachine(**entry) for entry in self._facts.fact(FACT) or ()]

    def note(self, reaped: ReapedMachine) -> bool:
        """Add an entry; False if the instance is in the ledger and has not ended."""
        book = self.all()
        if any(known.id == reaped.id and known.ended_at is None for known in book):
            return False
        self._write([*book, reaped])
        return True

    def confirm(self, alive: Collection[str], now: float) -> None:
        """Record the end of every instance of the ledger that is not among `alive`."""
        book = self.all()
        settled = [
            replace(known, ended_at=now) if known.ended_at is None and known.id not in alive else known
            for known in book
        ]
        if settled != book:
            self._write(settled)

    def _write(self, book: list[ReapedMachine]) -> None:
        self._facts.set_fact(FACT, [asdict(reaped) for reaped in book[-KEPT:]])
