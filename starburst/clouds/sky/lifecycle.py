"""The life of one rented machine: launch → log in → attend → end, each phase entered once.

A machine's end may be requested, or its cloud may have it no more, at any time. Then the loop moves on at
once, while the phase before finishes by itself: a launch request that is under way cannot be taken back, so
the end keeps clearing the cloud until that request has been answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from starburst.clouds.sky.attendance import Attendance
from starburst.clouds.sky.machines.launch import launch
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.observer import CloudObserver
from starburst.clouds.sky.machines.teardown import FIRST_PAUSE_S, clear
from starburst.clouds.sky.runs.exchange import Exchanges


async def live(machine: RentedMachine, observer: CloudObserver, exchanges: Exchanges) -> None:
    """Take a machine from where its journal entry stands to its end."""
    starting: asyncio.Task[None] | None = None
    if machine.is_coming_up:
        starting = await _phase(machine, "launch", partial(launch, machine, observer))
        if _broke_off(starting):
            return
        if machine.takes_runs:
            machine.report_state()
        elif machine.entry.is_over and not machine.entry.ending:  # the launch has left nothing
            return
    if machine.takes_runs:
        attending = await _phase(machine, "attend", Attendance(machine, exchanges).run)
        if _broke_off(attending):
            return
    if machine.entry.is_over:
        exchanges.table.machine_gone(machine.id)
    while starting is not None and not starting.done():  # it may be asking for a machine just now
        await clear(machine, observer)
        await machine.turn.wait(FIRST_PAUSE_S)
    await clear(machine, observer)
    if not machine.entry.is_over:
        machine.gone()
        exchanges.table.machine_gone(machine.id)


async def _phase(
    machine: RentedMachine, name: str, work: Callable[[], Awaitable[None]]
) -> asyncio.Task[None]:
    """Start a phase and wait until it ends, or until the machine is to end or over; its task."""

    async def run() -> None:
        try:
            await work()
        finally:
            machine.turn.ring()

    task = machine.context.tasks.ensure((name, machine.id), run)
    while not (task.done() or machine.entry.ending or machine.entry.is_over):
        await machine.turn.wait()
    return task


def _broke_off(phase: asyncio.Task[None]) -> bool:
    """Whether a phase failed, as on a full disk: that is no end, for whoever watches begins it anew."""
    return phase.done() and (phase.cancelled() or phase.exception() is not None)
