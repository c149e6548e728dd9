"""The book of machines that were ended because nobody claimed them: their bills are on no job's account."""

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
    """The part of a store that the book is kept in."""

    def fact(self, key: str) -> Any:
        """A small JSON document; None if it was never set."""

    def set_fact(self, key: str, value: object) -> None:
        """Keep a small JSON document."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """One of them. Times are scheduler seconds."""

    id: str
    controller: str
    offer: str
    #: Micro-dollars per hour; None if nobody knows.
    rate: int | None
    launched_at: float
    #: When it was told to end.
    reaped_at: float
    #: Why, as the reaper has it (see `Fate`).
    why: str
    #: When the cloud first no longer had it.
    ended_at: float | None = None

    @classmethod
    def of(cls, machine: Instance, why: str, rate: Money | None, now: float) -> Reaped:
        """A machine that is about to be told."""
        micro = None if rate is None else rate.micro_usd
        return cls(machine.id, machine.controller, machine.offer_name, micro, machine.launched_at, now, why)


class ReapedBook:
    """What is in the store of such machines."""

    def __init__(self, facts: FactStore) -> None:
        self._facts = facts

    def all(self) -> list[Reaped]:
        """In the order they were told."""
        return [Reaped(**entry) for entry in self._facts.fact(FACT) or ()]

    def note(self, reaped: Reaped) -> bool:
        """Write one down; False if it stands there already and has not ended."""
        book = self.all()
        if any(known.id == reaped.id and known.ended_at is None for known in book):
            return False
        self._write([*book, reaped])
        return True

    def confirm(self, alive: Collection[str], now: float) -> None:
        """The cloud has these machines left: what else is in the book has ended."""
        book = self.all()
        settled = [
            replace(known, ended_at=now) if known.ended_at is None and known.id not in alive else known
            for known in book
        ]
        if settled != book:
            self._write(settled)

    def _write(self, book: list[Reaped]) -> None:
        self._facts.set_fact(FACT, [asdict(reaped) for reaped in book[-KEPT:]])
