"""Translates errors of SQLite: busy, disk full, out of reach or damaged.

SQLite's result codes are https://www.sqlite.org/rescode.html; Python 3.10 provides only their messages.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from starburst.store.databases.lock_holder import holder
from starburst.store.errors import BusyError, DamagedError, DiskFullError, StoreError, UnusableError

#: Message of the triggers in a file whose contents were moved to another database.
MOVED = "this store was moved to another database: run the command again"
#: Messages of SQLITE_BUSY and SQLITE_LOCKED; SQLITE_FULL; SQLITE_CORRUPT and SQLITE_NOTADB.
LOCKED = ("database is locked", "database table is locked")
FULL = ("database or disk is full",)
DAMAGED = ("database disk image is malformed", "file is not a database")
#: Messages of SQLITE_IOERR, CANTOPEN, READONLY, PERM, PROTOCOL: quota, open files, failing disk.
OUT_OF_REACH = (
    "disk I/O error",
    "unable to open database file",
    "attempt to write a readonly database",
    "access permission denied",
    "locking protocol",
)
#: Bytes of free space below which a disk counts as full: SQLite may fail to extend its WAL index (-shm).
LEAST_ROOM = 64 * 1024


def trouble(error: BaseException, path: Path | None) -> StoreError | None:
    """The store error for an error of the driver; None for other errors, such as of a statement."""
    where = "the store" if path is None else str(path)
    said = str(error)
    if isinstance(error, MemoryError):
        return UnusableError(f"{where}: no memory is left; end something, and ask again")
    if not isinstance(error, sqlite3.Error):
        return None
    if said == MOVED:
        return UnusableError(f"{where}: {said}")
    if said.startswith(LOCKED):
        return BusyError(f"{where}: {_busy(path)}; wait for that to end, and ask again")
    if said.startswith(DAMAGED):
        mend = "stop what uses it, then starburst restore a backup, or move it away, which forgets its jobs"
        return DamagedError(f"{where}: is damaged ({said}); {mend}")
    if said.startswith((*FULL, *OUT_OF_REACH)):
        full = "" if path is None else no_room(path)
        if full or said.startswith(FULL):
            return DiskFullError(f"{where}: {full or said}; free some room there, and ask again")
        mend = "look at the disk, its quota, and whose the file is; the database itself may be good"
        return UnusableError(f"{where}: cannot be used now ({said}); {mend}")
    return None


def no_room(path: Path) -> str:
    """The reason why a file system cannot be written; "" if it can, or if its status cannot be read."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return ""
    if disk.f_flag & os.ST_RDONLY:
        return f"the file system is read-only: {mount_point(path)}"
    free = disk.f_bavail * disk.f_frsize
    if free >= LEAST_ROOM:
        return ""
    return f"the disk is full, {free / 1024:.0f} KiB are left on {mount_point(path)}"


def mount_point(path: Path) -> Path:
    """The mount point of a file."""
    place = path.absolute().parent
    return next((top for top in (place, *place.parents) if os.path.ismount(top)), place)


def _busy(path: Path | None) -> str:
    who = None if path is None else holder(path)
    return "another process is writing to it" if who is None else f"is being written to by {who}"
