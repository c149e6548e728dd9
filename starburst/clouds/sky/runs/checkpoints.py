"""Copies checkpoints: to the machines of a run before it begins, and home when it is over.

What a run wrote to stores that are mounted with a cache is waited for in the same way: until it is uploaded.
So are checkpoints in a bucket: until their machine has found them there.

Bringing checkpoints home is worth a wait, but not forever: a machine is paid for meanwhile, and may never
deliver. So the transfer is bounded in time and in attempts; then the run's end is reported all the same, and
the checkpoints from before stay. A run that was told to stop has less time, and a stop that comes during the
transfer leaves it no more than the grace of that stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from starburst.aio import Backoff, running
from starburst.clouds.sky.access.answers import parse_confirmation, parse_uploads
from starburst.clouds.sky.access.ports import BUCKET, LocalError, SkyError, SkyUnreachableError
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.runs.files import directory_name
from translator.carried import Bucket

log = structlog.get_logger()

#: Wall seconds to bring checkpoints home: of a run that ended by itself, and of one that was told to stop.
HOME_S, STOPPED_S = 3600.0, 600.0
#: Attempts that a machine may fail (one that does not answer fails none), and the seconds between them, at
#: first and at most.
TRIES, FIRST_PAUSE_S, LAST_PAUSE_S = 5, 2.0, 30.0
#: Wall seconds between looks whether there is still time.
LOOK_S = 1.0
#: Seconds that a machine waits for its uploads before it answers; half of what an answer may take.
UPLOAD_LOOK_S = 15.0
#: Seconds that a machine looks for checkpoints in their bucket before it answers.
CONFIRM_LOOK_S = 20.0


def is_in_bucket(rank: RankEntry) -> bool:
    """Whether the checkpoints of a task are in a bucket."""
    return str(rank.spec.get("checkpoints", "")).startswith(f"{BUCKET}/")


class CheckpointTransfer:
    """Copies directories of checkpoints between the controller and its machines."""

    def __init__(self, context: SkyContext, machines: Mapping[str, RentedMachine]) -> None:
        self._transport = context.transport
        self._home = context.settings.checkpoints
        self._clock = context.clock
        self._machines = machines
        #: Paths on machines of what is mounted with a cache.
        self._cached = {
            path
            for path, store in context.mounts
            if isinstance(store, Bucket) and store.mode == "MOUNT_CACHED"
        }

    async def supply(self, job: str, machine: RentedMachine, node: int, there: str) -> None:
        """Copy a job's checkpoints to a node of a machine, if there are any.

        Raises:
            UnsafeError: something else was put in their place.
            SkyError: the machine did not take them.
        """
        here = self._home / directory_name(job)
        if here.is_symlink() or (here.is_dir() and any(here.iterdir())):
            await self._transport.send(machine.node_name(node), machine.access(node), here, there)

    async def bring_home(self, entry: RunEntry, rank: RankEntry) -> str:
        """Copy the checkpoints of a task home; why they are lost, or ""."""
        return await self._save(entry, rank, self._fetch, "checkpoint-not-home")

    async def upload(self, entry: RunEntry, rank: RankEntry) -> str:
        """Wait until its machine has uploaded what a task wrote to cached mounts; why it has not, or ""."""
        if not self.caches(rank):
            return ""
        return await self._save(entry, rank, self._uploaded, "not-uploaded")

    def caches(self, rank: RankEntry) -> bool:
        """Whether a task may have written to a store that is mounted with a cache."""
        container = rank.spec.get("docker") or {}
        written = {volume["store"] for volume in container.get("volumes", ()) if not volume["read_only"]}
        return bool(written & self._cached)

    async def confirm(self, entry: RunEntry, rank: RankEntry) -> str:
        """Wait until its machine has found a task's checkpoints in their bucket; why it has not, or ""."""
        return await self._save(entry, rank, self._confirmed, "not-confirmed")

    async def _save(
        self,
        entry: RunEntry,
        rank: RankEntry,
        attempt: Callable[[RunEntry, RankEntry, RentedMachine], Awaitable[None]],
        event: str,
    ) -> str:
        """Try to save the work of a task while there is time; why it is lost, or ""."""
        if not rank.started:
            return ""
        tries, backoff, why = 0, Backoff(FIRST_PAUSE_S, LAST_PAUSE_S), ""
        while self.is_up(rank):
            if self._left_s(entry) <= 0 or tries >= TRIES:
                return why or "there was no time left"
            try:
                await attempt(entry, rank, self._machines[rank.where])
                log.info("work-saved", job=entry.job, attempt=entry.attempt, instance=rank.where)
                return ""
            except (SkyUnreachableError, LocalError) as error:
                why = str(error)
            except SkyError as error:
                tries, why = tries + 1, str(error)
            log.warning(event, job=entry.job, instance=rank.where, error=why)
            await self._pause(entry, backoff.next_s())
        return why or "its machine is gone"

    async def _uploaded(self, entry: RunEntry, rank: RankEntry, machine: RentedMachine) -> None:
        """One look; an upload that goes on fails no attempt, whatever time it takes."""
        left = parse_uploads(await machine.call("uploads", {"wait_s": UPLOAD_LOOK_S}, rank.node))
        if left:
            raise SkyUnreachableError(left)

    async def _confirmed(self, entry: RunEntry, rank: RankEntry, machine: RentedMachine) -> None:
        """One look; what still goes on fails no attempt, whatever time it takes."""
        asked = {"bucket": BUCKET, "checkpoints": rank.spec["checkpoints"], "wait_s": CONFIRM_LOOK_S}
        left, busy = parse_confirmation(await machine.call("confirm", asked, rank.node))
        if left:
            raise SkyUnreachableError(left) if busy else SkyError(left)

    async def _fetch(self, entry: RunEntry, rank: RankEntry, machine: RentedMachine) -> None:
        here, there = self._home / directory_name(entry.job), rank.spec["checkpoints"]
        name, access = machine.node_name(rank.node), machine.access(rank.node)
        transfer = self._transport.fetch(name, access, there, here)
        async with running(transfer, "fetch checkpoints") as task:
            while not task.done():
                if self._left_s(entry) <= 0 or not machine.takes_runs:
                    raise SkyUnreachableError("there was no time left to bring it home")
                await asyncio.wait([task], timeout=LOOK_S)
            task.result()

    async def _pause(self, entry: RunEntry, pause_s: float) -> None:
        """Sleep; for less if a stop shortens the time that is left."""
        until = self._clock.wall() + pause_s
        while (left_s := min(until - self._clock.wall(), self._left_s(entry))) > 0:
            await asyncio.sleep(min(left_s, LOOK_S))

    def is_up(self, rank: RankEntry) -> bool:
        """Whether the machine of a task is up and not about to end."""
        machine = self._machines.get(rank.where)
        return machine is not None and machine.takes_runs and rank.node in machine.nodes

    def _left_s(self, entry: RunEntry) -> float:
        return float("inf") if entry.home_by is None else entry.home_by - self._clock.wall()
