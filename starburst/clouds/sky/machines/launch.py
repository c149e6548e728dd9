"""How a machine comes up: from its intent to its first answer, by one launch, within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from starburst.clouds.sky.access.answers import Tended, tended
from starburst.clouds.sky.access.ports import (
    ClusterStatus,
    Contact,
    LaunchSpec,
    Presence,
    SkyApi,
    SkyError,
    UnreachableError,
)
from starburst.clouds.sky.journal import MachineNote
from starburst.clouds.sky.machines.ledger import Ledger
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.machines.sightings import Sightings
from starburst.clouds.sky.offers import Place
from starburst.domain.clock import Pace
from translator.carried import CloudStorage

log = structlog.get_logger()

#: Wall seconds: between tries to log in, and for a machine that is up to let somebody.
PAUSE_S, LOGIN_S = 1.0, 300.0


class Launching:
    """Brings machines up. `gone` is told of one that came and went before anybody logged in."""

    def __init__(
        self,
        api: SkyApi,
        contact: Contact,
        sightings: Sightings,
        ledger: Ledger,
        naming: Naming,
        *,
        gone: Callable[[MachineNote], None],
        now: Callable[[], float],
        pace: Pace,
        lease_s: float,
        idle_minutes: int,
        limit_s: float,
        bucket: str | None,
        mounts: tuple[tuple[str, CloudStorage], ...],
        own_prices: bool,
    ) -> None:
        self._api = api
        self._contact = contact
        self._sightings = sightings
        self._ledger = ledger
        self._naming = naming
        self._gone = gone
        self._now = now
        self._pace = pace
        self._lease_s = lease_s
        self._idle_minutes = idle_minutes
        self._limit_s = limit_s
        self._bucket = bucket
        self._mounts = mounts
        self._own_prices = own_prices

    async def come_up(self, note: MachineNote) -> None:
        """Until a machine is ready, or is over.

        Raises:
            SkyError: it is not, in the time that a launch has or for ever. NotFoundError if SkyPilot has lost
                the request, UnreachableError if SkyPilot does not answer.
        """
        limit_at = self._pace.wall_time(note.asked_at) + self._limit_s
        try:
            await asyncio.wait_for(self._come_up(note), max(0.0, limit_at - self._wall()))
        except asyncio.TimeoutError:
            raise SkyError(f"it was not up within {self._limit_s:g} s (cloud.launch_limit)") from None

    async def _come_up(self, note: MachineNote) -> None:
        await self._request(note)
        await self._log_in(note)

    async def _request(self, note: MachineNote) -> None:
        """Until SkyPilot says that the cluster is up: by our request, or one that was made before a crash."""
        cluster = self._naming.cluster(note.id)
        if note.request is None:
            under_way = await self._api.launching(cluster)
            request = under_way[0] if under_way else None
            if note.asked and request is None and await self._came_and_went(note):
                return
            if note.ending:
                return
            if not note.asked:
                note.asked = True
                self._ledger.save(note)
            # Also if it counts as up: what a launch left that broke off may lack its way in, or its autostop.
            note.request = request or await self._api.launch(self._spec(note, cluster))
            self._ledger.save(note)
        await self._api.wait(note.request)

    async def _came_and_went(self, note: MachineNote) -> bool:
        """Whether an intent had its machine already, which is over: then so is the intent, with its bill."""
        traces = await self._sightings.traces(note)
        if not traces or any(seen.presence is not Presence.ENDED for seen in traces) or note.ending:
            return False
        self._gone(note)
        return True

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
            labels=self._naming.labels(note.id, expiry),
            idle_minutes=self._idle_minutes,
            bucket=self._bucket,
            mounts=self._mounts,
        )

    async def _log_in(self, note: MachineNote) -> None:
        """Until the machine answers."""
        cluster, deadline = self._naming.cluster(note.id), self._wall() + LOGIN_S
        hello = greeting(self._lease_s, self._sightings.switch_s)
        while not (note.ending or note.is_over):
            status = await self._find(cluster)
            if status is None:
                await self._vanished(note)
                return
            self.first_seen(note, status)
            if note.access is None:
                raise SkyError(f"{cluster} is up and SkyPilot does not say how to log in")
            try:
                answer = tended(await self._contact.call(cluster, note.access, "tend", hello))
            except UnreachableError as error:
                traces = await self._sightings.traces(note)
                if traces and all(seen.presence is Presence.ENDED for seen in traces):
                    self._gone(note)
                elif self._wall() >= deadline:
                    raise SkyError(f"{cluster} is up and lets nobody log in: {error}") from error
                await asyncio.sleep(PAUSE_S)
            else:
                await self._take(note, status, answer)
                return

    def first_seen(self, note: MachineNote, status: ClusterStatus) -> None:
        """A machine that SkyPilot lists is billed, whether anybody ever gets through to it or not."""
        if note.launched_at is None:
            began_at = status.launched_at and self._sightings.since_asked(note, status.launched_at)
            note.launched_at = began_at or note.asked_at
        note.access = status.access or note.access
        self._ledger.save(note)

    async def _vanished(self, note: MachineNote) -> None:
        """A machine came up, and SkyPilot lists it no more: this intent ends, with its bill."""
        traces = await self._sightings.traces(note)
        if any(seen.presence is not Presence.ENDED for seen in traces):
            raise SkyError("it came up, and SkyPilot has forgotten it")
        if not note.ending:
            note.launched_at = note.launched_at or note.asked_at
            self._gone(note)

    async def _take(self, note: MachineNote, status: ClusterStatus, answer: Tended) -> None:
        """A machine that answers is up."""
        self._sightings.heard(note.id)
        note.micro_usd = await self._billed(note, status)
        note.launched_at = self._sightings.since_asked(note, answer.booted_at)
        await self._sightings.meet(note, status)
        note.armed = answer.armed
        if not note.ending:
            note.ready = True
            self._ledger.save(note)

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

    async def _find(self, cluster: str) -> ClusterStatus | None:
        return next((status for status in await self._api.clusters() if status.name == cluster), None)

    def _wall(self) -> float:
        return self._pace.wall_time(self._now())


def greeting(lease_s: float, switch_s: float) -> dict[str, Any]:
    """What a machine is told at first: its lease, and when its switch is to end it."""
    return {"lease_s": lease_s, "switch": {"after_s": switch_s}}
