"""What becomes known of machines beside SkyPilot: by their clouds, by themselves, by their silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from starburst.clouds.sky.access.ports import (
    CloudApi,
    ClusterState,
    ClusterStatus,
    InstanceRef,
    MachineTransport,
    Observation,
    Presence,
    SkyError,
)
from starburst.clouds.sky.journal import MachineEntry
from starburst.clouds.sky.machines.liveness import Liveness, by_cloud, verdict
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.offers import OfferName
from starburst.domain.clock import Pace

log = structlog.get_logger()

#: Wall seconds: from the time that SkyPilot should have ended a machine by until its own switch does, from
#: then until it is down for certain, and for the cloud to say which instance has just come up.
SWITCH_S, DOWN_S, MEET_S = 300.0, 300.0, 10.0


class CloudObserver:
    """Of all machines of one controller."""

    def __init__(
        self,
        clouds: CloudApi,
        contact: MachineTransport,
        naming: Naming,
        pace: Pace,
        now: Callable[[], float],
        *,
        lease_s: float,
        idle_minutes: int,
    ) -> None:
        self._clouds = clouds
        self._contact = contact
        self._naming = naming
        self._pace = pace
        self._now = now
        #: Seconds after its lease at which a machine shuts itself down.
        self.switch_s = 60 * idle_minutes + SWITCH_S
        self._over_s = lease_s + self.switch_s + DOWN_S
        self._begun_at = self._wall()
        #: Whether any cloud ever answered here: if so, an error is a passing one.
        self._sees = False
        #: Machines that their cloud did not name, told of once.
        self._unnamed: set[str] = set()
        self._heard_at: dict[str, float] = {}

    def heard(self, instance_id: str) -> None:
        """A machine has answered."""
        self._heard_at[instance_id] = self._wall()

    async def meet(self, note: MachineEntry, status: ClusterStatus) -> None:
        """Learn which instance a machine is that answers: from then on its cloud is asked for it by its id.

        Until its cloud has named it so once, it is not known that these credentials see it.
        """
        if status.at is None:
            return
        try:
            seen = await asyncio.wait_for(self._clouds.sight(status.at), MEET_S)
        except (SkyError, asyncio.TimeoutError) as error:
            if note.id not in self._unnamed:
                log.warning("cloud-not-asked", instance=note.id, error=str(error) or "no answer")
            self._unnamed.add(note.id)
            return
        self._sees = True
        if seen.presence is Presence.RUNNING:
            note.at = seen.at
            self.book(note, [seen])
            if not note.spot:  # which ends in any case
                await self._arm(note, seen.at)

    async def _arm(self, note: MachineEntry, at: InstanceRef) -> None:
        """Have an instance end that shuts itself down."""
        try:
            ends = await asyncio.wait_for(self._clouds.arm(at), MEET_S)
            why = "" if ends else f"{at.provider} does not take that order"
        except (SkyError, asyncio.TimeoutError) as error:
            why = str(error) or "no answer"
        if why:
            log.warning("shut-down-only-stops-it", instance=note.id, why=why)

    async def ask(self, note: MachineEntry) -> Observation | None:
        """What its cloud says of a machine by its id; None if that is not known."""
        if note.at is None:
            return None
        try:
            seen = await self._clouds.sight(note.at)
        except SkyError as error:
            log.warning("cloud-not-asked", instance=note.id, error=str(error))
            return None
        self._sees = True
        self.book(note, [seen])
        return seen

    async def traces(self, note: MachineEntry) -> list[Observation]:
        """Instances that an intent made, by our labels, as far as the cloud tells; also such as are over.

        Raises:
            SkyError: a cloud that can be asked from here does not answer just now.
        """
        if note.at is not None:
            seen = await self.ask(note)
            return [] if seen is None else [seen]
        try:
            place = OfferName.of(note.offer)
            provider, _, rest = place.infra.partition("/")
            region = rest.partition("/")[0]
            found = await self._clouds.search(provider, region, self._naming.intent(note.id))
        except ValueError:  # it was never launched by us
            return []
        except SkyError as error:
            if self._sees:
                raise
            log.warning("cloud-not-asked", instance=note.id, error=str(error))
            return []
        self._sees = True
        # Labels may be those of another store's life; a machine is not older than its intent.
        mine = [one for one in found or () if self._is_of(note, one)]
        self.book(note, mine)
        return mine

    def _is_of(self, note: MachineEntry, seen: Observation) -> bool:
        slack_s = 60.0  # clocks differ
        begun = None if seen.launched_at is None else self._pace.scheduler_time(seen.launched_at + slack_s)
        return begun is None or begun >= note.asked_at

    async def judge(
        self, note: MachineEntry, seen: Observation | None, listed: ClusterState | None
    ) -> Liveness:
        """How a machine stands that a refreshed listing has or has not."""
        presence = None if seen is None else seen.presence
        told = by_cloud(presence)
        if told is not Liveness.UNKNOWN:
            return told
        over = note.taken_down or not note.ready or self._is_overdue(note)
        # Asked anew: an answer from before the cloud was asked would prove nothing.
        asks = listed is None or presence in (Presence.ABSENT, Presence.ENDING)
        return verdict(presence, listed, answers=asks and await self.answers(note), surely_over=over)

    async def answers(self, note: MachineEntry) -> bool:
        """Whether a machine lets us log in, by what SkyPilot last said of how."""
        if note.access is None:
            return False
        try:
            await self._contact.call(self._naming.cluster(note.id), note.access, "tend", {})
        except SkyError:
            return False
        self.heard(note.id)
        return True

    async def end(self, note: MachineEntry, seen: Observation | None) -> None:
        """End a machine that SkyPilot does not know: by its id, else by itself. The cloud's answer counts."""
        at = note.at if seen is None else seen.at
        log.warning("ended-without-skypilot", instance=note.id, at=None if at is None else at.instance)
        try:
            if at is not None:
                await self._clouds.end(at)
                return
        except SkyError as error:
            log.warning("cloud-ends-it-not", instance=note.id, error=str(error))
        if note.access is not None:
            await self._contact.call(self._naming.cluster(note.id), note.access, "retire", {})

    def book(self, note: MachineEntry, seen: Sequence[Observation]) -> None:
        """What a cloud says of the times of a bill counts before what anybody else says.

        Of several instances of one intent the bill is from the first to the last.
        """
        begun = [one.launched_at for one in seen if one.launched_at is not None]
        ended = [one.ended_at for one in seen if one.ended_at is not None]
        if begun:
            note.launched_at = self.since_asked(note, min(begun))
        if any(one.presence is Presence.RUNNING for one in seen):
            note.halted_at = None
        elif ended and len(ended) == len(seen):  # stopped first and ended later: not billed in between
            halted_at = self.since_asked(note, max(ended))
            note.halted_at = halted_at if note.halted_at is None else min(note.halted_at, halted_at)

    def since_asked(self, note: MachineEntry, epoch_s: float) -> float:
        """Another clock's time as the scheduler's: neither before the intent nor in the future."""
        return min(max(note.asked_at, self._pace.scheduler_time(epoch_s)), self._now())

    def _is_overdue(self, note: MachineEntry) -> bool:
        """Whether a machine has been silent for so long that its switch must have ended it."""
        silent_s = self._wall() - self._heard_at.get(note.id, self._begun_at)
        return note.armed and silent_s >= self._over_s

    def _wall(self) -> float:
        return self._pace.wall_time(self._now())
