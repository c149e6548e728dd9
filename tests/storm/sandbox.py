"""What a process has of its own, made the run's: clocks, random numbers, threads, and looks far apart."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import structlog
from sqlalchemy import create_engine

from starburst.app.reading import requests
from starburst.clouds.sky.attendance import Activity
from starburst.store.store import Store
from tests.storm.loop import StormLoop, nap
from tests.storm.model.http import api_of_process, inline

#: A Monday; windows of caps are those of the calendar.
START = 1_767_571_200.0
#: Looks that in hours of virtual time mostly find nothing are this far apart instead; wall seconds.
LOOKS = {
    "starburst.app.daemon.controller.POLL_S": 120.0,
    "starburst.app.daemon.controller.REAP_S": 360.0,
    "starburst.app.daemon.controller.PRUNE_S": 4 * 3600.0,
    "starburst.app.daemon.cron_ticker.LOOK_S": 1800.0,
    "starburst.app.daemon.retention.ROUND_S": 4 * 3600.0,
    "starburst.app.daemon.performer.LATER_S": 10.0,
    "starburst.clusters.kubernetes.cluster.LOOK_FOR_KINDS_S": 1200.0,
    "starburst.clusters.kubernetes.runs.sweeper.SWEEP_S": 360.0,
    "starburst.clusters.kubernetes.adoption.offload_rights.ROUND_S": 600.0,
    "starburst.kube.reflector.WATCH_S": (1800, 3600),
    "starburst.kube.api.SILENCE_S": 4000.0,
    "starburst.clouds.sky.machines.liveness_watch.QUIET_S": 300.0,
    "starburst.clouds.sky.boot_contact.LOOK_S": 20.0,
    "starburst.bus.outbox.POLL_S": 360.0,
    "starburst.app.leadership.election.LOOK_S": 100.0,
    "starburst.app.leadership.election.HANG_S": 200.0,
    "starburst.runs.fence.LOOK_S": 30.0,
}
#: Smaller here, as a run has few jobs: of an array some are taken up only when others are over.
NUMBERS = {"starburst.app.daemon.request_intake.AHEAD": 1}


class Clock:
    """What the machine of the scheduler takes for the time."""

    def __init__(self, loop: StormLoop) -> None:
        self._loop = loop
        #: How far it is from the time of the world, seconds.
        self.off_s = 0.0

    def time(self) -> float:
        """Epoch seconds."""
        return self._loop.time() + self.off_s

    def since_boot(self, _clock: object = None) -> float:
        """Seconds that nobody sets."""
        return self._loop.time() - START + 1000.0


class _Statements(dict[Any, Any]):
    """What SQLAlchemy made of statements, for all stores of a process: each has a dialect of its own."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Any, ...], made: Any) -> None:
        super().__setitem__(key[1:], made)


_create_engine = partial(create_engine, execution_options={"compiled_cache": _Statements()})


class _Reader:
    """Reads manifests here instead of in another process."""

    @staticmethod
    def read(*question: Any, gone: object = None) -> Any:
        return requests.read(*question)


@cache
def _empty_store() -> bytes:
    """A database file with today's schema."""
    root = Path(mkdtemp())
    with Store.open(root / "db"):
        pass
    body = (root / "db").read_bytes()
    shutil.rmtree(root)
    return body


def new_store(path: Path, controller: str) -> None:
    """An empty database of this controller."""
    path.write_bytes(_empty_store())
    with Store.open(path) as store:
        store.set_fact("controller", controller)


@contextmanager
def sandbox(seed: int) -> Iterator[tuple[StormLoop, Clock]]:
    """A loop and a clock; until the end of the block everything reads this clock and draws from this seed."""
    _empty_store()  # else the first run of a process would draw for it
    api_of_process()
    loop = StormLoop(START, seed)
    clock, draw = Clock(loop), Random(f"{seed}/process")
    count = iter(range(10**9))

    class Seeded(random.Random):
        def __init__(self, x: Any = None) -> None:
            super().__init__(f"{seed}/{next(count)}" if x is None else x)

    changes: dict[str, Any] = {
        **LOOKS,
        **NUMBERS,
        "asyncio.sleep": nap,
        "time.time": clock.time,
        "time.monotonic": clock.since_boot,
        "time.clock_gettime": clock.since_boot,
        "uuid.uuid4": lambda: uuid.UUID(int=draw.getrandbits(128), version=4),
        "secrets.token_hex": lambda size=16: draw.randbytes(size).hex(),
        "secrets.choice": draw.choice,
        "random.Random": Seeded,
        "starburst.store.engine.create_engine": _create_engine,
        "starburst.app.reading.adopted.shared": _Reader,
        "starburst.web.submission_limits.shared": _Reader,
        "anyio.to_thread.run_sync": inline,
        "starburst.clouds.sky.attendance.PAUSES_S": {
            Activity.CHANGING: 5.0,
            Activity.STEADY: 60.0,
            Activity.NONE: 240.0,
        },
        # It asks the server in a loop of its own, in a thread of the API.
        "starburst.app.jobs.submitting._taken_by_the_server": lambda _config, _answer, found: found,
        "tests.kube_unit.store._now": lambda: _stamp(loop.time()),
        "sys.unraisablehook": lambda _args: None,  # the dead are collected at the end
    }
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    loop.set_exception_handler(lambda _loop, context: loop.hear(context))
    with ExitStack() as stack:
        for name, value in changes.items():
            stack.enter_context(patch(name, value))
        asyncio.set_event_loop(loop)
        try:
            yield loop, clock
        finally:
            loop.bury()
            gc.collect()
            asyncio.set_event_loop(None)
            loop.close()
            structlog.reset_defaults()


def _stamp(at: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
