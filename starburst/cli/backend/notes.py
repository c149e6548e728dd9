"""The clock of the home on this machine, and notes on stderr about its scheduler."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from starburst.app.config.home import Home
from starburst.app.daemon.home_lock import LockHolder
from starburst.cli.service.server import chosen

if TYPE_CHECKING:
    from starburst.store.store import Store


def now_of(store: Store) -> float:
    """The present on the scheduler's clock."""
    from starburst.store.listings import queries  # noqa: PLC0415 - slow to import

    return queries.pace(store).scheduler_time(time.time())


def note_if_forgotten() -> None:
    """Print a note if SkyPilot has lost running machines of this home."""
    home = Home.default()
    if chosen.get() or not (home.cloud / "sky").is_dir():
        return
    from starburst.app.doctor.forgotten_machines import (  # noqa: PLC0415 - where machines were rented only
        MEND,
        forgotten,
        told,
    )

    if lost := forgotten(home):
        print(f"note: {told(lost)}; {MEND}", file=sys.stderr)


def note_if_down(store: Store) -> None:
    """Print a note if no scheduler runs, or stands by: listings do not change, requests wait in the store.

    Of several replicas the note names the one that leads.
    """
    from starburst.app.leadership.status import (  # noqa: PLC0415 - slow to import
        is_shared,
        leader_of,
        scheduler_of,
    )

    home = Home.default()
    running, leader = scheduler_of(home, store), leader_of(store)
    note_if_no_leader(home, running)
    if leader is not None:
        print(f"note: {leader.holder} leads (epoch {leader.epoch})", file=sys.stderr)
    elif running is not None and is_shared(store):
        print("note: no starburst leads now; one that stands by takes over within 15 s", file=sys.stderr)


def note_if_no_leader(home: Home, running: LockHolder | None) -> None:
    """Print a note if no scheduler runs in a home, or if it stands by."""
    if running is None:
        print(f"note: no starburst runs in {home.root}; start it with: starburst up", file=sys.stderr)
    elif running.leader:
        print(f"note: this starburst stands by; {running.leader} leads the cluster", file=sys.stderr)
