"""Deadlines for ends of tasks: a machine could say forever that a task lives, or has more output."""

from __future__ import annotations

from starburst.clouds.sky.access.answers import TaskState

#: Wall seconds: beyond its grace for a task that was told to end; and for the output of one that is over.
OVERDUE_S, DRAIN_S = 300.0, 600.0


class TaskDeadlines:
    """When tasks of one controller were told to end, and when they were over, in this process.

    Times are wall seconds.
    """

    def __init__(self) -> None:
        self._stop_requested: dict[str, float] = {}
        self._over: dict[str, float] = {}

    def stop_requested(self, task: str, now: float) -> None:
        """Record that a machine is asked to end a task."""
        self._stop_requested.setdefault(task, now)

    def is_overdue(self, task: str, state: TaskState, grace_s: float | None, now: float) -> bool:
        """Whether a task lives that should have been killed long ago."""
        since = self._stop_requested.get(task)
        return not state.over and since is not None and now - since > (grace_s or 0.0) + OVERDUE_S

    def is_through(self, task: str, state: TaskState, now: float) -> bool:
        """Whether a task is over and its output is here, or was waited for long enough."""
        if not state.over:
            return False
        since = self._over.setdefault(task, now)
        return not (state.more and state.log) or now - since > DRAIN_S

    def forget(self, task: str) -> None:
        """Drop what is recorded of a task: its run is over."""
        self._stop_requested.pop(task, None)
        self._over.pop(task, None)
