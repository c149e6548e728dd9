"""Checks periodically that home and database were not moved, replaced or damaged under the scheduler."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from starburst.app.daemon.home_lock import HomeLock
from starburst.app.daemon.shortages import ShortageRetry
from starburst.app.errors import UserError
from starburst.store.databases.sqlite import damage
from starburst.store.databases.sqlite_failures import no_room
from starburst.store.errors import DamagedError, DiskFullError, UnusableError

#: Wall seconds between checks of the lock, the free space and the database's file.
LOOK_S = 1.0
#: Least wall seconds between integrity checks of the database, and least pause as a multiple of the duration
#: of the last check, so that checks take at most 1 % of the time.
READ_S = 60.0
REST = 100.0


async def keep_watch(
    held: HomeLock,
    database: Path,
    there: os.stat_result,
    patience: ShortageRetry,
    look_through: Callable[[Path], str] = damage,
) -> None:
    """Check until cancelled; a full disk is reported before a write fails.

    `there` is the status of the database's file when it was opened.

    Raises:
        UserError: the home or the database was moved, removed or replaced.
        DamagedError: the database is damaged.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + READ_S
    while True:
        await asyncio.sleep(LOOK_S)
        held.look()
        _look_for_room(database, patience)
        if not _is(database, there):
            raise UserError(
                f"{database}: was moved, removed or replaced while starburst ran; "
                "what was written since then is not in it: put back the file that was there"
            )
        if loop.time() >= due:
            began = time.monotonic()
            await _read(database, look_through)
            due = loop.time() + max(READ_S, REST * (time.monotonic() - began))


async def watch_home(held: HomeLock, home: Path, patience: ShortageRetry) -> None:
    """`keep_watch` over a home whose store is elsewhere.

    Raises:
        UserError: the home was moved or removed.
    """
    while True:
        await asyncio.sleep(LOOK_S)
        held.look()
        _look_for_room(home / "store.url", patience)


def _look_for_room(database: Path, patience: ShortageRetry) -> None:
    full = no_room(database)
    if full:
        patience.notes("disk", DiskFullError(f"{database}: {full}; free some room there"))
    else:
        patience.over("disk")


async def _read(database: Path, look_through: Callable[[Path], str]) -> None:
    try:
        found = await asyncio.to_thread(look_through, database)
    except (UnusableError, RuntimeError):  # busy, or no more threads: the next check tries again
        return
    if found:
        raise DamagedError(
            f"{database}: is damaged ({found}); starburst restore a backup, or move it away, which forgets "
            "its jobs; those that run go on meanwhile"
        )


def _is(path: Path, what: os.stat_result) -> bool:
    """Whether a path still names this file; true if it cannot be examined now."""
    try:
        return os.path.samestat(path.stat(), what)
    except FileNotFoundError:
        return False
    except OSError:
        return True
