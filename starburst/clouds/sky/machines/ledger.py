"""The machines of one controller as they are noted: which there are, and which of them take runs."""

from __future__ import annotations

from starburst.clouds.sky.journal import Journal, MachineEntry, drop_machine, load_machines, save_machine
from starburst.clouds.sky.machines.naming import Naming

#: Scheduler seconds that a machine that is over is remembered, in case nobody stored its end.
KEPT_S = 86_400.0


class MachineRegistry:
    """Machines by id. A change counts once it is saved."""

    def __init__(self, notes: Journal, naming: Naming, now: float) -> None:
        self._notes = notes
        self._naming = naming
        self.machines = load_machines(notes)
        old = [note for note in self.machines.values() if note.is_over and note.told_by() < now - KEPT_S]
        for note in old:
            drop_machine(notes, self.machines.pop(note.id))

    def save(self, note: MachineEntry) -> None:
        """Note a machine."""
        self.machines[note.id] = note
        save_machine(self._notes, note)

    def takes_runs(self, instance_id: str) -> bool:
        """Whether a machine is up and meant to stay."""
        note = self.machines.get(instance_id)
        return note is not None and note.ready and not note.ending and not note.is_over

    def up(self) -> list[MachineEntry]:
        """Machines that take runs."""
        return [note for note in self.machines.values() if self.takes_runs(note.id)]

    def intended(self) -> dict[str, MachineEntry]:
        """What was asked for and may be there, by its cluster's name."""
        return {self._naming.cluster(note.id): note for note in self.machines.values() if not note.is_over}
