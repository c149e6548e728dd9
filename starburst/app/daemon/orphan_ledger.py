"""The ledger of machines that were ended because no job claimed them: no job pays their bills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from starburst.domain.cloud import Instance
from starburst.domain.money import Money

FACT = "reaped"
#: The newest so many are kept.
KEPT = 500


class FactStore(Protocol):
    """The part of a store that keeps the ledger."""

    def fact(self, key: str) -> Any:
        """A small JSON document; None if it was never set."""

    def set_fact(self, key: str, value: object) -> None:
        """Keep a small JSON document."""


@dataclass(frozen=True, slots=True)
class ReapedMachine:
    """A machine of the ledger. Times are scheduler seconds."""

    id: str
    controller: str
    offer: str
    #: Micro-dollars per hour; None if unknown.
    rate: int | None
    launched_at: float
    #: When it was told to end.
    reaped_at: float
    #: Why, as the reaper has it (see `Fate`).
    why: str
    #: When the cloud first no longer had it.
    ended_at: float | None = None

    @classmethod
    def of(cls, machine: Instance, why: str, rate: Money | None, now: float) -> ReapedMachine:
        """A machine that is about to be ended."""
        micro = None if rate is None else rate.micro_usd
        return cls(machine.id, machine.controller, machine.offer_name, micro, machine.launched_at, now, why)


class OrphanLedger:
    """The ledger, as one document of the store; the newest KEPT entries."""

    def __init__(self, facts: FactStore) -> None:
        self._facts = facts

    def all(self) -> list[ReapedMachine]:
        """In the order in which they were ended."""
        return [ReapedMachine(**entry) for entry in self._facts.fact(FACT) or ()]

    def note(self, reaped: ReapedMachine) -> bool:
        """Add an entry; False if the machine is in the ledger and has not ended."""
        book = self.all()
        if any(known.id == reaped.id and known.ended_at is None for known in book):
            return False
        self._write([*book, reaped])
        return True

    def confirm(self, alive: Collection[str], now: float) -> None:
        """Note the end of every machine of the ledger that is not among those alive."""
        book = self.all()
        settled = [
            replace(known, ended_at=now) if known.ended_at is None and known.id not in alive else known
            for known in book
        ]
        if settled != book:
            self._write(settled)

    def _write(self, book: list[ReapedMachine]) -> None:
        self._facts.set_fact(FACT, [asdict(reaped) for reaped in book[-KEPT:]])
