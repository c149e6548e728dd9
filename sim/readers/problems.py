"""Problems of a file, collected so that they are reported together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sim.errors import SimulationError

SHOWN = 20


class Problems:
    """The first problems of a file with their places, and the total number."""

    def __init__(self, file: str, place: str = "{file}:{line}") -> None:
        self.file = file
        self._place = place
        self._found: list[tuple[int, str]] = []
        self._count: Counter[str] = Counter()

    def add(self, line: int, field: str, value: object, remedy: str) -> None:
        """Record one problem. Those of a field come in order of lines, so only the first SHOWN are kept."""
        self._count[field] += 1
        if self._count[field] <= SHOWN:
            where = self._place.format(file=self.file, line=line)
            self._found.append((line, f"{where}: {field}: {shown(value)}: {remedy}"))

    def stop(self, line: int, field: str, value: object, remedy: str) -> SimulationError:
        """The error for a problem that ends reading, together with all earlier ones."""
        self.add(line, field, value, remedy)
        return self._error()

    def check(self) -> None:
        """Raise SimulationError if there are problems."""
        if self._found:
            raise self._error()

    def _error(self) -> SimulationError:
        lines = [text for _, text in sorted(self._found, key=lambda found: found[0])[:SHOWN]]
        more = self._count.total() - len(lines)
        return SimulationError("\n".join([*lines, *([f"and {more} more"] if more else [])]))


def shown(value: object) -> str:
    """A value on one line, shortened."""
    if isinstance(value, float):
        return f"{value:.15g}"
    text = str(value)
    if not text.isprintable() or text != text.strip() or not text:
        text = repr(text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def named(ids: Sequence[str], limit: int = 5) -> str:
    """The first few ids, and the number of the others."""
    more = len(ids) - limit
    return ", ".join(ids[:limit]) + (f" and {more} more" if more > 0 else "")
