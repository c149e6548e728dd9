"""Copies of the database: taken while others write to it, and put back."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, suppress
from errno import ENOSPC
from pathlib import Path

from starburst.store.engine import others
from starburst.store.errors import StoreError
from starburst.store.store import Store
from starburst.store.upkeep.copying import copy_store
from starburst.store.upkeep.moving import take_back
from starburst.store.upkeep.restored import note_restored

#: Files that SQLite keeps beside a database in WAL mode.
BESIDE = ("-wal", "-shm")
#: Numbers that a restored store leaves out beyond the highest known one: they may name machines rented since.
SKIPPED = 1000
#: As many of decisions, of which a busy cluster makes more: who follows the log passes over numbers that are
#: not larger than the last one that it was told.
SKIPPED_DECISIONS = 1_000_000


def back_up(database: Path, target: Path) -> None:
    """Copy a database into a new file of mode 0600: one consistent state, also while others write.

    Raises:
        StoreError: there is no database, the target exists or cannot be written, or the copy is not intact.
    """
    if not database.exists():
        raise StoreError(f"{database}: there is no store yet; nothing to back up")
    _make(target)
    try:
        reading = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        with closing(reading) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # the copy is one file
        check(target)
    except (sqlite3.Error, OSError) as error:
        discard(target)
        raise StoreError(f"{target}: the copy failed ({error}); free room, or name another place") from None
    except StoreError:
        discard(target)
        raise


def back_up_server(url: str, target: Path) -> None:
    """Copy the store in a PostgreSQL database into a new SQLite file, as `back_up` makes it.

    Raises:
        StoreError: the database is away, or the target exists or cannot be written.
    """
    _make(target)
    try:
        with Store.open(url) as source, Store.open(target) as copy:
            copy_store(source, copy)
        with closing(sqlite3.connect(target)) as conn:
            conn.execute("PRAGMA journal_mode = DELETE")  # the copy is one file
        check(target)
    except (sqlite3.Error, StoreError) as error:
        discard(target)
        raise StoreError(f"{target}: the copy failed: {error}") from None


def restore_server(staged: Path, url: str) -> None:
    """Put a staged copy in the place of what a PostgreSQL database holds, in one transaction.

    Raises:
        StoreError: the database is away, or other processes of Starburst use it.
    """
    with Store.open(staged) as source, Store.open(url) as target:
        with target.read() as conn:
            there = others(conn)
        if there:
            raise StoreError(f"the store: {there} connections of other Starbursts use it; stop them first")
        copy_store(source, target)


def _make(target: Path) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        mend = "free room, or name another place" if error.errno == ENOSPC else "name a new file"
        raise StoreError(f"{target}: cannot be made ({error.strerror}); {mend}") from None


def check(file: Path) -> None:
    """Read all of a file and check that it is an intact store.

    Raises:
        StoreError: it is not.
    """
    if not file.exists():
        raise StoreError(f"{file}: there is no such file; name one that starburst backup made")
    if not file.is_file():
        kind = "a directory" if file.is_dir() else "a device, a socket or a pipe"
        raise StoreError(f"{file}: is {kind}; name a file that starburst backup made")
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as conn:
            (found,) = conn.execute("PRAGMA quick_check(1)").fetchone()
            conn.execute("SELECT count(*) FROM jobs").fetchone()
    except sqlite3.Error as error:
        raise StoreError(
            f"{file}: is no store of Starburst ({error}); name one that starburst backup made"
        ) from None
    if found != "ok":
        raise StoreError(f"{file}: is damaged ({found}); take another backup")


def launches_of(where: Path | str) -> int:
    """How many machines a store, a file or a database, has rented; 0 if that cannot be read."""
    return _given_out(where, "launches")


def _given_out(where: Path | str, what: str) -> int:
    """The last number that a store has given out, of the core's facts; 0 if that cannot be read."""
    if isinstance(where, str):
        with suppress(StoreError), Store.open(where) as store:
            return int((store.fact("facts") or {}).get(what, 0))
        return 0
    with (
        suppress(sqlite3.Error, ValueError),
        closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as conn,
    ):
        found = conn.execute("SELECT body FROM facts WHERE key = 'facts'").fetchone()
        return 0 if found is None else int(json.loads(found[0]).get(what, 0))
    return 0


def stage(backup: Path, database: Path, given: int = 0) -> Path:
    """Copy a backup to beside a database, ready to take its place; the backup is only read.

    In the copy, the next machines and decisions have numbers that none since the backup can have, starts that
    it owes are left out (`restored.py`), and a file that `migrate-store` left takes jobs again. `given`: the
    highest number of a machine that is known to be given out; the database may know of more.

    Raises:
        StoreError: the copy cannot be written, or is not intact.
    """
    staged = database.with_name(f"{database.name}.restoring")
    discard(staged)
    back_up(backup, staged)
    try:
        with Store.open(staged) as store:
            facts = store.fact("facts") or {}
            launches = max(facts.get("launches", 0), launches_of(database), given)
            decided = max(facts.get("decided", 0), _given_out(database, "decided")) + SKIPPED_DECISIONS
            store.set_fact("facts", {**facts, "launches": launches + SKIPPED, "decided": decided})
            note_restored(store)
            take_back(store)
    except StoreError:
        discard(staged)
        raise
    return staged


def swap(staged: Path, database: Path, aside: Path) -> None:
    """Put a staged copy in a database's place; what was there goes `aside`. No one may use it meanwhile.

    A kill leaves one of both in the place, unless what was there is damaged, or open elsewhere.
    """
    if not _link_whole(database, aside):
        for suffix in ("", *BESIDE):
            with suppress(FileNotFoundError):
                os.replace(f"{database}{suffix}", f"{aside}{suffix}")
    os.replace(staged, database)


def _link_whole(database: Path, aside: Path) -> bool:
    """Give a database a second name, `aside`; False if some of it is, or may be, in the files beside it."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{database}?mode=rw", uri=True)) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if any(Path(f"{database}{suffix}").exists() for suffix in BESIDE):
        return False
    try:
        os.link(database, aside)
    except OSError:  # there is none, or its file system has no links
        return False
    return True


def discard(file: Path) -> None:
    """Remove a copy, and what SQLite keeps beside it."""
    for suffix in ("", "-journal", *BESIDE):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
