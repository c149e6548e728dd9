"""A store that fills with decisions, and a bus that tells a broker of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starburst.app.jobs.job_keys import decision_keys, job_keys
from starburst.bus.messages import Topics
from starburst.bus.mqtt import Broker, MqttBus
from starburst.bus.outbox import Outbox
from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from starburst.core.scheduler import Scheduler
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.store.samples import started, step, submission

TOPICS = Topics("lab")
DAY_S = 86_400.0


def outbox(store: Store, keep_s: float = 1000 * 365 * DAY_S) -> Outbox:
    """Of a scheduler whose clock began in 1970; so by default nothing is long over."""
    return Outbox(store, TOPICS, decision=decision_keys, job=job_keys, keep_s=keep_s)


@asynccontextmanager
async def running(
    store: Store, port: int, *, keep_s: float = 1000 * 365 * DAY_S, **of_broker: Any
) -> AsyncIterator[None]:
    """The bus at work."""
    broker = Broker("127.0.0.1", port, "starburst-test", **of_broker)

    async def take(_topic: str, _payload: bytes) -> None:
        """Nobody sends hints."""

    task = asyncio.create_task(MqttBus(broker, TOPICS, outbox(store, keep_s), take=take).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Jobs:
    """Two jobs run at a time on a node of two GPUs; each has a life of four decisions."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 0.0
        self.scheduler: Scheduler = started()
        self.store.commit(step(self.scheduler))

    def live(self, job_ids: Iterable[str]) -> None:
        """They come; and then they run and end, at once."""
        names = list(job_ids)
        self.now += 1
        self.store.commit(
            step(
                self.scheduler,
                now=self.now,
                submissions=[submission(name, runtime_estimate_s=3600.0) for name in names],
            )
        )
        for name in names:
            self.now += 1
            attempt = self.scheduler.state.jobs[name].attempt
            self.scheduler.handle(RunStarted(name, attempt), self.now)
            self.scheduler.handle(RunEnded(name, attempt, RunEnd.EXITED, 0), self.now)
        self.store.commit(step(self.scheduler, now=self.now))

    def logged(self) -> list[dict[str, Any]]:
        """The decision log, as it is told."""
        return [json.loads(json.dumps(decision_keys(row))) for row in queries.decisions(self.store)]

    def states(self) -> dict[str, Any]:
        """All jobs, as they are told."""
        return {
            TOPICS.job_state(row.id): json.loads(json.dumps(job_keys(row)))
            for row in queries.jobs(self.store)
        }


async def until_told(path: Path) -> None:
    """Wait until the broker has taken all there is."""
    with Store.open(path) as store:
        while True:
            last = queries.decisions(store, last=1)
            told = store.fact("bus") or {"seq": 0}
            if last and told["seq"] == last[0].seq:
                return
            await asyncio.sleep(0.02)
