"""A parser of server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class ServerEvent(NamedTuple):
    """A server-sent event."""

    id: str = ""
    name: str = ""
    data: str = ""


def events(pieces: Iterable[str]) -> Iterator[ServerEvent]:
    """The complete events of a stream; an event that was cut off is dropped."""
    found: dict[str, str] = {}
    for line in _lines(pieces):
        name, _, value = line.partition(": ")
        if name in ("id", "event", "data"):
            found[name] = value
        elif not line and found:
            yield ServerEvent(found.get("id", ""), found.get("event", ""), found.get("data", ""))
            found = {}


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Complete lines. Only LF ends a line: log texts may contain other line separators."""
    parts: list[str] = []
    for piece in pieces:
        first, *more = piece.split("\n")
        parts.append(first)
        for start in more:
            yield "".join(parts)
            parts = [start]
