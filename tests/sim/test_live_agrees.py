"""The live scheduler decides what the simulator says: the same things of the same jobs at the same times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.world import SimJob
from sim.world import World as SimWorld
from starburst.app.daemon.controller import Controller
from starburst.core.model.decisions import Decision
from starburst.core.model.events import SiteSynced, Tick
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.views.restoring import restore
from starburst.domain.clock import Pace
from starburst.domain.job import Site, Submission, Workload
from starburst.runs.ports import Report
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.app import fakes
from tests.app.virtual import run, wall
from tests.builders import HOUR, MINUTE, job, nodes, offer

#: Decisions by which jobs wait, start and leave; of the rest sites decide the order.
COMPARED = ("waits", "placed", "offloaded", "succeeded")
NODES, OFFERS = nodes(4, 4), (offer("four", 4, 3),)
BOOT_S = 90.0
#: A month, which is further than any wait.
NEVER_S = 30 * 24 * HOUR


class PromptSite(fakes.FakeSite):
    """Reports what happens when it happens, not when it next looks."""

    async def watch(self, report: Report) -> None:
        self.woken = asyncio.Event()
        told = set()
        report(SiteSynced(self.site, frozenset(), frozenset()))
        while True:
            self.woken.clear()
            for event in self.world.facts(self.site, wall()):
                if event not in told:
                    told.add(event)
                    report(event)
            await asyncio.wait([asyncio.ensure_future(self.woken.wait())], timeout=self._next_s())

    def _next_s(self) -> float:
        """Seconds until a run ends or a machine is ready."""
        world = self.world
        ends = [r.started_at + world.work_s[key[0]] for key, r in world.runs.items() if r.end is None]
        ready = [m.launched_at + world.boot_s for m in world.machines.values() if m.launched_at is not None]
        stops = [m.end_at for m in world.machines.values() if m.end_at is not None]
        return min((at - wall() for at in (*ends, *ready, *stops) if at > wall()), default=NEVER_S)

    async def _call(self, what: str, effect: Any) -> None:
        await super()._call(what, effect)
        self.woken.set()


def jobs() -> list[SimJob]:
    """Twice what the cluster holds, heavy tails; every fourth without an estimate."""
    rng, at = np.random.default_rng(33), MINUTE
    found = []
    for n in range(60):
        at += float(rng.exponential(5 * MINUTE))
        gpus, hours = int(rng.choice([1, 1, 2, 4])), float(rng.lognormal(-1, 1.2))
        told = hours * float(rng.uniform(0.5, 1.5)) if n % 4 else None
        found.append(SimJob(job(f"j{n:02}", gpus, hours=told), at, hours * HOUR))
    return found


def simulated(settings: Settings) -> list[Decision]:
    log: list[Decision] = []

    def on_step(now: float, changes: Changes) -> None:
        log.extend(changes.decisions)

    world = SimWorld(
        Scheduler(settings), NODES, OFFERS, boot_s={o.name: BOOT_S for o in OFFERS}, on_step=on_step
    )
    world.submit(jobs())
    world.run()
    return log


def lived(settings: Settings, path: Path) -> list[Decision]:
    work_s = {item.job.id: item.duration_s for item in jobs()}
    world = fakes.World(NODES, OFFERS, work_s, boot_s=BOOT_S)

    async def main() -> None:
        with Store.open(path) as store, Store.open(path) as users:
            cluster, cloud = (PromptSite(world, site) for site in (Site.CLUSTER, Site.CLOUD))
            scheduler = restore(settings, store.snapshot())
            controller = Controller(store, scheduler, cluster, cloud, Pace(), wall=wall)
            stop = asyncio.Event()
            task = asyncio.ensure_future(controller.run(stop))
            began = wall()
            for item in jobs():
                await asyncio.sleep(began + item.arrival_s - wall())
                users.submit([Submission(item.job, Workload(("work",)))], wall())
                controller._report(Tick())  # as the store is not looked at in between
            while not all(row.phase == "succeeded" for row in queries.jobs(users)):
                await asyncio.sleep(HOUR)
            stop.set()
            await task
            decided.extend(row for item in jobs() for row in queries.decisions(users, item.job.id))

    decided: list[Decision] = []
    run(main())
    assert world.broken == []
    return sorted(decided, key=lambda row: row.seq)


def story(log: Iterable[Decision]) -> list[tuple[int, str, str, object]]:
    """Second, job, decision and reason; seconds from the first decision."""
    rows = [row for row in log if row.kind in COMPARED]
    return [(round(row.at - rows[0].at), row.subject, row.kind, row.numbers.get("why")) for row in rows]


@pytest.mark.sqlite  # virtual time, in which no server answers
@pytest.mark.parametrize(
    ("settings", "reasons"),
    [
        ({"hopeless": "leave"}, {"hopeless", "expired", "spare"}),
        ({"budget_mode": "calibrated"}, {"dear", "hopeless", "expired", "spare"}),
    ],
    ids=["open loop that leaves", "calibrated"],
)
def test_the_live_scheduler_decides_what_the_simulator_says(
    settings: dict[str, Any], reasons: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "tests.app.fakes.CALL_S": 0.0,
        "tests.app.fakes.END_S": 0.0,
        "tests.app.virtual.LIMIT_S": NEVER_S,
        "starburst.app.daemon.controller.POLL_S": NEVER_S,
        "starburst.app.daemon.controller.REAP_S": NEVER_S,
    }.items():
        monkeypatch.setattr(name, value)
    rules = Settings(
        waiting="compute",
        budget_percent=5,
        returns="never",
        prior_runtime_s=10 * MINUTE,
        packer="eva",
        **settings,
    )
    foretold = story(simulated(rules))
    assert {why for *_, why in foretold} == {None} | reasons
    assert story(lived(rules, tmp_path / "starburst.db")) == foretold
