"""Tables and words as Markdown has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, with an empty one behind it; none if it has no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
        yield from lines
        yield ""


def cell(text: str) -> str:
    """Text for a cell: on one line, with marks that would end the cell or begin HTML written out."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]  # between them is code
    return "`".join(parts)


def code(text: str) -> str:
    """Text as code in a cell."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|")
