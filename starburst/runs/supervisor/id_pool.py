"""User ids for jobs, given out once and kept in files for good."""

from __future__ import annotations

from pathlib import Path

from starburst.runs.supervisor.files import read_plain, write_json


class PoolUsedUpError(Exception):
    """All ids are given out."""


class IdPool:
    """Ids from `first` to `last`, by name; a file of `records` per name."""

    def __init__(self, records: Path, first: int, last: int) -> None:
        self._records, self._first, self._last = records, first, last
        self._ids: dict[str, int] = {}

    def id_of(self, name: str) -> int:
        """The id of a name, which is given one now if it has none.

        Raises:
            PoolUsedUpError: all ids are given out.
            OSError: the records cannot be read or written.
        """
        if name not in self._ids:
            self._ids.update(self._recorded())  # another process gives out ids, too
        if name not in self._ids:
            free = set(range(self._first, self._last + 1)) - set(self._ids.values())
            if not free:
                raise PoolUsedUpError
            self._records.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(self._records / name, min(free))
            self._ids[name] = min(free)
        return self._ids[name]

    def _recorded(self) -> dict[str, int]:
        if not self._records.is_dir():
            return {}
        found = {path.name: read_plain(path, 20) or b"" for path in self._records.iterdir()}
        numbers = {name: int(text) for name, text in found.items() if text.isdigit()}
        return {name: number for name, number in numbers.items() if self._first <= number <= self._last}
