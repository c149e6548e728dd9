"""Numbers of machines that a home has seen rented: a store that is put back there gives out none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from starburst.app.config.home import Home
from starburst.clouds.machine_dir import machines_under
from starburst.clouds.sky.journal import FileJournal, journal_root
from starburst.clouds.sky.machines.ended import noted_machines
from starburst.store.upkeep.backup import launches_of


def highest_number(home: Home) -> int:
    """The highest one, by the home's store and what its clouds have noted; 0 if none is known."""
    numbers = (int(found[1]) for id_ in _noted(home) if (found := re.fullmatch(r"i-(\d+)", id_)))
    return max(launches_of(home.store), *numbers, 0)


def _noted(home: Home) -> Iterator[str]:
    yield from (machine.intent for machine in machines_under(home.machines))
    root = journal_root(home.cloud / "sky")
    if root.is_dir():
        yield from noted_machines(FileJournal(root))
