"""Checkpoints on their way: to the machines of a run before it begins, and home when it is over.

What is brought home is worth waiting for, but not for ever: a machine is paid for meanwhile, and may never
give it. So it is bounded in time and tries; then the run's end is told all the same, and what was there
before stays. A run that was told to stop has less time, and a stop that comes now has the grace it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from starburst.clouds.sky.access.ports import (
    Access,
    LocalError,
    MachineTransport,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.journal import RankEntry, RunEntry
from starburst.runs.files import directory_name

log = structlog.get_logger()

#: Wall seconds to bring checkpoints home in: of a run that ended by itself, and of one that was told to.
HOME_S, STOPPED_S = 3600.0, 600.0
#: Tries that a machine may fail in, one that was not to be had being none; seconds between them, at first and
#: at last.
TRIES, FIRST_PAUSE_S, LAST_PAUSE_S = 5, 2.0, 30.0
#: Wall seconds between looks whether there is still time.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Berth:
    """A machine that takes runs."""

    cluster: str
    access: Access
    gpu_type: str


class CheckpointTransfer:
    """Brings checkpoints from the directory `here` and to it. `takes` says which machines are still up."""

    def __init__(
        self,
        contact: MachineTransport,
        here: Path,
        *,
        takes: Callable[[str], bool],
        berth: Callable[[str], Berth | None],
        wall: Callable[[], float],
    ) -> None:
        self._contact = contact
        self._here = here
        self._takes = takes
        self._berth = berth
        self._wall = wall

    async def supply(self, job: str, berth: Berth, there: str) -> None:
        """Bring a job's checkpoints to a machine, if it has any.

        Raises:
            UnsafeError: somebody put something else in their place.
            SkyError: the machine did not take them.
        """
        here = self._here / directory_name(job)
        if here.is_symlink() or (here.is_dir() and any(here.iterdir())):
            await self._contact.send(berth.cluster, berth.access, here, there)

    async def bring_home(self, note: RunEntry, rank: RankEntry) -> str:
        """Bring those of a task home; why they are lost, or ""."""
        if not rank.started:
            return ""
        tries, pause_s, why = 0, FIRST_PAUSE_S, ""
        while self._takes(rank.where):
            if self._left(note) <= 0 or tries >= TRIES:
                return why or "there was no time left to bring it home"
            try:
                await self._fetch(note, rank)
                log.info("checkpoint-kept", job=note.job, attempt=note.attempt, instance=rank.where)
                return ""
            except (SkyUnreachableError, LocalError) as error:
                why = str(error)
            except SkyError as error:
                tries, why = tries + 1, str(error)
            log.warning("checkpoint-not-home", job=note.job, instance=rank.where, error=why)
            await self._pause(note, pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        return why or "its machine is gone"

    async def _fetch(self, note: RunEntry, rank: RankEntry) -> None:
        berth = self._berth(rank.where)
        if berth is None:
            raise SkyUnreachableError("SkyPilot does not say how to log in")
        here = self._here / directory_name(note.job)
        there = rank.spec["checkpoints"]
        fetch = asyncio.ensure_future(self._contact.fetch(berth.cluster, berth.access, there, here))
        try:
            while not fetch.done():
                if self._left(note) <= 0 or not self._takes(rank.where):
                    raise SkyUnreachableError("there was no time left to bring it home")
                await asyncio.wait([fetch], timeout=LOOK_S)
            fetch.result()
        finally:
            fetch.cancel()
            await asyncio.wait([fetch])

    async def _pause(self, note: RunEntry, pause_s: float) -> None:
        """Shorter if a stop comes meanwhile."""
        until = self._wall() + pause_s
        while (left := min(until - self._wall(), self._left(note))) > 0:
            await asyncio.sleep(min(left, LOOK_S))

    def _left(self, note: RunEntry) -> float:
        return float("inf") if note.home_by is None else note.home_by - self._wall()
