"""The journal: durable facts by key, each written before the effect that it announces.

A crash can happen between any two lines. What was journaled before a request was sent is found at the next
start, so the request is completed instead of repeated. `machines/entry.py` and `runs/entry.py` define what is
written; the stored field names are a format and do not change.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from starburst.runs.fence import LeaderFence
from starburst.runs.files import directory_name, id_of
from starburst.runs.supervisor.files import read_json, write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Directory of the journal; that of a leader has its epoch behind a hyphen.
NAME = "notes"

#: Types of most fields of entries, which are stored as they are.
PLAIN = frozenset({str, int, float, bool, type(None), dict})


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


def journal_root(root: Path) -> Path:
    """The directory of the journal below that of the SkyPilot cloud: that of the last leader."""
    return max([root / NAME, *root.glob(f"{NAME}-*")], key=_epoch)


def claimed(root: Path, fence: LeaderFence) -> FileJournal:
    """The journal of the process that leads.

    The name of its directory has the epoch, and each leader renames it. So whatever an earlier leader still
    writes, even one that was stopped in the middle of that, goes nowhere and raises FileNotFoundError.

    Raises:
        NotCertainError: a later leader has it. A higher epoch of one that certainly leads no more is of a
            store that was replaced by an older backup, and is taken over.
    """
    epoch = fence.epoch()
    mine = root / f"{NAME}-{epoch}"
    while epoch:
        last = journal_root(root)
        if _epoch(last) > epoch:
            fence.check()
        if last == mine:
            break
        try:
            last.rename(mine)
        except FileNotFoundError:
            if journal_root(root) == last:  # there is none yet
                break
    return FileJournal(mine if epoch else journal_root(root))


def _epoch(journal: Path) -> int:
    number = journal.name.removeprefix(f"{NAME}-")
    return int(number) if number.isdecimal() else 0


def body_of(journal: Journal, key: str) -> dict[str, Any]:
    """The fields of an entry, without the key that is stored with them."""
    return {name: value for name, value in journal.get(key).items() if name != "key"}


def fields_of(entry: DataclassInstance) -> dict[str, Any]:
    """What is stored of a dataclass: its fields, and those of dataclasses in them.

    Dictionaries are not copied: the deep copies that `asdict` makes take half the time of writing an entry.
    """
    found: dict[str, Any] = {
        name: value if type(value := getattr(entry, name)) in PLAIN else _stored(value)
        for name in _names(type(entry))
    }
    return found


def _stored(value: Any) -> Any:
    if isinstance(value, list):
        return [_stored(each) for each in value]
    return fields_of(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
