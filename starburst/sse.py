"""Server-sent events as they come in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Event(NamedTuple):
    """A server-sent event."""

    id: str = ""
    name: str = ""
    data: str = ""


def events(pieces: Iterable[str]) -> Iterator[Event]:
    """The whole events of a text; one that was cut in the middle is none."""
    found: dict[str, str] = {}
    for line in _lines(pieces):
        name, _, value = line.partition(": ")
        if name in ("id", "event", "data"):
            found[name] = value
        elif not line and found:
            yield Event(found.get("id", ""), found.get("event", ""), found.get("data", ""))
            found = {}


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Whole lines; of all that could end one only \\n does, for text has the others in it."""
    parts: list[str] = []
    for piece in pieces:
        first, *more = piece.split("\n")
        parts.append(first)
        for start in more:
            yield "".join(parts)
            parts = [start]
