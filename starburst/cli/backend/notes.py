"""Facts about the home on this machine: its clock, and notes for people on stderr about its scheduler."""

from __future__ import annotations

import sys
import time

from starburst.app.config.home import Home
from starburst.app.doctor.unknown_machines import MEND, forgotten, told
from starburst.cli.service.server import chosen
from starburst.store import queries
from starburst.store.store import Store


def now_of(store: Store) -> float:
    """The present on the scheduler's clock."""
    return queries.pace(store).scheduler_time(time.time())


def note_if_forgotten() -> None:
    """Say so when SkyPilot has lost machines of this home that run."""
    if not chosen.get() and (lost := forgotten(Home.default())):
        print(f"note: {told(lost)}; {MEND}", file=sys.stderr)


def note_if_down() -> None:
    """Say so when no scheduler runs: what is shown stands still, what is asked for waits in the store."""
    home = Home.default()
    if home.scheduler_pid() is None:
        print(f"note: no starburst runs in {home.root}; start it with: starburst up", file=sys.stderr)
