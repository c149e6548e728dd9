"""Copies of the database: taken while others write to it, and put back."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from starburst.store.errors import StoreError

#: Files that SQLite keeps beside a database in WAL mode.
BESIDE = ("-wal", "-shm")


def back_up(database: Path, target: Path) -> None:
    """Copy a database into a new file of mode 0600: one consistent state, also while others write.

    Raises:
        StoreError: there is no database, the target exists or cannot be written, or the copy is not intact.
    """
    if not database.exists():
        raise StoreError(f"{database}: there is no store yet; nothing to back up")
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StoreError(f"{target}: cannot be made ({error.strerror}); name a new file") from None
    try:
        reading = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        with closing(reading) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # the copy is one file
        check(target)
    except (sqlite3.Error, OSError) as error:
        _remove(target)
        raise StoreError(f"{target}: the copy failed ({error}); free room, or name another place") from None
    except StoreError:
        _remove(target)
        raise


def check(file: Path) -> None:
    """Read all of a file and check that it is an intact store.

    Raises:
        StoreError: it is not.
    """
    if not file.is_file():
        raise StoreError(f"{file}: there is no such file; name one that starburst backup made")
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


def put_back(backup: Path, database: Path, aside: Path) -> None:
    """Put a copy of a backup in a database's place; what was there goes `aside`. No one may use it meanwhile.

    Raises:
        StoreError: the backup is not intact, or a file cannot be written.
    """
    check(backup)
    fresh = database.with_name(f"{database.name}.restoring")
    _remove(fresh)
    back_up(backup, fresh)
    for suffix in ("", *BESIDE):
        with suppress(FileNotFoundError):
            os.replace(f"{database}{suffix}", f"{aside}{suffix}")
    os.replace(fresh, database)


def _remove(file: Path) -> None:
    for suffix in ("", "-journal", *BESIDE):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
