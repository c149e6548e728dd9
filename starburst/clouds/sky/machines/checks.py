"""Looks after machines that are up: whether they live, and whether SkyPilot knows of them.

A look asks the clouds for the instances by their ids, and has SkyPilot refresh only those of our clusters
whose clouds cannot be asked so. Everything that lives and is missing at once means that SkyPilot has lost its
state; nothing ends for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from starburst.clouds.sky.access.ports import ClusterState, ClusterStatus, Observation, SkyApi, SkyError
from starburst.clouds.sky.journal import MachineEntry
from starburst.clouds.sky.machines.ledger import MachineRegistry
from starburst.clouds.sky.machines.liveness import Liveness, by_cloud
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.machines.sightings import CloudObserver

log = structlog.get_logger()

#: Wall seconds: between tries of a look that failed, at first and at last; between looks while nothing is
#: suspected; and for the first look after a start.
FIRST_PAUSE_S, LAST_PAUSE_S, QUIET_S, FIRST_LOOK_S = 1.0, 30.0, 60.0, 30.0


class LivenessWatch:
    """For all machines of one controller. `gone` is told of one that its cloud has no more, `stopped` of one
    that somebody stopped."""

    def __init__(
        self,
        api: SkyApi,
        sightings: CloudObserver,
        ledger: MachineRegistry,
        naming: Naming,
        *,
        gone: Callable[[MachineEntry], None],
        stopped: Callable[[MachineEntry], None],
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._sightings = sightings
        self._ledger = ledger
        self._naming = naming
        self._gone = gone
        self._stopped = stopped
        self._now = now
        self._suspects: set[str] = set()
        self._suspected = asyncio.Event()
        #: When a machine was last looked for and not found gone; scheduler seconds.
        self.looked_at: dict[str, float] = {}

    def suspect(self, instance_id: str) -> None:
        """A machine does not answer: have its cloud asked now."""
        self._suspects.add(instance_id)
        self._suspected.set()

    async def look_first(self) -> None:
        """Learn what became of all machines, unless that takes too long: then it is learnt later."""
        try:
            await asyncio.wait_for(self._look(self._ledger.up()), FIRST_LOOK_S)
        except (SkyError, asyncio.TimeoutError) as error:
            log.warning("cloud-does-not-answer", error=str(error) or f"nothing for {FIRST_LOOK_S:g} s")
            self._suspects.update(note.id for note in self._ledger.up())
            self._suspected.set()

    async def watch(self) -> None:
        """Look again at quiet intervals, and at once at what is suspected."""
        pause_s = FIRST_PAUSE_S
        while True:
            timer = asyncio.get_running_loop().call_later(QUIET_S, self._suspected.set)
            await self._suspected.wait()
            timer.cancel()
            self._suspected.clear()
            suspects, self._suspects = self._suspects, set()
            try:
                up = self._ledger.up()
                await self._look([note for note in up if note.id in suspects] or up)
                pause_s = FIRST_PAUSE_S
            except SkyError as error:
                log.warning("cloud-does-not-answer", error=str(error), again_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
                self._suspects |= suspects
                self._suspected.set()

    async def _look(self, notes: list[MachineEntry]) -> None:
        """How machines stand: by their clouds, and by a refreshed listing where those do not say."""
        if not notes:
            return
        seen = await asyncio.gather(*(self._sightings.ask(note) for note in notes))
        stands = {note.id: one for note, one in zip(notes, seen, strict=True)}
        unsure = [note for note in notes if self._is_unsure(stands[note.id])]
        for note in notes:
            if note not in unsure:
                await self._settle(note, stands[note.id], None)
        names = [self._naming.cluster(note.id) for note in unsure]
        listing = {one.name: one for one in await self._api.clusters() if one.name not in names}
        if names:
            listing |= {one.name: one for one in await self._api.clusters(refresh=names)}
        for note in unsure:
            status = listing.get(self._naming.cluster(note.id))
            await self._settle(note, stands[note.id], None if status is None else status.state)
        for note in notes:
            if self._ledger.takes_runs(note.id):
                await self._compare(note, listing.get(self._naming.cluster(note.id)))

    @staticmethod
    def _is_unsure(seen: Observation | None) -> bool:
        return seen is None or by_cloud(seen.presence) is Liveness.UNKNOWN

    async def _settle(
        self, note: MachineEntry, seen: Observation | None, listed: ClusterState | None
    ) -> None:
        """Act on how a machine stands."""
        stand = await self._sightings.judge(note, seen, listed)
        if not self._ledger.takes_runs(note.id):  # somebody ended it meanwhile
            return
        if stand is Liveness.GONE:
            self._gone(note)
        elif stand is Liveness.STOPPED:
            self._stopped(note)
        else:
            self.looked_at[note.id] = self._now()

    async def _compare(self, note: MachineEntry, status: ClusterStatus | None) -> None:
        """Whether SkyPilot knows of a machine that lives; and what it says of how to log in."""
        before = (note.forgotten, note.access, note.at)
        note.forgotten = status is None
        if note.forgotten and not before[0]:
            told = "it lives and goes on; SkyPilot's state, or its tags on the instance, are lost"
            log.error("skypilot-forgot-machine", instance=note.id, error=told)
        if status is not None:
            note.access = status.access or note.access
            if note.at is None:
                await self._sightings.meet(note, status)
        if before != (note.forgotten, note.access, note.at):
            self._ledger.save(note)
