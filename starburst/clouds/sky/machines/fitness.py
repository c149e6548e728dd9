"""Whether a machine that answers takes work at all.

A queue may be away for a moment; one that is away for minutes will not come back by itself, and its machine
is paid for all the while. What counts is how long one task is refused: others may have got in before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Wall seconds that one task is refused for, and tries of it, after which its machine is unfit.
UNFIT_S, TRIES = 120.0, 3


@dataclass(slots=True)
class _Refusals:
    since: float
    why: str
    count: int = 0


@dataclass(slots=True)
class Fitness:
    """Of one machine: what it refused and has not taken since."""

    _refused: dict[str, _Refusals] = field(default_factory=dict)
    #: Why it is unfit; "" while it is not. It stays so.
    unfit: str = ""

    def refused(self, task: str, why: str, now: float) -> None:
        """It did not take a task."""
        refusals = self._refused.setdefault(task, _Refusals(now, why))
        refusals.count += 1
        refusals.why = why
        if refusals.count >= TRIES and now - refusals.since >= UNFIT_S:
            self.unfit = self.unfit or why

    def took(self, task: str) -> None:
        """It did, or nobody wants it to any more."""
        self._refused.pop(task, None)

    def silent(self) -> None:
        """It was not to be reached, so nobody knows what it would have taken meanwhile."""
        self._refused.clear()
