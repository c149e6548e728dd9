"""SkyPilot's autostop on this machine, which is to see no idleness while the machine is leased.

SkyPilot's skylet looks into its job table each minute: a machine without a job there for some minutes is
taken down. The keepalive is such a job (`machines/keepalive.py`); but where the machine's Ray has died,
SkyPilot calls it failed, though the machine works. So each renewal of the lease also sets the time at which
the skylet last saw work, in the database where the skylet keeps it, to the end of the lease.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress

#: Seconds for the database to be free.
BUSY_S = 1.0
#: Where the skylet keeps the time, and under which key.
DATABASE, KEY = ".sky/skylet_config.db", "autostop_last_active_time"


def postpone(until: float) -> None:
    """Have the minutes of idleness counted from `until` on, epoch seconds; does nothing without a skylet."""
    try:
        import sqlite3  # noqa: PLC0415 - a machine's Python may have been built without it
    except ImportError:
        return
    path = os.path.join(os.environ.get("SKY_RUNTIME_DIR") or os.path.expanduser("~"), DATABASE)
    with (
        suppress(sqlite3.Error),  # the keepalive stands all the same
        closing(sqlite3.connect(f"file:{path}?mode=rw", timeout=BUSY_S, uri=True)) as database,
        database,
    ):
        database.execute("UPDATE config SET value = ? WHERE key = ?", (str(until), KEY))
