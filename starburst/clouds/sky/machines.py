"""Rented machines as SkyPilot's clusters: one per intent, adopted after a crash, gone only when the cloud
says so.

An intent is noted before SkyPilot is asked, the request's id before its result is awaited. Whatever a crash
leaves out is found again: a request that is under way by its cluster's name, a machine by its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from starburst.clouds.sky.answers import tended
from starburst.clouds.sky.keeper import KEEPER, keeper
from starburst.clouds.sky.naming import Naming
from starburst.clouds.sky.notes import MachineNote, Notes, drop_machine, load_machines, save_machine
from starburst.clouds.sky.offers import Place
from starburst.clouds.sky.port import (
    Access,
    CapacityError,
    ClusterStatus,
    Contact,
    LaunchSpec,
    NotFoundError,
    SkyApi,
    SkyError,
    UnreachableError,
)
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.runs.ports import Report
from starburst.runs.tasks import TaskSet
from translator.stores import Store

log = structlog.get_logger()

#: Wall seconds: between tries of a call that failed, at first and at last; between refreshed listings while
#: nothing is suspected; and for a machine that is up to let somebody log in.
FIRST_PAUSE_S, LAST_PAUSE_S, QUIET_S, LOGIN_S = 1.0, 30.0, 60.0, 300.0
#: Scheduler seconds that a machine that is over is remembered, in case nobody stored its end.
KEPT_S = 86_400.0


class SkyMachines:
    """All machines of one controller. `gone` is told of each that has ended, before it is reported."""

    def __init__(
        self,
        api: SkyApi,
        contact: Contact,
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
        bucket: str | None,
        mounts: tuple[tuple[str, Store], ...],
        own_prices: bool,
    ) -> None:
        self._api = api
        self._contact = contact
        self._notes = notes
        self.naming = naming
        self._report = report
        self._ready = ready
        self._gone = gone
        self._tasks = tasks
        self._now = now
        self._pace = pace
        self._lease_s = lease_s
        self._idle_minutes = idle_minutes
        self._bucket = bucket
        self._mounts = mounts
        self._own_prices = own_prices
        self.notes = load_machines(notes)
        for note in [
            note for note in self.notes.values() if note.is_over and note.told_by() < now() - KEPT_S
        ]:
            drop_machine(notes, self.notes.pop(note.id))
        self._access: dict[str, Access] = {}
        self._suspects = asyncio.Event()
        self._launches: dict[str, asyncio.Task[None]] = {}
        #: When the cloud last said that a machine runs; scheduler seconds.
        self.listed_at: dict[str, float] = {}

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
        note = self.notes.get(instance_id)
        if note is None or not note.ready or note.ending or note.is_over:
            return None
        return self._access.get(instance_id)

    def takes_runs(self, instance_id: str) -> bool:
        """Whether a machine is up and meant to stay."""
        note = self.notes.get(instance_id)
        return note is not None and note.ready and not note.ending and not note.is_over

    def suspect(self) -> None:
        """Something does not answer: have the cloud asked now."""
        self._suspects.set()

    # --- coming up ---------------------------------------------------------------------------------------

    async def _bring_up(self, note: MachineNote) -> None:
        """Take a launch from wherever it is to its end."""
        pause_s = FIRST_PAUSE_S
        while not (note.ready or note.ending or note.is_over):
            try:
                await self._request(note)
                await self._log_in(note)
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

    async def _request(self, note: MachineNote) -> None:
        """Until SkyPilot says that the cluster is up: by our request, or one that was made before a crash."""
        cluster = self.naming.cluster(note.id)
        if note.request is None:
            under_way = await self._api.launching(cluster)
            request = under_way[0] if under_way else None
            if note.ending:
                return
            # Also if it counts as up: what a launch left that broke off may lack its way in, or its autostop.
            note.request = request or await self._api.launch(self._spec(note, cluster))
            self._save(note)
        await self._api.wait(note.request)

    def _spec(self, note: MachineNote, cluster: str) -> LaunchSpec:
        try:
            place = Place.of(note.offer)
        except ValueError as error:
            raise SkyError(str(error)) from None
        expiry = self._pace.wall_time(self._now()) + self._lease_s + 60 * self._idle_minutes
        return LaunchSpec(
            cluster=cluster,
            infra=place.infra,
            instance_type=place.instance_type,
            spot=place.spot,
            labels=self.naming.labels(note.id, expiry),
            idle_minutes=self._idle_minutes,
            bucket=self._bucket,
            mounts=self._mounts,
        )

    async def _log_in(self, note: MachineNote) -> None:
        """Until the machine answers; its bill began when it did, at the latest when it booted."""
        cluster, deadline = self.naming.cluster(note.id), self._wall() + LOGIN_S
        while not note.ending:
            status = await self._find(cluster, refresh=False)
            if status is None:
                raise NotFoundError(f"{cluster} came up and is not there")
            if status.access is None:
                raise SkyError(f"{cluster} is up and SkyPilot does not say how to log in")
            try:
                lease = {"lease_s": self._lease_s}
                answer = tended(await self._contact.call(cluster, status.access, "tend", lease))
            except UnreachableError as error:
                if await self._find(cluster, refresh=True) is None:
                    self._note_gone(note, preempted=note.spot)
                    return
                if self._wall() >= deadline:
                    raise SkyError(f"{cluster} is up and lets nobody log in: {error}") from error
                await asyncio.sleep(FIRST_PAUSE_S)
                continue
            self._access[note.id] = status.access
            note.micro_usd = await self._billed(note, status)
            booted_at = self._pace.scheduler_time(answer.booted_at)
            note.launched_at = min(max(note.asked_at, booted_at), self._now())
            if not note.ending:
                note.ready = True
                self._save(note)
                self.resume(note)
            return

    async def _billed(self, note: MachineNote, status: ClusterStatus) -> int | None:
        """Micro-dollars an hour of a machine that came up; None if nobody says, or prices are the user's."""
        if self._own_prices:
            return None
        try:
            rate = await self._api.rate(status)
        except SkyError as error:
            log.warning("rate-unknown", instance=note.id, error=str(error))
            return None
        return None if rate is None else rate.micro_usd

    async def _keep(self, note: MachineNote) -> None:
        """See to it that the machine has its keeper. Two of them do no harm."""
        cluster, pause_s = self.naming.cluster(note.id), FIRST_PAUSE_S
        while self.takes_runs(note.id) and not note.kept:
            try:
                await self._api.wait(await self._api.exec(cluster, KEEPER, keeper(self._lease_s), {}))
                note.kept = True
                self._save(note)
            except SkyError as error:
                log.warning("no-keeper-yet", instance=note.id, error=str(error))
                self.suspect()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _fail(self, note: MachineNote, message: str, *, sold_out: bool) -> None:
        """No machine may be left of a launch that failed, before it counts as failed."""
        log.warning("launch-failed", instance=note.id, error=message)
        await self._clear(note)
        if not note.ending:
            note.failed, note.sold_out, note.ended_at = message, sold_out, self._now()
            self._save(note)
            self._report(note.end())

    # --- ending ------------------------------------------------------------------------------------------

    async def _end(self, note: MachineNote) -> None:
        launch = self._launches.pop(note.id, None)
        while launch is not None and not launch.done():  # it may just be asking for a machine
            await self._clear(note)
            await asyncio.wait([launch], timeout=FIRST_PAUSE_S)
        await self._clear(note)
        self._note_gone(note, preempted=False)

    async def _clear(self, note: MachineNote) -> None:
        """Until the cloud has nothing of this intent, and nothing of it is on its way there."""
        cluster, pause_s = self.naming.cluster(note.id), FIRST_PAUSE_S
        while True:
            try:
                for request in await self._api.launching(cluster):
                    await self._api.abort(request)
                status = await self._find(cluster, refresh=False)
                if status is None:  # nor was it on its way when that was asked for
                    return
                if note.launched_at is None and status is not None:
                    note.launched_at = note.asked_at
                    self._save(note)
                await self._api.wait(await self._api.down(cluster))
                continue
            except NotFoundError:
                pass  # as it should be; the listing decides
            except SkyError as error:
                log.warning("end-waits", instance=note.id, error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _note_gone(self, note: MachineNote, *, preempted: bool) -> None:
        note.ended_at = self._now()
        note.preempted = preempted
        if note.launched_at is None:
            note.launched_at = note.ended_at
        self._access.pop(note.id, None)
        self._save(note)
        self._report(note.end())
        self._gone(note.id)

    # --- listings ----------------------------------------------------------------------------------------

    async def list_first(self) -> None:
        """Ask the cloud what is so, until it answers, and report every machine there is or was."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._look()
                break
            except SkyError as error:
                log.warning("cloud-does-not-answer", error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
        for note in list(self.notes.values()):
            self.resume(note)

    async def watch(self) -> None:
        """Look again at quiet intervals, and at once when something is suspected."""
        pause_s = FIRST_PAUSE_S
        while True:
            timer = asyncio.get_running_loop().call_later(QUIET_S, self._suspects.set)
            await self._suspects.wait()
            timer.cancel()
            self._suspects.clear()
            if any(note.ready and not note.is_over for note in self.notes.values()):
                try:
                    await self._look()
                    pause_s = FIRST_PAUSE_S
                except SkyError as error:
                    log.warning("cloud-does-not-answer", error=str(error), again_in_s=pause_s)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LAST_PAUSE_S)
                    self._suspects.set()

    async def _look(self) -> None:
        """One refreshed listing: who was up before it and is not in it has ended."""
        up = [note for note in self.notes.values() if note.ready and not note.is_over and not note.ending]
        listing = {status.name: status for status in await self._api.clusters(refresh=True)}
        for note in up:
            status = listing.get(self.naming.cluster(note.id))
            if note.ending or note.is_over:
                continue
            if status is None:
                self._note_gone(note, preempted=note.spot)
                continue
            self.listed_at[note.id] = self._now()
            if status.access is not None:
                self._access[note.id] = status.access

    async def clusters(self) -> list[ClusterStatus]:
        """Every cluster there is, as last known."""
        return await self._api.clusters(refresh=False)

    async def _find(self, cluster: str, *, refresh: bool) -> ClusterStatus | None:
        listing = await self._api.clusters(refresh=refresh)
        return next((status for status in listing if status.name == cluster), None)

    def _wall(self) -> float:
        return self._pace.wall_time(self._now())

    def _save(self, note: MachineNote) -> None:
        self.notes[note.id] = note
        save_machine(self._notes, note)
