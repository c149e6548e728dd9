"""The ends of machines that ended more than a day ago, a key of the journal per day.

A store that was put back to a backup has such machines as running; their bills end when they did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby

import structlog

from starburst.clouds.sky.journal import Journal
from starburst.clouds.sky.machines.entry import MachineEntry, drop_machine, load_machines

log = structlog.get_logger()

#: Scheduler seconds for which the whole entry of an ended machine is kept: late launches are known by it.
DAY_S = 86_400.0
#: Days for which its end is kept: longer than the window of any cap.
KEPT_DAYS = 62
#: What is kept of its entry.
FIELDS = (
    *("id", "offer", "spot", "asked_at", "nodes"),
    *("launched_at", "ended_at", "lost_at", "ends", "preempted", "failed", "sold_out"),
)


def load_recent_machines(journal: Journal, now: float, in_books: Collection[str]) -> list[MachineEntry]:
    """The entries of machines that are not over, ended within a day, or have not ended by the store's books.

    Of others the journal keeps only the ends. `now`: scheduler seconds.
    """
    found = load_machines(journal)
    ended = [entry for entry in found.values() if entry.is_over and entry.id not in in_books]
    old = {entry.id: entry for entry in ended if entry.over_since() < now - DAY_S}
    recent = [entry for entry in found.values() if entry.id not in old]
    recent += _ends_of(journal, [id_ for id_ in in_books if id_ not in found])
    try:
        _note_ends(journal, old.values())
    except OSError as error:
        log.warning("old-ends-not-noted", error=str(error))
        return recent
    for entry in old.values():
        drop_machine(journal, entry)
    for key in journal.all_keys("ended/"):
        if int(key.removeprefix("ended/")) < now // DAY_S - KEPT_DAYS:
            journal.drop(key)
    return recent


def noted_machines(journal: Journal) -> list[str]:
    """The ids of all machines that the journal knows."""
    ended = [id_ for key in journal.all_keys("ended/") for id_ in journal.get(key)["machines"]]
    return [*(key.removeprefix("machine/") for key in journal.all_keys("machine/")), *ended]


def _note_ends(journal: Journal, entries: Iterable[MachineEntry]) -> None:
    for day, some in groupby(sorted(entries, key=MachineEntry.over_since), _day):
        key = f"ended/{day}"
        noted = (journal.get(key) or {"machines": {}})["machines"]
        noted |= {entry.id: {name: getattr(entry, name) for name in FIELDS} for entry in some}
        journal.put(key, {"key": key, "machines": noted})


def _ends_of(journal: Journal, instance_ids: Collection[str]) -> list[MachineEntry]:
    """The entries of those of these machines whose ends were noted."""
    days = [journal.get(key)["machines"] for key in journal.all_keys("ended/")] if instance_ids else []
    found = {id_: MachineEntry(**day[id_]) for day in days for id_ in instance_ids if id_ in day}
    return list(found.values())


def _day(entry: MachineEntry) -> int:
    return int(entry.over_since() // DAY_S)
