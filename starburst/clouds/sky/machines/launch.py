"""How a machine comes up: one launch request per intent, then the first login, within a time limit.

The intent is journaled before SkyPilot is asked, and the request's id before its result is awaited. A crash
in between is mended at the next start: a launch that is under way is found by its cluster's name, and an
intent whose instance has come and gone already is over, with its bill.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import anyio
import structlog

from starburst.aio import Backoff
from starburst.clouds.sky.access.answers import MachineState
from starburst.clouds.sky.access.ports import (
    CapacityError,
    ClusterStatus,
    LaunchSpec,
    LocalError,
    Presence,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.clouds.sky.machines.entry import save_machine
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.observer import CloudObserver
from starburst.clouds.sky.machines.price import ask_price, is_priced
from starburst.clouds.sky.machines.teardown import clear
from starburst.clouds.sky.network_tier import network_tier
from starburst.clouds.sky.offers import OfferName
from translator.carried import CloudStorage

log = structlog.get_logger()

#: Wall seconds: between attempts of a launch, at first and at most; between attempts to log in; and for a
#: machine that is up to let somebody log in.
FIRST_PAUSE_S, LONGEST_PAUSE_S, LOGIN_PAUSE_S, LOGIN_S = 1.0, 30.0, 1.0, 300.0
#: Why an intent is not launched whose cluster SkyPilot has already: it may run jobs that are not known here.
TAKEN = (
    "SkyPilot has a cluster {} already, which is not in this home; if the home is an older copy of itself, "
    "that machine is ended after cloud.reap_after"
)
#: Why a launch has failed of which SkyPilot lists more machines than it was asked for.
TOO_MANY = (
    "{} has {} machines in place of {}: SkyPilot asked the cloud again when an answer was lost; "
    "all of them are ended and billed"
)


async def launch(machine: RentedMachine, observer: CloudObserver) -> None:
    """Bring a machine up from wherever its launch stands; returns when it is ready, over, or to end."""
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while machine.is_coming_up:
        try:
            await _launch_in_time(machine, observer)
        except SkyNotFoundError as error:  # the API server lost the request
            log.warning("launch-again", instance=machine.id, error=str(error))
            machine.entry.request = None
            machine.save()
            await backoff.pause()
        except (SkyUnreachableError, LocalError) as error:
            log.warning("launch-waits", instance=machine.id, error=str(error))
            machine.launch_held_up(str(error))
            await backoff.pause()
        except SkyError as error:
            if not machine.entry.ending:
                await _fail(machine, observer, error)


async def _fail(machine: RentedMachine, observer: CloudObserver, error: SkyError) -> None:
    """Clear the cloud of what a failed launch left there, then count it as failed."""
    log.warning("launch-failed", instance=machine.id, error=str(error))
    await clear(machine, observer)
    if not machine.entry.ending:
        machine.failed(str(error), sold_out=isinstance(error, CapacityError))


async def _launch_in_time(machine: RentedMachine, observer: CloudObserver) -> None:
    """Until a machine is ready, over, or to end.

    Raises:
        SkyNotFoundError: SkyPilot has lost the request.
        SkyUnreachableError: SkyPilot does not answer.
        LocalError: nobody can log in from here now.
        SkyError: the launch failed, or took longer than its limit.
    """
    context = machine.context
    limit_s = context.settings.launch_limit_s
    left_s = context.clock.pace.wall_time(machine.entry.asked_at) + limit_s - context.clock.wall()
    try:
        with anyio.fail_after(max(0.0, left_s)):
            await _request(machine, observer)
            await _log_in(machine, observer)
    except TimeoutError:
        raise SkyError(f"it was not up within {limit_s:g} s (cloud.launch_limit)") from None


async def _request(machine: RentedMachine, observer: CloudObserver) -> None:
    """Until SkyPilot says that the cluster is up: by a new request, or by one from before a crash."""
    entry, sky = machine.entry, machine.context.sky
    if entry.request is None:
        under_way = await sky.launching(machine.cluster)
        request = under_way[0] if under_way else None
        if entry.asked and request is None and await _came_and_went(machine, observer):
            return
        taken = not entry.asked and request is None and await machine.listed() is not None
        if entry.ending:
            return
        if taken:
            machine.failed(TAKEN.format(machine.cluster), sold_out=False)
            return
        if not entry.asked:
            save_machine(machine.context.journal, replace(entry, asked=True))
            entry.asked = True  # after that: what a full disk has not noted is not done at the next try
        # Also if the cluster is up: a launch that broke off may have left it without access or autostop.
        entry.request = request or await sky.launch(_spec(machine))
        machine.save()
    machine.launch_held_up("")
    await sky.wait(entry.request)


async def _came_and_went(machine: RentedMachine, observer: CloudObserver) -> bool:
    """Whether the intent had its instance already, which is over; then the machine is gone."""
    instances = await observer.instances_of(machine)
    if not instances or machine.entry.ending:
        return False
    if any(seen.presence is not Presence.ENDED for seen in instances):
        return False
    machine.gone()
    return True


def launch_spec(
    place: OfferName,
    nodes: int,
    idle_minutes: int,
    bucket: str | None,
    mounts: tuple[tuple[str, CloudStorage], ...],
    *,
    tier: str,
) -> LaunchSpec:
    """What is launched for an offer, but for the cluster's name and labels; `tier`: cloud.network_tier."""
    return LaunchSpec(
        cluster="",
        infra=place.infra,
        instance_type=place.instance_type,
        spot=place.spot,
        labels=(),
        idle_minutes=idle_minutes,
        bucket=bucket,
        mounts=mounts,
        nodes=nodes,
        network_tier=network_tier(place, nodes, tier),
    )


def _spec(machine: RentedMachine) -> LaunchSpec:
    context = machine.context
    try:
        place = OfferName.parse(machine.entry.offer)
    except ValueError as error:
        raise SkyError(str(error)) from None
    settings = context.settings
    expiry = context.clock.wall() + settings.lease_s + 60 * settings.idle_minutes
    labels = context.naming.labels(machine.id, machine.entry.asked_at, expiry)
    spec = launch_spec(
        place,
        machine.entry.nodes,
        settings.idle_minutes,
        settings.bucket,
        context.mounts,
        tier=settings.network_tier,
    )
    return replace(spec, cluster=machine.cluster, labels=labels)


async def _log_in(machine: RentedMachine, observer: CloudObserver) -> None:
    """Until the machine answers, is over, or is to end."""
    cluster, deadline = machine.cluster, machine.context.clock.wall() + LOGIN_S
    while machine.is_coming_up:
        status = await machine.listed()
        if status is None:
            await _vanished(machine, observer)
            return
        machine.first_listed(status)
        if len(status.workers_at) >= machine.entry.nodes:
            raise SkyError(TOO_MANY.format(cluster, 1 + len(status.workers_at), machine.entry.nodes))
        if machine.entry.access is None or len(machine.entry.workers) != machine.entry.nodes - 1:
            raise SkyError(f"{cluster} is up and SkyPilot does not say how to log in")
        try:
            answer = await machine.greet()
        except SkyUnreachableError as error:
            instances = await observer.instances_of(machine)
            if instances and all(seen.presence is Presence.ENDED for seen in instances):
                machine.gone()
            elif machine.context.clock.wall() >= deadline:
                raise SkyError(f"{cluster} is up and lets nobody log in: {error}") from error
            await asyncio.sleep(LOGIN_PAUSE_S)
        else:
            await _logged_in(machine, observer, status, answer)
            return


async def _vanished(machine: RentedMachine, observer: CloudObserver) -> None:
    """The machine came up and SkyPilot lists it no more: if its instance is over, so is the intent."""
    instances = await observer.instances_of(machine)
    machine.entry.launched_at = machine.entry.launched_at or machine.entry.asked_at
    if instances is None or any(seen.presence is not Presence.ENDED for seen in instances):
        raise SkyError("it came up, and SkyPilot has forgotten it")
    if not machine.entry.ending:
        machine.gone()


async def _logged_in(
    machine: RentedMachine, observer: CloudObserver, status: ClusterStatus, answer: MachineState
) -> None:
    """The machine has answered: note its price, its boot and its instance; from now on it takes runs."""
    entry = machine.entry
    machine.heard()
    if not is_priced(machine):
        await ask_price(machine, status)
    entry.launched_at = machine.since_asked(answer.booted_at)
    await observer.identify(machine, status)
    entry.armed = answer.armed
    if not entry.ending:
        entry.ready = True
        machine.save()
