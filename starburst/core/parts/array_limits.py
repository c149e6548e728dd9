"""Concurrency limits of job arrays: at most `at_once` jobs of an array may queue or run at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Member


@dataclass(slots=True)
class _Book:
    at_once: int
    #: Jobs that hold a slot, and jobs that wait for one, by arrival.
    active: set[str] = field(default_factory=set)
    waiting: dict[str, None] = field(default_factory=dict)


class Turns:
    """Concurrency slots of job arrays. `freed` collects ids of waiting jobs that could take a slot now."""

    def __init__(self, freed: deque[str]) -> None:
        self._freed = freed
        self._books: dict[str, _Book] = {}

    def take(self, record: JobRecord) -> Member | None:
        """Give a job a slot of its array; returns its array membership if no slot is free."""
        place = record.job.array
        if place is None or place.at_once is None:
            return None
        book = self._books.setdefault(place.array, _Book(place.at_once))
        if record.id not in book.active and len(book.active) >= book.at_once:
            book.waiting[record.id] = None
            return place
        book.waiting.pop(record.id, None)
        book.active.add(record.id)
        return None

    def wait(self, record: JobRecord) -> bool:
        """After a restart: register a blocked job as waiting; False if its array has no limit."""
        place = record.job.array
        if place is None or place.at_once is None:
            return False
        self._books.setdefault(place.array, _Book(place.at_once)).waiting[record.id] = None
        return True

    def go_round(self) -> None:
        """After a restart: offer free slots to waiting jobs."""
        for book in self._books.values():
            self._offer(book)

    def give_up(self, record: JobRecord) -> None:
        """Release the slot of a job that is over or blocked for another reason, and offer it again."""
        place = record.job.array
        book = None if place is None else self._books.get(place.array)
        if place is None or book is None:
            return
        book.waiting.pop(record.id, None)
        book.active.discard(record.id)
        self._offer(book)
        if not book.active and not book.waiting:
            del self._books[place.array]

    def _offer(self, book: _Book) -> None:
        """Mark waiting jobs for admission, one per free slot; a repeated or outdated id is harmless."""
        self._freed.extend(islice(book.waiting, max(0, book.at_once - len(book.active))))

    def known(self, array: str) -> int:
        """The number of jobs of an array that hold a slot or wait for one."""
        book = self._books.get(array)
        return 0 if book is None else len(book.active) + len(book.waiting)

    def active(self) -> dict[str, set[str]]:
        """Jobs that hold a slot, by array; for checks."""
        return {array: book.active for array, book in self._books.items()}
