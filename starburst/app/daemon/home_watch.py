"""Looks, while the scheduler runs, whether the home and the store under it are still what they were."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from starburst.app.daemon.home_lock import Held
from starburst.app.daemon.shortages import Patience
from starburst.app.errors import UserError
from starburst.store.engine import damage
from starburst.store.errors import DamagedError, DiskFullError, UnusableError
from starburst.store.failures import no_room

#: Wall seconds between looks at whose the home is.
LOOK_S = 1.0
#: Wall seconds between looks through the whole database, and how many times as long as one takes: a hundredth
#: of a disk at most.
READ_S = 60.0
REST = 100.0


async def keep_watch(
    held: Held,
    database: Path,
    there: os.stat_result,
    patience: Patience,
    look_through: Callable[[Path], str] = damage,
) -> None:
    """Look again and again, until cancelled; a disk that fills is said before anything has to be written.

    `there` is the database's file as it was opened.

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


def _look_for_room(database: Path, patience: Patience) -> None:
    full = no_room(database)
    if full:
        patience.notes("disk", DiskFullError(f"{database}: {full}; free some room there"))
    else:
        patience.over("disk")


async def _read(database: Path, look_through: Callable[[Path], str]) -> None:
    try:
        found = await asyncio.to_thread(look_through, database)
    except (UnusableError, RuntimeError):  # busy, or no more threads: another time
        return
    if found:
        raise DamagedError(
            f"{database}: is damaged ({found}); put a good copy in its place or move it away, which forgets "
            "its jobs; those that run go on meanwhile"
        )


def _is(path: Path, what: os.stat_result) -> bool:
    """Whether a file is still there; one that cannot be asked for now may well be."""
    try:
        return os.path.samestat(path.stat(), what)
    except FileNotFoundError:
        return False
    except OSError:
        return True
