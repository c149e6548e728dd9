"""Machines of a scheduler on a copy of this home, which has our id: they are not ours, though labelled so.

A home that was restored finds machines that it does not know as well, and nobody else wants them. The
difference is that somebody renews the lease of a twin's machine: while it runs, the machine is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from starburst.clouds.sky.access.answers import parse_exchange
from starburst.clouds.sky.access.ports import ClusterStatus, LocalError, SkyError, SkyUnreachableError
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import SWITCH_S
from starburst.clouds.sky.machines.naming import asked_at

log = structlog.get_logger()

#: Seconds by which clocks of two hosts may differ.
SKEW_S = 60.0
MEND = (
    "one of the two must end: jobs that were queued when the home was copied run twice; "
    "give the copy a home of its own (STARBURST_HOME)"
)


class Twins:
    """Tells machines that another scheduler with our id has rented from those that nobody claims."""

    def __init__(self, context: SkyContext) -> None:
        self._context = context
        #: Since when this process attends to machines, wall seconds.
        self._begun_at = context.clock.wall()
        self._told: set[str] = set()

    async def rented(self, strangers: Sequence[ClusterStatus]) -> set[str]:
        """The clusters of those, labelled as ours and unknown here, that a twin may keep."""
        found = await asyncio.gather(*map(self._may_keep, strangers))
        return {status.name for status, kept in zip(strangers, found, strict=True) if kept}

    async def _may_keep(self, status: ClusterStatus) -> bool:
        """Whether a machine was asked for while we were here, or has a lease that we did not give it."""
        clock, lease_s = self._context.clock, self._context.settings.lease_s
        asked = asked_at(status)
        if asked is not None and clock.pace.wall_time(asked) > self._begun_at + SKEW_S:
            self._tell(status)
            return True
        if status.access is None:
            return self._may_be_leased()
        try:
            told = await self._context.transport.call(status.name, status.access, "exchange", {})
            answer = parse_exchange(told)
        except LocalError:  # which says nothing about the machine
            return True
        except SkyUnreachableError:
            return self._may_be_leased()
        except SkyError:
            return False
        leased = answer.armed and not answer.lapsed  # without a switch nobody has ever given it a lease
        if leased and clock.wall() - self._begun_at > lease_s + SKEW_S:
            self._tell(status)  # whoever was here before us cannot have renewed it
        return leased

    def _may_be_leased(self) -> bool:
        """Whether a lease of before our time may last; later its switch has ended it if nobody renews it."""
        settings = self._context.settings
        most_s = settings.lease_s + 60 * settings.idle_minutes + SWITCH_S
        return self._context.clock.wall() - self._begun_at < most_s

    def _tell(self, status: ClusterStatus) -> None:
        if status.name not in self._told:
            self._told.add(status.name)
            log.error("another-scheduler-has-our-id", cluster=status.name, mend=MEND)
