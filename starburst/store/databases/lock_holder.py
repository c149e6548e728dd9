"""The process that holds the write lock of a SQLite file, by the kernel's lock table.

In WAL mode a writer locks byte 120 of the file's -shm (https://www.sqlite.org/walformat.html#locks); an
exclusive lock covers bytes of the database file from 2^30 on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

TABLE = Path("/proc/locks")
#: Looks at the table until the lock is in it.
LOOKS = 3
WAL_WRITE_BYTE = 120
PENDING_BYTE = 1 << 30


def holder(database: Path) -> str | None:
    """The holder, such as "pid 12 (sqlite3)"; None if the lock is free or /proc/locks cannot be read."""
    places = {_inode(Path(f"{database}-shm")): WAL_WRITE_BYTE, _inode(database): PENDING_BYTE}
    places.pop(None, None)
    # The kernel gives the table out a page at a time: locks that come and go meanwhile may hide others.
    return next(filter(None, (_in_table(places) for _ in range(LOOKS))), None)


def _in_table(places: Mapping[str | None, int]) -> str | None:
    try:
        lines = TABLE.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        # "1: POSIX ADVISORY WRITE 12 08:01:2345 120 120"; waiting processes have "->" after the number
        if len(fields) != 8 or fields[3] != "WRITE":
            continue
        byte = places.get(fields[5])
        end = float("inf") if fields[7] == "EOF" else int(fields[7])
        if byte is not None and (end >= byte if byte == PENDING_BYTE else int(fields[6]) <= byte <= end):
            return _named(int(fields[4]))
    return None


def _inode(path: Path) -> str | None:
    """A file in the notation of the lock table: device numbers and inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _named(pid: int) -> str:
    if pid == os.getpid():
        return "this process"
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return f"pid {pid}" if pid > 0 else "another process"  # 0 or negative: in another PID namespace
    shown = "".join(c if c.isprintable() else "?" for c in name)
    return f"pid {pid} ({shown})"
