"""Removes directories of ended runs of the embedded sites and of ended instances of the embedded cloud."""

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

#: Prefix of directories under removal: after a crash a partly removed run is not mistaken for a run.
DOOMED = ".pruned-"
#: Number of directories after which the event loop may run other tasks.
BREATH = 100
#: Timeout in seconds for removing a tree that is too deep for Python.
DEEP_S = 60.0


async def prune(home: Home, before: float, jobs: Collection[str], machines: Collection[str]) -> None:
    """Remove runs and instances that ended before this wall time and do not belong to `jobs` or `machines`.

    Those are the ones that the store counts as alive: their directories stay even if they record an end,
    because the scheduler has not processed it yet. Checkpoints belong to the users and stay too.
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
    """Whether a directory was removed; an error is logged, and other directories are still removed."""
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
    with suppress(OSError):  # not empty: other runs of this job, or instances of this store
        doomed.parent.rmdir()
