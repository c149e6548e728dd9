"""Hints that there may be something to see, passed on now and then however many come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Seconds of the loop between two looks that nudges bring about.
NUDGE_S = 2.0


class Nudges:
    """Calls `look` at the first nudge, and once more for all that come within `NUDGE_S` of a look, then."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        #: Ends the time in which no nudge brings a look about.
        self._rest: asyncio.TimerHandle | None = None
        self._again = False

    def nudge(self) -> None:
        """Returns at once; to be called in the loop's thread."""
        if self._rest is None:
            self._pass_on()
        else:
            self._again = True

    def _pass_on(self) -> None:
        self._again = False
        self._rest = asyncio.get_running_loop().call_later(NUDGE_S, self._rested)
        self._look()

    def _rested(self) -> None:
        self._rest = None
        if self._again:
            self._pass_on()
