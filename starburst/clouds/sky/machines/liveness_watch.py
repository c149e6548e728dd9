"""Watches whether machines that are up live, and whether SkyPilot knows of them.

A look asks the clouds for the instances by their ids, or by our labels while no id is known; only for
machines whose cloud does not answer does it have SkyPilot refresh its listing, and of our clusters only. If
SkyPilot's listing misses machines that live, its state is lost: that is logged, and ends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import anyio
import structlog

from starburst.aio import Backoff
from starburst.clouds.sky.access.ports import ClusterState, ClusterStatus, Observation, Presence, SkyError
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.liveness import Liveness, by_cloud
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.observer import CloudObserver

log = structlog.get_logger()

#: Wall seconds: between attempts of a look that failed, at first and at most; between looks while no machine
#: is suspected to be gone; and for the first look after a start.
FIRST_PAUSE_S, LONGEST_PAUSE_S, QUIET_S, FIRST_LOOK_S = 1.0, 30.0, 60.0, 30.0

#: What is said of a machine that SkyPilot does not list, by whether somebody says that it lives.
FORGOTTEN = "it lives and goes on; SkyPilot's state, or its tags on the instance, are lost"
UNSURE = "nobody says whether it lives: it does not answer, and neither does its cloud know what became of it"


class LivenessWatch:
    """Looks at all machines of one controller that take runs."""

    def __init__(
        self, context: SkyContext, machines: Mapping[str, RentedMachine], observer: CloudObserver
    ) -> None:
        self._sky = context.sky
        self._clock = context.clock
        self._suspicion = context.suspicion
        self._machines = machines
        self._observer = observer

    async def look_first(self) -> None:
        """Learn what became of all machines; what takes longer than `FIRST_LOOK_S` is learned by `watch`."""
        try:
            with anyio.fail_after(FIRST_LOOK_S):
                await self._look(self._up())
        except (SkyError, TimeoutError) as error:
            log.warning("cloud-does-not-answer", error=str(error) or f"nothing for {FIRST_LOOK_S:g} s")
            for machine in self._up():
                machine.suspect()

    async def watch(self) -> None:
        """Look every `QUIET_S`, and at once at machines that are suspected to be gone."""
        backoff, clock = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), asyncio.get_running_loop().time
        looked_at = clock()  # at all of them
        while True:
            await self._suspicion.wait(QUIET_S)
            up = self._up()
            suspects = [machine for machine in self._machines.values() if machine.is_suspect]
            for machine in suspects:
                machine.is_suspect = False
            meant = [machine for machine in up if machine in suspects]
            if not meant or clock() - looked_at >= QUIET_S:  # one that is always suspected hides no other
                meant = up
            try:
                await self._look(meant)
                backoff.reset()
                looked_at = clock() if meant is up else looked_at
            except SkyError as error:
                pause_s = backoff.next_s()
                log.warning("cloud-does-not-answer", error=str(error), again_in_s=pause_s)
                await asyncio.sleep(pause_s)
                for machine in suspects:
                    machine.is_suspect = True
                self._suspicion.ring()

    def _up(self) -> list[RentedMachine]:
        return [machine for machine in self._machines.values() if machine.takes_runs]

    async def _look(self, machines: list[RentedMachine]) -> None:
        """Settle how machines stand: by their clouds, and by a refreshed listing where those do not say."""
        if not machines:
            return
        seen = await asyncio.gather(*(self._observer.describe(machine) for machine in machines))
        unsure = []
        for machine, observation in zip(machines, seen, strict=True):
            if observation is None or by_cloud(observation.presence) is Liveness.UNKNOWN:
                unsure.append((machine, observation))
            else:
                await self._settle(machine, observation, None)
        names = [machine.cluster for machine, _ in unsure]
        listing = {one.name: one for one in await self._sky.clusters() if one.name not in names}
        if names:
            listing |= {one.name: one for one in await self._sky.clusters(refresh=names)}
        for machine, observation in unsure:
            status = listing.get(machine.cluster)
            await self._settle(machine, observation, None if status is None else status.state)
        for machine in machines:
            if machine.takes_runs:
                await self._compare(machine, listing.get(machine.cluster))

    async def _settle(
        self, machine: RentedMachine, seen: Observation | None, listed: ClusterState | None
    ) -> None:
        """Act on how a machine stands."""
        liveness = await self._observer.judge(machine, seen, listed)
        machine.surely_lives = liveness is Liveness.LIVES
        if liveness is Liveness.GONE and seen is None:
            # By its labels its cloud may still find it, and say when it ended: the bill is until then.
            found = await self._observer.instances_of(machine)
            if any(one.presence is Presence.RUNNING for one in found or ()):
                liveness = Liveness.LIVES
        if not machine.takes_runs:  # its end was requested meanwhile
            return
        if liveness is Liveness.GONE and machine.entry.nodes > 1:
            machine.lost_node()  # others may live: they are ended before the whole counts as gone
        elif liveness is Liveness.GONE:
            machine.gone()
        elif liveness is Liveness.STOPPED:
            log.warning("machine-stopped", instance=machine.id)
            machine.entry.preempted = machine.entry.spot  # clouds take some by a stop: Azure, GCP at first
            if machine.entry.nodes == 1:  # else the others are billed until they have ended, too
                machine.entry.halted_at = machine.entry.halted_at or self._clock.now()
            machine.end_unasked("it was stopped, and is ended now")
        else:
            machine.checked_at = self._clock.now()

    async def _compare(self, machine: RentedMachine, status: ClusterStatus | None) -> None:
        """Journal whether SkyPilot lists a machine that lives, and how it says to log in."""
        entry = machine.entry
        before = (entry.forgotten, entry.access, entry.instances)
        entry.forgotten = status is None
        if entry.forgotten and not before[0]:
            told = FORGOTTEN if machine.surely_lives else UNSURE
            log.error("skypilot-forgot-machine", instance=machine.id, error=told)
        if status is not None:
            entry.note_logins(status)
            if not entry.instances:
                await self._observer.identify(machine, status)
        await self._observer.arm(machine)
        if before != (entry.forgotten, entry.access, entry.instances):
            machine.save()
