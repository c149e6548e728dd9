"""Rented machines as SkyPilot's clusters: one per intent, adopted after a crash, gone only when the cloud
says so (`sightings.py`), whatever SkyPilot lists.

An intent is noted before SkyPilot is asked, the request's id before its result is awaited. Whatever a crash
leaves out is found again: a request that is under way by its cluster's name, a machine by its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from starburst.clouds.sky.access.answers import tended
from starburst.clouds.sky.access.ports import (
    Access,
    CapacityError,
    CloudApi,
    ClusterStatus,
    Contact,
    NotFoundError,
    Sighting,
    SkyApi,
    SkyError,
    UnreachableError,
)
from starburst.clouds.sky.journal import MachineNote, Notes
from starburst.clouds.sky.machines.checks import Lookout
from starburst.clouds.sky.machines.keepalive import KEEPER, keeper
from starburst.clouds.sky.machines.launch import Launching, greeting
from starburst.clouds.sky.machines.ledger import Ledger
from starburst.clouds.sky.machines.liveness import Verdict
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.machines.sightings import Sightings
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.runs.ports import Report
from starburst.runs.tasks import TaskSet
from translator.carried import CloudStorage

log = structlog.get_logger()

#: Wall seconds: between tries of a call that failed, at first and at last; and for a keeper to come to its
#: machine through SkyPilot's queue.
FIRST_PAUSE_S, LAST_PAUSE_S, KEEPER_S = 1.0, 30.0, 120.0


class SkyMachines:
    """All machines of one controller. `gone` is told of each that has ended, before it is reported."""

    def __init__(
        self,
        api: SkyApi,
        contact: Contact,
        clouds: CloudApi,
        notes: Notes,
        naming: Naming,
        *,
        report: Report,
        ready: Callable[[str], None],
        gone: Callable[[str], None],
        tasks: TaskSet,
        now: Callable[[], float],
        pace: Pace,
        lease_s: float,
        idle_minutes: int,
        launch_limit_s: float,
        bucket: str | None,
        mounts: tuple[tuple[str, CloudStorage], ...],
        own_prices: bool,
    ) -> None:
        self._api = api
        self._contact = contact
        self.naming = naming
        self._report = report
        self._ready = ready
        self._gone = gone
        self._tasks = tasks
        self._now = now
        self._pace = pace
        self._lease_s = lease_s
        self._ledger = Ledger(notes, naming, now())
        self.notes = self._ledger.machines
        self._sightings = Sightings(
            clouds, contact, naming, pace, now, lease_s=lease_s, idle_minutes=idle_minutes
        )
        self._launching = Launching(
            api,
            contact,
            self._sightings,
            self._ledger,
            naming,
            gone=self._note_gone,
            now=now,
            pace=pace,
            lease_s=lease_s,
            idle_minutes=idle_minutes,
            limit_s=launch_limit_s,
            bucket=bucket,
            mounts=mounts,
            own_prices=own_prices,
        )
        self.lookout = Lookout(
            api, self._sightings, self._ledger, naming, gone=self._vanish, stopped=self._stopped, now=now
        )
        self.takes_runs = self._ledger.takes_runs
        self._launches: dict[str, asyncio.Task[None]] = {}
        #: When a keeper was last put on a machine; wall seconds.
        self._kept_at: dict[str, float] = {}

    # --- what is asked -----------------------------------------------------------------------------------

    def launch(self, instance_id: str, offer: Offer) -> None:
        """See `Cloud`. An intent that came to an end stays so."""
        if instance_id not in self.notes:
            self._save(MachineNote.intent(instance_id, offer, self._now()))
        self.resume(self.notes[instance_id])

    def terminate(self, instance_id: str) -> None:
        """See `Cloud`."""
        note = self.notes.get(instance_id) or MachineNote(instance_id, "", False, self._now())
        if not note.is_over:
            note.ending = True
            self._save(note)
        else:  # somebody sees it still: a launch that came late, long after it was given up
            self._tasks.ensure(("end", note.id), partial(self._clear, note))
        self.resume(note)

    def resume(self, note: MachineNote) -> None:
        """Report where a machine stands, and go on with it."""
        if note.is_over:
            self._report(note.end())
        elif note.ending:
            self._tasks.ensure(("end", note.id), partial(self._end, note))
        elif note.ready and note.launched_at is not None:
            self._report(note.up())
            self._ready(note.id)
            self._tasks.ensure(("keep", note.id), partial(self._keep, note))
        else:
            launch = self._tasks.ensure(("launch", note.id), partial(self._bring_up, note))
            self._launches[note.id] = launch

    def access(self, instance_id: str) -> Access | None:
        """How to log in to a machine that takes runs."""
        return self.notes[instance_id].access if self.takes_runs(instance_id) else None

    def forgotten(self, listing: list[ClusterStatus]) -> list[MachineNote]:
        """Machines that take runs and that SkyPilot does not list."""
        listed = {status.name for status in listing}
        return [note for note in self._ledger.up() if self.naming.cluster(note.id) not in listed]

    async def owned(self) -> list[ClusterStatus]:
        """Clusters of our owner, as SkyPilot last knew them."""
        intended = self._ledger.intended()
        return [one for one in await self._api.clusters() if self.naming.is_of_owner(one, intended)]

    def heard(self, instance_id: str, *, kept: bool, armed: bool) -> None:
        """A machine has answered: whether it has its keeper, and its own switch runs."""
        self._sightings.heard(instance_id)
        note = self.notes[instance_id]
        late = self._wall() - self._kept_at.get(instance_id, 0.0) > KEEPER_S
        lost = note.kept and not kept and late
        if lost or note.armed is not armed:
            if lost:
                log.warning("keeper-lost", instance=instance_id)
            note.kept, note.armed = note.kept and not lost, armed
            self._save(note)
        if not (note.kept and note.armed) and self.takes_runs(instance_id):
            self._tasks.ensure(("keep", instance_id), partial(self._keep, note))

    # --- coming up ---------------------------------------------------------------------------------------

    async def _bring_up(self, note: MachineNote) -> None:
        """Take a launch from wherever it is to its end."""
        pause_s = FIRST_PAUSE_S
        while not (note.ready or note.ending or note.is_over):
            try:
                await self._launching.come_up(note)
                if self.takes_runs(note.id):
                    self.resume(note)
            except NotFoundError as error:  # the API server lost it
                log.warning("launch-again", instance=note.id, error=str(error))
                note.request = None
                self._save(note)
                await asyncio.sleep(pause_s)
            except UnreachableError as error:
                log.warning("launch-waits", instance=note.id, error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
            except SkyError as error:
                if not note.ending:
                    await self._fail(note, str(error), sold_out=isinstance(error, CapacityError))

    async def _keep(self, note: MachineNote) -> None:
        """See to it that the machine has its switch and its keeper. Two of them do no harm."""
        cluster, pause_s = self.naming.cluster(note.id), FIRST_PAUSE_S
        hello = greeting(self._lease_s, self._sightings.switch_s)
        while self.takes_runs(note.id) and not (note.kept and note.armed):
            try:
                if not note.armed and note.access is not None:
                    note.armed = tended(await self._contact.call(cluster, note.access, "tend", hello)).armed
                if not note.kept:
                    await self._api.wait(await self._api.exec(cluster, KEEPER, keeper(self._lease_s), {}))
                    note.kept, self._kept_at[note.id] = True, self._wall()
                self._save(note)
            except SkyError as error:
                log.warning("no-keeper-yet", instance=note.id, error=str(error))
                if isinstance(error, UnreachableError):
                    self.lookout.suspect(note.id)
            if not (note.kept and note.armed):
                if not note.armed:
                    log.warning("no-switch-yet", instance=note.id)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _fail(self, note: MachineNote, message: str, *, sold_out: bool) -> None:
        """No machine may be left of a launch that failed, before it counts as failed."""
        log.warning("launch-failed", instance=note.id, error=message)
        await self._clear(note)
        if not note.ending:
            note.failed, note.sold_out, note.ended_at = message, sold_out, self._over_at(note)
            self._save(note)
            self._report(note.end())

    # --- ending ------------------------------------------------------------------------------------------

    async def _end(self, note: MachineNote) -> None:
        launch = self._launches.pop(note.id, None)
        while launch is not None and not launch.done():  # it may just be asking for a machine
            await self._clear(note)
            await asyncio.wait([launch], timeout=FIRST_PAUSE_S)
        await self._clear(note)
        if not note.is_over:
            self._note_gone(note)

    async def _clear(self, note: MachineNote) -> None:
        """Until neither SkyPilot nor the cloud has anything of this intent, nor is it on its way there."""
        cluster, pause_s = self.naming.cluster(note.id), FIRST_PAUSE_S
        while True:
            try:
                await self._await_down(note)
                for request in await self._api.launching(cluster):
                    await self._api.abort(request)
                status = await self._find(cluster)
                if status is not None:
                    await self._take_down(note, status)
                    continue
                if await self._is_clear(note):  # nor was it on its way when that was asked for
                    return
            except NotFoundError:
                pass  # as it should be; the listing decides
            except SkyError as error:
                log.warning("end-waits", instance=note.id, error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _take_down(self, note: MachineNote, status: ClusterStatus) -> None:
        if not note.is_over:
            self._launching.first_seen(note, status)
        note.down = await self._api.down(status.name)
        self._save(note)
        await self._await_down(note)

    async def _await_down(self, note: MachineNote) -> None:
        """Until SkyPilot has taken a machine down; its cloud may tell more exactly when that was."""
        if note.down is None:
            return
        try:
            await self._api.wait(note.down)
            finished_at = await self._api.finished_at(note.down)
        except UnreachableError:
            raise
        except SkyError:
            note.down = None
            raise
        note.down, note.taken_down = None, True
        note.down_at = None if finished_at is None else self._sightings.since_asked(note, finished_at)
        self._save(note)

    async def _is_clear(self, note: MachineNote) -> bool:
        """Whether the cloud has nothing either of what SkyPilot does not list; if it has, that is ended."""
        if note.is_over:
            return True
        traces: list[Sighting | None] = [*await self._sightings.traces(note)]
        is_clear = True
        for seen in traces or [None]:
            stand = await self._sightings.judge(note, seen, None)
            if stand in (Verdict.LIVES, Verdict.STOPPED):
                await self._sightings.end(note, seen)
            is_clear = is_clear and stand is Verdict.GONE
        return is_clear

    def _note_gone(self, note: MachineNote) -> None:
        """Its cloud has it no more. Who did not ask for a spot machine's end was preempted."""
        note.ended_at = self._over_at(note)
        note.preempted = note.spot and not note.ending
        if note.launched_at is None:
            note.launched_at = note.ended_at
        self._save(note)
        self._report(note.end())
        self._gone(note.id)

    def _over_at(self, note: MachineNote) -> float:
        """When the bill of a machine that is over ended: by its cloud or SkyPilot, else now."""
        told = next((at for at in (note.halted_at, note.down_at) if at is not None), self._now())
        return max(told, note.launched_at or 0.0)

    def _vanish(self, note: MachineNote) -> None:
        """A machine that was up is over; SkyPilot may list it still."""
        self._note_gone(note)
        self._tasks.ensure(("end", note.id), partial(self._clear, note))

    def _stopped(self, note: MachineNote) -> None:
        """Somebody stopped a machine: what ran there is dead, and it is ended."""
        log.warning("machine-stopped", instance=note.id)
        note.halted_at = note.halted_at or self._now()
        self.terminate(note.id)

    async def _find(self, cluster: str) -> ClusterStatus | None:
        return next((status for status in await self._api.clusters() if status.name == cluster), None)

    def _wall(self) -> float:
        return self._pace.wall_time(self._now())

    def _save(self, note: MachineNote) -> None:
        self._ledger.save(note)
