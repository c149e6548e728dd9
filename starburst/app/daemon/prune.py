"""What is long over leaves the disk: runs of the embedded sites, and machines of the embedded cloud."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import structlog

from starburst.app.config.home import Home
from starburst.clouds.machine_dir import MachineDir, machines_under
from starburst.runs.attempt_dir import AttemptDir, attempts_under

log = structlog.get_logger()

#: Names of what is being removed begin so: a kill on the way leaves no half of a run that looks like a run.
DOOMED = ".pruned-"
#: Directories between two breaths of the event loop.
BREATH = 100
#: Seconds for a tree that is too deep for Python.
DEEP_S = 60.0


async def prune(home: Home, before: float, jobs: Collection[str], machines: Collection[str]) -> None:
    """Remove what ended before this wall time, unless its job or machine is one of those that go on.

    What the store still counts as alive stays, whatever its directory says: the end was not heard of yet.
    Checkpoints stay, too; they are the users' own.
    """
    runs = [root for root in (home.cluster, home.cloud / "runs") if root.is_dir()]
    removed = 0
    for root in (*runs, home.machines):
        for left in root.glob(f"[!.]*/{DOOMED}*"):
            _tried(_drop, left)
    for step, attempt in enumerate(attempt for root in runs for attempt in attempts_under(root)):
        if attempt.key[0] not in jobs and _is_over(attempt, before):
            removed += _tried(_remove, attempt.path)
        if step % BREATH == 0:
            await asyncio.sleep(0)
    for machine in machines_under(home.machines):
        if machine.intent not in machines and _has_ended(machine, before):
            removed += _tried(_remove, machine.path)
    if removed:
        log.info("pruned", directories=removed)


def _is_over(attempt: AttemptDir, before: float) -> bool:
    is_old = _written(attempt.path / "end.json", before)
    return is_old and not any(rank.alive() for rank in attempt.ranks())


def _has_ended(machine: MachineDir, before: float) -> bool:
    return any(_written(machine.path / fact, before) for fact in ("ended.json", "failed.json"))


def _written(fact: Path, before: float) -> bool:
    with suppress(FileNotFoundError):
        return fact.stat().st_mtime < before
    return False


def _tried(remove: Callable[[Path], None], directory: Path) -> bool:
    """Whether it was removed. What one job left behind keeps nobody else's there."""
    try:
        remove(directory)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("prune-failed", directory=str(directory), error=str(error))
        return False
    return True


def _remove(directory: Path) -> None:
    doomed = directory.with_name(f"{DOOMED}{directory.name}")
    directory.rename(doomed)
    _drop(doomed)


def _drop(doomed: Path) -> None:
    try:
        shutil.rmtree(doomed)
    except RecursionError:  # jobs can nest directories deeper than Python follows; rm does
        subprocess.run(["rm", "-rf", "--", str(doomed)], check=True, timeout=DEEP_S)
    with suppress(OSError):  # there are other runs of this job, or machines of this store
        doomed.parent.rmdir()
