"""The fence before external actions: they are begun only while it is certain that this process leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

#: Seconds between two looks whether this process leads again.
LOOK_S = 0.1


class NotCertainError(Exception):
    """An external action was not begun: another process may lead by now."""

    def __init__(self) -> None:
        super().__init__("not begun: this process is not certain that it leads")


def always() -> bool:
    """Of a process beside which none can lead."""
    return True


@dataclass(frozen=True, slots=True)
class LeaderFence:
    """Asked at the last instant before an external action. Thread-safe."""

    #: Whether this process leads for certain, by its own clock; asks nobody and does not block.
    certain: Callable[[], bool] = always
    #: Number of its leadership; 0 for one beside which none can lead, and before the first.
    epoch: Callable[[], int] = int

    def check(self) -> None:
        """Raises NotCertainError: nothing may be begun now."""
        if not self.certain():
            raise NotCertainError

    async def passed(self) -> None:
        """Wait until this process leads for certain."""
        while not self.certain():
            await asyncio.sleep(LOOK_S)


#: Of commands, tests, and a scheduler that is alone.
NO_FENCE = LeaderFence()
