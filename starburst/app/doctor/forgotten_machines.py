"""Running machines that SkyPilot does not know any more, as they are journaled."""

from __future__ import annotations

from starburst.app.config.home import Home
from starburst.clouds.sky.journal import FileJournal, journal_root
from starburst.clouds.sky.machines.entry import MachineEntry, load_machines

#: The remedy.
MEND = "they go on, and end without SkyPilot; see whether its database was lost, and what else ran there"


def forgotten(home: Home) -> list[str]:
    """The ids of these machines."""
    return sorted(note.id for note in notes_of_running(home) if note.forgotten)


def told(ids: list[str]) -> str:
    """The finding as a sentence."""
    return f"SkyPilot has forgotten {', '.join(ids)}"


def notes_of_running(home: Home) -> list[MachineEntry]:
    """The journal's entries of machines that run."""
    root = journal_root(home.cloud / "sky")
    try:
        notes = load_machines(FileJournal(root)).values() if root.is_dir() else ()
    except OSError:  # another user's home
        return []
    return [note for note in notes if note.ready and not note.is_over]
