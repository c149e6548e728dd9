"""How a machine ends: through SkyPilot, and where SkyPilot has forgotten it, through its cloud.

A machine is gone when nothing of its intent is left: no launch under way, no cluster in SkyPilot's listing,
no instance in the cloud. Every step may be repeated, so the loop begins anew after each change and error.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from starburst.aio import Backoff
from starburst.clouds.sky.access.ports import (
    ClusterStatus,
    Observation,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.clouds.sky.machines.liveness import Liveness
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.observer import CloudObserver
from starburst.clouds.sky.machines.retention import forgotten_end

log = structlog.get_logger()

#: Wall seconds between attempts: at first, at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
#: Wall seconds after which a cloud certainly finds what it has made.
SETTLED_S = 60.0


async def clear(machine: RentedMachine, observer: CloudObserver) -> None:
    """Until neither SkyPilot nor the cloud has anything of this intent, nor is a launch of it under way."""
    sky, backoff = machine.context.sky, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while not machine.entry.is_mere_intent:
        try:
            await _await_down(machine)
            for request in await sky.launching(machine.cluster):
                await sky.abort(request)
            status = await machine.listed()
            if status is not None:
                await _take_down(machine, status)
                continue
            if await _nothing_left(machine, observer):  # after the launches: none could follow
                if not await observer.rented_nothing(machine):
                    return
                await asyncio.sleep(SETTLED_S)
                if await observer.rented_nothing(machine):
                    machine.entry.launched_at = None  # SkyPilot lists also what it could not rent
                continue
        except SkyNotFoundError:
            pass  # as it should be; the listing decides
        except SkyError as error:
            log.warning("end-waits", instance=machine.id, error=str(error))
            machine.launch_held_up(f"what is left of a launch cannot be ended yet: {error}")
            await observer.note_end(machine)
        await backoff.pause()


async def _take_down(machine: RentedMachine, status: ClusterStatus) -> None:
    with suppress(OSError):  # a full disk holds up no end: after a restart it is asked for again
        if not machine.entry.is_over:
            machine.first_listed(status)
    machine.entry.down = await machine.context.sky.down(status.name)
    with suppress(OSError):
        machine.save()
    await _await_down(machine)


async def _await_down(machine: RentedMachine) -> None:
    """Until SkyPilot has taken the machine down; the cloud may later give the end of the bill exactly."""
    entry, sky = machine.entry, machine.context.sky
    if entry.down is None:
        return
    try:
        await sky.wait(entry.down)
        finished_at = await sky.finished_at(entry.down)
    except SkyUnreachableError:
        raise
    except SkyError:
        entry.down = None
        raise
    entry.down, entry.taken_down = None, True
    entry.down_at = None if finished_at is None else machine.since_asked(finished_at)
    with suppress(OSError):
        machine.save()


async def _nothing_left(machine: RentedMachine, observer: CloudObserver) -> bool:
    """Whether the cloud has no instance of what SkyPilot does not list; an instance that is left is ended."""
    if machine.entry.is_over:
        return True
    found = await observer.instances_of(machine)
    instances: list[Observation | None] = [*found] if found else [None]
    nothing_left = True
    for seen in instances:
        liveness = await observer.judge(machine, seen, None, searched=found is not None)
        if liveness is Liveness.UNKNOWN and not machine.entry.ready:
            machine.launch_held_up("SkyPilot has forgotten it, and nobody says whether its machine lives")
        if liveness in (Liveness.LIVES, Liveness.STOPPED):
            await observer.terminate(machine, seen)
        nothing_left = nothing_left and liveness is Liveness.GONE
    over_at = forgotten_end(machine) if nothing_left and found == [] else None
    if over_at is not None:
        entry = machine.entry
        entry.launched_at = entry.launched_at or entry.asked_at
        if entry.cloud_began_at is None and not entry.ready:
            entry.down_at = min(over_at, entry.down_at or over_at)
    return nothing_left
