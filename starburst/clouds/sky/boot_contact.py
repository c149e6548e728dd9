"""What a machine is told as soon as it lets anybody log in, while SkyPilot still sets it up.

An instance lets us log in a minute or more before SkyPilot is done with it. Its address is the cloud's, the
login that of the launch; both are known on AWS. It is given a lease, which is renewed until it is up, and its
dead-man switch: a launch that breaks off then ends by itself, whoever has died. And it is told which images
to pull. What goes wrong here is only logged: the first exchange with the machine that is up does it, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from starburst.clouds.sky.access.answers import parse_exchange
from starburst.clouds.sky.access.ports import Access, SkyError
from starburst.clouds.sky.agent.protocol import PullRequest
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.observer import CloudObserver
from starburst.clouds.sky.prefetch import ImagePrefetch

log = structlog.get_logger()

#: Wall seconds between attempts to log in to a machine that comes up; and renewals in the time of a lease.
LOOK_S, RENEWALS = 5.0, 3


@dataclass(slots=True)
class Booting:
    """What is known of the instances of a machine that comes up."""

    #: How to log in to any of them, without the host.
    login: Access | None = None
    #: Addresses of all, once all are there.
    hosts: list[str] = field(default_factory=list)
    #: When each was last given its lease, wall seconds.
    leased_at: dict[str, float] = field(default_factory=dict)
    #: Ids of those that end when they shut themselves down, as far as their cloud takes that order.
    told: set[str] = field(default_factory=set)
    #: Names under which the transport knows keys of their hosts.
    met: set[str] = field(default_factory=set)


class BootContact:
    """The exchanges with machines that come up."""

    def __init__(self, context: SkyContext, observer: CloudObserver, prefetch: ImagePrefetch) -> None:
        self._context = context
        self._observer = observer
        self._prefetch = prefetch

    def ensure(self, machine: RentedMachine) -> None:
        """See to it that a machine that comes up is looked after; returns at once."""
        if machine.is_coming_up:
            self._context.tasks.ensure(("boot", machine.id), partial(self._attend, machine))

    async def _attend(self, machine: RentedMachine) -> None:
        """Until it is up, or about to end: then others talk to it."""
        booting = Booting()
        try:
            while machine.is_coming_up:
                try:
                    await self._look(machine, booting)
                except (SkyError, ValueError) as error:
                    booting.hosts = []  # another instance may have come in its place
                    log.debug("no-boot-contact", instance=machine.id, error=str(error))
                await asyncio.sleep(LOOK_S)
        finally:
            self._prefetch.forget(machine.id)
            for name in booting.met:
                self._context.transport.forget(name)

    async def _look(self, machine: RentedMachine, booting: Booting) -> None:
        """Do what is due; it needs all instances of the machine.

        Raises:
            SkyError: cloud, SkyPilot or machine does not answer.
            ValueError: its offer or an answer cannot be read.
        """
        booting.hosts = booting.hosts or await self._hosts(machine, booting)
        if not booting.hosts:
            return
        if booting.login is None:
            status = await machine.listed()
            booting.login = None if status is None else status.login
        if booting.login is None:
            return
        places = [replace(booting.login, host=host) for host in booting.hosts]
        booting.met |= {_name(machine, access) for access in places}
        for access in places:
            await self._lease(machine, access, booting)
        if images := await self._prefetch.expected(machine.id):
            asked: PullRequest = {"images": images}
            for access in places:
                await self._context.transport.call(_name(machine, access), access, "pull", asked)
            self._prefetch.told(machine.id)
            log.info("images-prefetched", instance=machine.id, images=[one["image"] for one in images])

    async def _hosts(self, machine: RentedMachine, booting: Booting) -> list[str]:
        """The addresses of all its instances, which are told to end when they shut down; [] before."""
        seen = await self._observer.booting(machine)
        for one in () if machine.entry.spot else seen:
            told = booting.told
            if one.at.instance not in told and await self._observer.terminate_on_shutdown(machine, one.at):
                told.add(one.at.instance)
        hosts = sorted(one.address for one in seen if one.address)
        return hosts if len(hosts) == machine.entry.nodes else []

    async def _lease(self, machine: RentedMachine, access: Access, booting: Booting) -> None:
        """Renew the lease of an instance, if that is due, and arm its switch."""
        now, context = self._context.clock.wall(), self._context
        leased_at = booting.leased_at.get(access.host)
        if leased_at is not None and now - leased_at < context.settings.lease_s / RENEWALS:
            return
        answer = await context.transport.call(_name(machine, access), access, "exchange", machine.hello())
        if parse_exchange(answer).armed:
            booting.leased_at[access.host] = now
        if leased_at is None:
            log.info("met-while-booting", instance=machine.id, host=access.host)


def _name(machine: RentedMachine, access: Access) -> str:
    """The name of an instance for the transport: one that comes in its place has another address and key."""
    return f"{machine.cluster}-boot-{access.host}"
