"""A job's explanation from what is around it is that from all jobs, at any length of the queue."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from bench.queue import make, nodes, offers, step, take_in
from starburst.app.config import parse_config
from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.app.times import local_clock
from starburst.app.wiring.stored import live_core
from starburst.core.model.events import NodesChanged, OffersChanged
from starburst.core.scheduler import Scheduler
from starburst.core.views.explain import explain
from starburst.domain.job import CloudChoice
from starburst.store.listings import queries
from starburst.store.listings.around_job import around_job
from starburst.store.store import Store
from tests.cli.past import NOON, Past


def filled(store: Store, jobs: int = 60, **policy: Any) -> None:
    """Jobs of four sizes, of which most wait for two nodes."""
    config = parse_config({"policy": {"waiting": "compute", **policy}}, "test")
    store.set_fact("config", config.model_dump(mode="json"))
    store.set_fact("clock", {"origin": 0.0, "speed": 1e-12, "start": 2.0})
    store.submit(make(range(jobs), random.Random(3)), 0.0)
    scheduler = Scheduler(config.settings())
    step(store, scheduler, [NodesChanged(nodes()[:2]), OffersChanged(offers())], [], 0.0)
    take_in(store, scheduler)


@pytest.mark.parametrize("policy", [{}, {"order": "fair"}, {"order": "vqs"}, {"budget_mode": "calibrated"}])
def test_it_is_explained_as_by_the_whole_scheduler(tmp_path: Path, policy: dict[str, str]) -> None:
    with Store.open(tmp_path / "starburst.db") as store:
        filled(store, **policy)
        state, snapshots = live_core(store).state, SnapshotCache(store)
        rows = [row for row in queries.jobs(store) if row.id in state.jobs]
        assert {row.phase for row in rows} >= {"queued", "starting"}
        for row in rows:
            assert snapshots.explanation(row) == explain(state, state.jobs[row.id], local_clock(state.now)), (
                row
            )


def test_the_other_jobs_in_the_queue_are_counted_and_not_read(tmp_path: Path) -> None:
    with Store.open(tmp_path / "starburst.db") as store:
        filled(store)
        last = queries.jobs(store, phases=["queued"])[-1]
        around = around_job(store, last.id)
        assert around is not None
        assert [record.id for record in around.snapshot.jobs] == [last.id]
        assert around.position > 1
        assert around_job(store, "nobody") is None


def test_the_estimates_of_its_user_count_by_what_past_ones_were_worth(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Past.begin(home / "starburst.db", NOON) as past, Store.open(home / "starburst.db") as store:
        past.submit("first-11111", 1, runtime_estimate_s=36_000.0)
        past.start("first-11111")
        past.now += 360
        past.end("first-11111")
        past.submit("busy-22222", 4)
        past.submit("next-33333", 2, runtime_estimate_s=36_000.0)
        (row,) = [row for row in queries.jobs(store) if row.id == "next-33333"]
        told = SnapshotCache(store).explanation(row)
        assert told.sentence.endswith(
            "(Compute-Wait with 75% of the 10 h estimated, as past "
            "estimates of ada were too long: 2 GPU × 7.52 h × α 0.08 = 72.2 min); 1st in line for 2 GPUs; "
            "would then cost about $15.34 on p3.2xlarge"
        )


def test_a_job_comes_after_one_that_is_in_the_cloud(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Past.begin(home / "starburst.db", NOON) as past, Store.open(home / "starburst.db") as store:
        past.submit("first-11111", 1, cloud=CloudChoice.ONLY)
        past.submit("next-22222", 1, after_ok=("first-11111",))
        (row,) = [row for row in queries.jobs(store) if row.id == "next-22222"]
        assert "first-11111 is offloading" in SnapshotCache(store).explanation(row).sentence
