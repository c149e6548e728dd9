"""Has the store roll up old jobs, in small transactions between those of the scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from starburst.app.config import Config
from starburst.app.daemon.shortages import ShortageRetry
from starburst.store.store import Store
from starburst.store.upkeep.rollup import roll_up

log = structlog.get_logger()

#: Wall seconds between two passes, and between two transactions of one: steps go first.
ROUND_S = 3600.0
PAUSE_S = 0.02


def kept_s(config: Config, speed: float) -> float:
    """Wall seconds from a job's end until it is rolled up; 0 is for ever.

    A broker retains its state for `bus.keep` seconds of the scheduler's clock, and only of a job that is in
    the store it is known then that it is to be cleared.
    """
    if not config.home.keep or config.bus.kind != "mqtt":
        return config.home.keep
    return max(config.home.keep, config.bus.keep / speed + ROUND_S)


async def keep_small(store: Store, before: Callable[[], float], patience: ShortageRetry) -> None:
    """Roll up what ended before a scheduler time, again and again until cancelled."""
    while True:
        removed = await _pass(store, before(), patience)
        if removed:
            log.info("rolled-up", rows=removed)
        await asyncio.sleep(ROUND_S)


async def _pass(store: Store, before: float, patience: ShortageRetry) -> int:
    """One pass; the number of removed rows. After a shortage the next pass goes on."""
    passes, removed = roll_up(store, before, time.time()), 0

    async def one() -> int | None:
        return await store.in_order(lambda: next(passes, None))

    while (rows := await patience.outlast("prune", one)) is not None:
        removed += rows
        await asyncio.sleep(PAUSE_S)
    return removed
