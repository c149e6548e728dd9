"""Putting a Starburst together: of which cluster, and when not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.aio import running
from starburst.app.config import Config, parse_config
from starburst.app.config.home import Home
from starburst.app.daemon.retention import ROUND_S, kept_s
from starburst.app.errors import UserError
from starburst.app.wiring.build import build
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.job import Adopted, CloudChoice, Job, Submission, Workload
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import AttemptDir
from starburst.store.listings import queries
from tests.cli.past import NOON, Past

DAY_S = 86_400.0
KUBERNETES = parse_config({"cluster": {"kind": "kubernetes"}}, "test")


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    with Past.begin(tmp_path / "home" / "starburst.db", NOON) as begun:
        yield begun


def ran_with(past: Past, config: Config) -> None:
    past.store.set_fact("config", config.model_dump(mode="json"))


def start(past: Past, tmp_path: Path, config: Config) -> None:
    build(Home(tmp_path / "home"), config, past.store)


def test_a_kubernetes_cluster_is_put_together_without_being_asked_anything(
    past: Past, tmp_path: Path
) -> None:
    start(past, tmp_path, KUBERNETES)
    stored = parse_config(past.store.fact("config"), "stored")
    assert stored == KUBERNETES


@pytest.mark.parametrize(
    ("last", "now"), [(KUBERNETES, Config()), (Config(), KUBERNETES)], ids=["to-local", "to-kubernetes"]
)
def test_a_home_whose_jobs_run_on_one_cluster_is_not_started_on_another(
    past: Past, tmp_path: Path, last: Config, now: Config
) -> None:
    ran_with(past, last)
    past.submit("train-44444")
    past.start("train-44444")
    with pytest.raises(UserError) as refused:
        start(past, tmp_path, now)
    assert str(refused.value) == (
        f"cluster.kind: {now.cluster.kind}: 1 of this home's jobs live on its {last.cluster.kind} cluster, "
        "such as train-44444; start with that config, cancel them there, "
        "or set STARBURST_HOME to another home"
    )
    assert past.store.fact("config") == last.model_dump(mode="json"), "nothing was changed"
    past.end("train-44444")
    start(past, tmp_path, now)


def test_an_adopted_job_that_waits_holds_its_home_to_its_cluster_too(past: Past, tmp_path: Path) -> None:
    ran_with(past, KUBERNETES)
    job = Job("found-1", "found", (Resources.of(1),))
    workload = Workload(adopted=Adopted("Job", "default", "found", "uid"))
    past.store.submit([Submission(job, workload)], 0.0)
    with pytest.raises(UserError, match="found-1"):
        start(past, tmp_path, Config())
    start(past, tmp_path, KUBERNETES)


@pytest.mark.parametrize(
    ("keep", "left"), [("30d", ["live-1", "new-1"]), ("1h", ["live-1"]), ("0", ["live-1", "new-1", "old-1"])]
)
def test_what_ended_longer_ago_than_the_home_keeps_is_removed_at_a_start(
    past: Past, tmp_path: Path, keep: str, left: list[str]
) -> None:
    past.submit("live-1", cloud=CloudChoice.NEVER, gpus=9)
    home, config = Home(tmp_path / "home"), parse_config({"home": {"keep": keep}}, "test")
    for job_id, days in {"old-1": 31, "new-1": 29, "live-1": 31}.items():
        attempt = AttemptDir.of(home.cluster, job_id, 1)
        attempt.claim_ended(RunEnded(job_id, 1, RunEnd.EXITED, 0))
        at = time.time() - days * 86_400
        os.utime(attempt.path / "end.json", (at, at))
    stop = asyncio.Event()
    stop.set()
    asyncio.run(build(home, config, past.store).run(stop))
    assert sorted(path.name for path in home.cluster.iterdir()) == left


def test_the_store_rolls_up_jobs_that_ended_longer_ago_while_the_scheduler_runs(
    past: Past, tmp_path: Path
) -> None:
    past.submit("old-1")
    past.start("old-1")
    past.end("old-1")
    past.submit("live-1", hold=True)
    past.store.set_fact("clock", {"origin": time.time() - 7200, "speed": 1.0, "start": past.now})
    controller = build(Home(tmp_path / "home"), parse_config({"home": {"keep": "1h"}}, "test"), past.store)

    async def live() -> None:
        stop = asyncio.Event()
        async with running(controller.run(stop), "controller"):
            end = time.monotonic() + 30
            while time.monotonic() < end and [row.id for row in queries.jobs(past.store)] != ["live-1"]:
                await asyncio.sleep(0.01)
            stop.set()

    asyncio.run(live())
    assert [row.id for row in queries.jobs(past.store)] == ["live-1"]


def test_where_the_clock_was_put_back_by_an_hour_time_goes_on_at_half_its_pace(
    past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.store.set_fact("clock", {"origin": time.time() + 3600, "speed": 1.0, "start": past.now})
    boot = [time.clock_gettime(time.CLOCK_BOOTTIME)]
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: boot[0])
    controller = build(Home(tmp_path / "home"), Config(), past.store)
    told = []
    for later_s in (0, 600, 6600, 600):
        boot[0] += later_s
        told.append(controller.now() - past.now)
    assert told == pytest.approx([0, 300, 3600, 4200], abs=1)


@pytest.mark.parametrize(
    ("keep", "bus", "speed", "kept"),
    [
        ("1d", {}, 1.0, DAY_S),
        ("1d", {"kind": "mqtt"}, 1.0, 7 * DAY_S + ROUND_S),
        ("1d", {"kind": "mqtt"}, 10.0, DAY_S),
        ("30d", {"kind": "mqtt"}, 1.0, 30 * DAY_S),
        (0, {"kind": "mqtt"}, 1.0, 0),
    ],
)
def test_no_job_is_rolled_up_before_its_state_at_the_broker_is_cleared(
    keep: object, bus: dict[str, str], speed: float, kept: float
) -> None:
    config = parse_config({"home": {"keep": keep}, "bus": bus}, "test")
    assert kept_s(config, speed) == kept


def test_what_waits_in_the_queue_may_go_to_any_cluster(past: Past, tmp_path: Path) -> None:
    ran_with(past, KUBERNETES)
    past.submit("big-1", gpus=9)
    start(past, tmp_path, Config())
