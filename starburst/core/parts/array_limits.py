"""Arrays of which only so many jobs at a time may wait for a place or have one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Member


@dataclass(slots=True)
class _Book:
    at_once: int
    #: Jobs that have their turn, and those that wait for it, by arrival.
    active: set[str] = field(default_factory=set)
    waiting: dict[str, None] = field(default_factory=dict)


class Turns:
    """Whose turn it is. `freed` collects those who wait and could have theirs now."""

    def __init__(self, freed: deque[str]) -> None:
        self._freed = freed
        self._books: dict[str, _Book] = {}

    def take(self, record: JobRecord) -> Member | None:
        """Give a job its turn; its place in an array if that is not yet to be had."""
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
        """After a restart: a blocked job waits for its turn, if it must have one."""
        place = record.job.array
        if place is None or place.at_once is None:
            return False
        self._books.setdefault(place.array, _Book(place.at_once)).waiting[record.id] = None
        return True

    def go_round(self) -> None:
        """After a restart: turns that nobody has are had by those who wait."""
        for book in self._books.values():
            self._offer(book)

    def give_up(self, record: JobRecord) -> None:
        """The job is over or kept out of the queue by something else: the next one's turn."""
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
        """Those first in line look again; one that is told twice, or went meanwhile, does no harm."""
        self._freed.extend(islice(book.waiting, max(0, book.at_once - len(book.active))))

    def active(self) -> dict[str, set[str]]:
        """Who has a turn, by array; for checks."""
        return {array: book.active for array, book in self._books.items()}
