"""Keeps our machines alive while we are, and ends those that nobody claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from starburst.app.within import within
from starburst.domain.cloud import InstancePhase
from starburst.runs.ports import Cloud

log = structlog.get_logger()

ENDED = (InstancePhase.GONE, InstancePhase.FAILED)
#: Wall seconds.
CALL_TIMEOUT_S = 60.0


async def reap(cloud: Cloud, claimed: Callable[[], set[str]], period_s: float) -> None:
    """Do one round every `period_s` wall seconds, for ever; a failed round is logged and repeated."""
    while True:
        try:
            await within(CALL_TIMEOUT_S, reap_once(cloud, claimed))
        except Exception as error:  # an adapter may fail in any way; the next round tries again
            log.warning("reaper-failed", error=repr(error))
        await asyncio.sleep(period_s)


async def reap_once(cloud: Cloud, claimed: Callable[[], set[str]]) -> None:
    """Put off the dead-man switches of claimed machines, and end the others.

    The cloud is listed first and the claims are read second: every machine of the list was an intent in the
    store before it was launched, so one that nobody claims by then is nobody's.
    """
    machines = [machine for machine in await cloud.owned() if machine.phase not in ENDED]
    ours = claimed()
    await cloud.renew([machine.id for machine in machines if machine.id in ours])
    for machine in machines:
        if machine.id not in ours:
            log.warning("reaped", instance=machine.id, offer=machine.offer_name)
            await cloud.terminate(machine.id)
