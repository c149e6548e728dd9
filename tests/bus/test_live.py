"""A whole Starburst: a job says how far it is, a hint submits it, a broker hears of its life."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import aiomqtt
import pytest

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.app.wiring.build import build
from starburst.runs import processes
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.bus.broker import Mosquitto
from tests.cli.manifests import manifest

LOOP = (
    "import itertools, time; from starburst import iterator; iterator.WINDOW_S = 0.05\n"
    "for _ in iterator.watch(itertools.repeat(0, 10**6), total=10**6): time.sleep(0.001)"
)


async def until(condition: Callable[[], bool], task: asyncio.Task[None]) -> None:
    while not condition():
        assert not task.done(), task.result()
        await asyncio.sleep(0.05)


@pytest.mark.processes
@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_hints_submit_and_cancel_a_job_that_says_when_it_will_end(
    tmp_path: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch, speed: float
) -> None:
    monkeypatch.setattr(processes, "HEAR_S", 0.05)
    bus = {"kind": "mqtt", "host": "127.0.0.1", "port": broker.port, "accept": ["submit", "cancel"]}
    alike = {"run_as": "self"}  # the job imports what only this account may read
    given = {"bus": bus, "clock": {"speed": speed}, "cluster": alike, "debug": {"validate": True}}
    config = parse_config(given, "test")
    home = Home(tmp_path / "home")
    home.make()
    hint = {"id": "1", "manifest": manifest("train", sys.executable, "-c", LOOP)}

    async def main(store: Store, users: Store) -> list[str]:
        controller = build(home, config, store)
        stop = asyncio.Event()
        task = asyncio.create_task(controller.run(stop))
        async with aiomqtt.Client("127.0.0.1", broker.port) as user:
            await user.subscribe("starburst/default/#", 1)
            await anext(user.messages)  # online
            while not queries.jobs(users):
                await user.publish("starburst/default/hints/ada/submit", json.dumps(hint), 1)
                await asyncio.sleep(0.05)
            (job,) = queries.jobs(users)
            await until(lambda: any(row.kind == "Progress" for row in queries.events(users)), task)
            record = queries.record(users, job.id)
            assert record is not None
            assert record.ends_at is not None
            assert record.started_at is not None
            # A million iterations at fewer than a thousand a second of the wall.
            assert record.ends_at - record.started_at >= 990 * speed
            await user.publish("starburst/default/hints/ada/cancel", json.dumps({"job": job.id}), 1)
            decisions = []
            async for message in user.messages:
                if str(message.topic).endswith(f"{job.id}/events"):
                    decisions.append(json.loads(message.payload)["decision"])
                if decisions[-1:] == ["cancelled"]:
                    break
        stop.set()
        await task
        return decisions

    with Store.open(home.database) as store, Store.open(home.database) as users:
        decisions = asyncio.run(asyncio.wait_for(main(store, users), 30))
    assert decisions == ["waits", "placed", "started", "stopping", "cancelled"]
