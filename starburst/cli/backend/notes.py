"""The clock of the home on this machine, and notes on stderr about its scheduler."""

from __future__ import annotations

import sys
import time

from starburst.app.config.home import Home
from starburst.app.doctor.unknown_machines import MEND, forgotten, told
from starburst.cli.service.server import chosen
from starburst.store.listings import queries
from starburst.store.store import Store


def now_of(store: Store) -> float:
    """The present on the scheduler's clock."""
    return queries.pace(store).scheduler_time(time.time())


def note_if_forgotten() -> None:
    """Print a note if SkyPilot has lost running machines of this home."""
    if not chosen.get() and (lost := forgotten(Home.default())):
        print(f"note: {told(lost)}; {MEND}", file=sys.stderr)


def note_if_down() -> None:
    """Print a note if no scheduler runs, or stands by: listings do not change, requests wait in the store."""
    home = Home.default()
    running = home.scheduler()
    if running is None:
        print(f"note: no starburst runs in {home.root}; start it with: starburst up", file=sys.stderr)
    elif running.leader:
        print(f"note: this starburst stands by; {running.leader} leads the cluster", file=sys.stderr)
