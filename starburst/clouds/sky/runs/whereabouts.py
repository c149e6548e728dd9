"""On which machine a task runs, as it is journaled, and how to log in there."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.clouds.sky.access.ports import Access, SkyUnreachableError
from starburst.clouds.sky.journal import Journal
from starburst.clouds.sky.machines.entry import load_machines
from starburst.clouds.sky.machines.naming import Naming
from starburst.runs.files import directory_name


@dataclass(frozen=True, slots=True)
class TaskLogin:
    """A task of a machine: the transport's name of the machine, and the machine's name of the task."""

    node: str
    access: Access
    task: str


def login_of(journal: Journal, naming: Naming, job: str, attempt: int, rank: int) -> TaskLogin:
    """Where a task of a run is.

    Raises:
        SkyUnreachableError: its machine is not up, or not known.
    """
    ranks = (journal.get(f"run/{job}/{attempt}") or {}).get("ranks", [])
    machine = load_machines(journal).get(ranks[rank]["where"]) if rank < len(ranks) else None
    if machine is None or machine.is_over:
        raise SkyUnreachableError("its machine is not known, or is gone")
    node = int(ranks[rank].get("node", 0))
    known = [machine.access, *machine.workers]
    access = known[node] if node < len(known) else None
    if access is None:
        raise SkyUnreachableError(f"{machine.id}: SkyPilot does not say how to log in")
    cluster = naming.cluster(machine.id)
    return TaskLogin(
        f"{cluster}-node{node}" if node else cluster, access, f"{directory_name(job)}/{attempt}/{rank}"
    )
