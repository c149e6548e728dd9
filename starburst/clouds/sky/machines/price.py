"""What a machine costs, by SkyPilot: asked at its first login, and again until SkyPilot has answered.

It counts from the machine's launch, whenever it is learnt; until then the price of the offer counts.
"""

from __future__ import annotations

import structlog

from starburst.aio import Backoff
from starburst.clouds.sky.access.ports import ClusterStatus, SkyError
from starburst.clouds.sky.machines.machine import RentedMachine

log = structlog.get_logger()

#: Wall seconds between two questions, at first and at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 15.0, 600.0


async def ask_price(machine: RentedMachine, status: ClusterStatus) -> None:
    """Ask once, and note the answer; `status` is the machine as SkyPilot lists it."""
    try:
        rate = await machine.context.sky.rate(status)
    except SkyError as error:
        log.warning("rate-unknown", instance=machine.id, error=str(error))
        return
    machine.priced = True
    if rate is not None:
        each = rate + machine.context.settings.extra
        machine.entry.micro_usd = each.micro_usd * machine.entry.nodes


def is_priced(machine: RentedMachine) -> bool:
    """Whether its price is known, or is not for SkyPilot to say."""
    own = machine.context.settings.own_prices
    return own or machine.priced or machine.entry.micro_usd is not None


async def learn_price(machine: RentedMachine) -> None:
    """Until the price of a machine is known and reported, or it takes no more runs. May be repeated."""
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while machine.takes_runs and not is_priced(machine):
        await backoff.pause()
        try:
            status = await machine.listed()
        except SkyError:
            continue
        if status is not None and machine.takes_runs:
            await ask_price(machine, status)
            if machine.entry.micro_usd is not None:
                machine.save()
                machine.report_state()
