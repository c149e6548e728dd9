"""The journal: durable facts by key, each written before the effect that it announces.

A crash can happen between any two lines. What was journaled before a request was sent is found at the next
start, so the request is completed instead of repeated. `machines/entry.py` and `runs/entry.py` define what is
written; the stored field names are a format and do not change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from starburst.runs.files import directory_name, id_of
from starburst.runs.supervisor.files import read_json, write_json


class Journal(Protocol):
    """A durable map of keys to JSON values."""

    def get(self, key: str) -> Any:
        """The value of a key; None if there is none."""

    def put(self, key: str, value: Any) -> None:
        """Set a value; it is durable when this returns."""

    def drop(self, key: str) -> None:
        """Remove a key if it exists."""

    def all_keys(self, prefix: str) -> list[str]:
        """All keys with this prefix, sorted."""


class FileJournal:
    """A journal with one file per key, readable by the owner only: environments of jobs may hold secrets."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)

    def get(self, key: str) -> Any:
        """See `Journal`."""
        return read_json(self._path(key))

    def put(self, key: str, value: Any) -> None:
        """See `Journal`."""
        write_json(self._path(key), value)

    def drop(self, key: str) -> None:
        """See `Journal`."""
        self._path(key).unlink(missing_ok=True)

    def all_keys(self, prefix: str) -> list[str]:
        """See `Journal`."""
        files = self._root.glob(f"{directory_name(prefix)}*.json")
        return sorted(id_of(path.with_suffix("")) for path in files)

    def _path(self, key: str) -> Path:
        return self._root / f"{directory_name(key)}.json"


def body_of(journal: Journal, key: str) -> dict[str, Any]:
    """The fields of an entry, without the key that is stored with them."""
    return {name: value for name, value in journal.get(key).items() if name != "key"}
