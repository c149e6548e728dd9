"""The scheduler dies, and its disk fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.storm.weather import chance, every

if TYPE_CHECKING:
    from tests.storm.run import Storm

chance("crash-before-commit", 0.01, "killed before a step is committed")
chance("crash-after-commit", 0.01, "killed after a step is committed, before its actions begin")
chance("crash-before-done", 0.02, "killed after an action, before it is marked as done")
chance("crash-after-done", 0.02, "killed after an action is marked as done")
chance("disk-full", 0.003, "a write of the store finds the disk full")
chance("disk-error", 0.003, "a write of the store meets an I/O error")
chance("store-locked", 0.003, "another writer holds the store")
chance("fsync-fails", 0.005, "a commit fails")


@every("killed", 3.0, "the scheduler is killed at any moment")
async def killed(storm: Storm) -> bool:
    """It comes back by itself."""
    if not storm.process.is_up:
        return False
    storm.process.kill()
    return True
