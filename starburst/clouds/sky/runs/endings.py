"""How long tasks take to end: a machine may say for ever that one lives, or that it has more output."""

from __future__ import annotations

from starburst.clouds.sky.access.answers import TaskState

#: Wall seconds: beyond its grace for a task that was told to end; for the output of one that is over.
OVERDUE_S, DRAIN_S = 300.0, 600.0


class TaskDeadlines:
    """Of all tasks of one controller. What is remembered is of this life of it."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._over: dict[str, float] = {}

    def told(self, task: str, now: float) -> None:
        """A machine is asked to end a task."""
        self._told.setdefault(task, now)

    def is_overdue(self, task: str, state: TaskState, grace_s: float | None, now: float) -> bool:
        """Whether a task lives that should long have been killed."""
        since = self._told.get(task)
        return not state.over and since is not None and now - since > (grace_s or 0.0) + OVERDUE_S

    def is_through(self, task: str, state: TaskState, now: float) -> bool:
        """Whether a task is over, and its output here or not to be waited for any more."""
        if not state.over:
            return False
        since = self._over.setdefault(task, now)
        return not (state.more and state.log) or now - since > DRAIN_S

    def forget(self, task: str) -> None:
        """Its run is over."""
        self._told.pop(task, None)
        self._over.pop(task, None)
