"""Whether a machine that answers accepts tasks at all.

A disk may be full or a GPU's driver silent for a moment; after minutes, that does not mend itself, and the
machine is paid for meanwhile. What counts is for how long one and the same task is refused: other tasks may
have been accepted before the machine broke.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Wall seconds for which one task is refused, and attempts, after which its machine is unfit.
UNFIT_S, TRIES = 120.0, 3


@dataclass(slots=True)
class _Refusals:
    since: float
    why: str
    count: int = 0


@dataclass(slots=True)
class Fitness:
    """What one machine refused and has not accepted since. Times are wall seconds."""

    _refused: dict[str, _Refusals] = field(default_factory=dict)
    #: Why it is unfit; "" while it is fit. An unfit machine stays unfit.
    unfit: str = ""

    def refused(self, task: str, why: str, now: float) -> None:
        """Record that it did not accept a task, or something that the task needs."""
        refusals = self._refused.setdefault(task, _Refusals(now, why))
        refusals.count += 1
        refusals.why = why
        if refusals.count >= TRIES and now - refusals.since >= UNFIT_S:
            self.unfit = self.unfit or why

    def took(self, task: str) -> None:
        """Record that it accepted a task."""
        self._refused.pop(task, None)

    def silent(self) -> None:
        """Record that it did not answer: what it would have accepted meanwhile is unknown."""
        self._refused.clear()
