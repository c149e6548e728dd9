"""Disciplines as orders of the queue, from the command line to the decision log."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.engines import array_engine
from sim.errors import SimulationError
from sim.experiments.queues import disciplines as experiment
from sim.experiments.workloads import helios_like
from sim.run import run
from sim.spec import Spec
from sim.trace import Trace
from sim.world import SimJob, World
from starburst.app.config import parse_config
from starburst.app.errors import UserError
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.demo.jobs import SPEED, demo_jobs
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.store import codec
from tests.builders import nodes, offer

ROOT = Path(__file__).parents[2]
ORDERS = sorted(DISCIPLINES)


def decision_log(order: str) -> bytes:
    """The log of the demo's jobs under virtual time, as the store would keep it."""
    lines: list[str] = []

    def on_step(now: float, changes: Changes) -> None:
        lines.extend(codec.encode([*row, row.reason]) + "\n" for row in changes.decisions)

    scheduler = Scheduler(Settings(order=order, budget_percent=60))
    world = World(scheduler, nodes(4, 4, 2), [offer("big", 8, 5)], boot_s={"big": 90.0}, on_step=on_step)
    jobs = demo_jobs(60, 3, Path("witness"))
    world.submit(SimJob(j.submission.job, j.arrival_s * SPEED, j.work_s * SPEED) for j in jobs)
    world.run()
    return "".join(lines).encode()


def test_the_log_does_not_depend_on_the_process() -> None:
    here = [hashlib.sha256(decision_log(order)).hexdigest() for order in ORDERS]
    assert len(set(here)) == len(ORDERS), "the orders decide differently"
    program = (
        "import hashlib; from tests.sim.test_disciplines_live import ORDERS, decision_log;"
        "[print(hashlib.sha256(decision_log(order)).hexdigest()) for order in ORDERS]"
    )
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == here


def trace(*jobs: tuple[float, float, int]) -> Trace:
    """Jobs: hour of arrival, hours, GPUs."""
    arrival_h, duration_h, gpus = (np.array(column) for column in zip(*jobs, strict=True))
    none = np.zeros(len(jobs))
    one = np.ones(len(jobs), np.int64)
    ids = [str(number) for number in range(len(jobs))]
    return Trace(ids, arrival_h.astype(float), duration_h.astype(float), gpus, none, none, one, gpus * 1.0)


@pytest.mark.parametrize("order", ORDERS)
def test_the_core_simulates_it_and_the_array_engine_says_that_it_cannot(order: str) -> None:
    spec = Spec(nodes=1, order=order, waiting="infinite")
    assert order in array_engine.why_not(spec)
    done = run(trace((0, 1, 8), (0.5, 1, 4), (0.6, 1, 4)), spec)
    assert done.engine == "core"
    assert done.outcomes.start_h.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="discipline"):
        array_engine.simulate(trace((0, 1, 8)), np.ones(1), spec)


def test_under_bf_js_a_small_job_starves_while_larger_ones_come_unless_its_wait_ends() -> None:
    """One node of 8; a large job comes before the last one ends, ten times."""
    large = [(hour * 0.9, 1.0, 8) for hour in range(10)]
    jobs = trace(*sorted([*large, (0.1, 1.0, 1)]))
    small = next(n for n in range(11) if jobs.gpus[n] == 1)
    endless = Spec(nodes=1, order="bf-js", waiting="infinite")
    assert run(jobs, endless).outcomes.start_h[small] == 10
    assert run(jobs, replace(endless, order="fifo", out_of_order=True)).outcomes.start_h[small] == 1
    bounded = run(jobs, replace(endless, waiting="constant", factor=2.0)).outcomes
    assert bounded.in_cloud[small]
    assert bounded.start_h[small] == pytest.approx(2.1)


@pytest.mark.parametrize("order", ORDERS)
def test_nobody_waits_longer_than_the_policy_gives_under_any_discipline(order: str) -> None:
    jobs = helios_like(400, seed=1)
    spec = Spec(nodes=8, order=order, waiting="constant", factor=0.5)
    outcomes = run(jobs, spec).outcomes
    assert np.all(outcomes.wait_h <= 0.5 + 1e-9)
    assert 0 < np.mean(outcomes.in_cloud) < 1


def test_the_title_is_the_name_of_the_discipline() -> None:
    assert Spec(order="vqs-bf", out_of_order=True).title == "Compute-Wait, P 25 %, VQS-BF, first-fit"


def test_backfill_is_refused_beside_a_discipline() -> None:
    with pytest.raises(SimulationError, match="--backfill: is for a strict queue, which bf-js is not"):
        Spec(order="bf-js", backfill=True).check()


@pytest.mark.parametrize("order", ORDERS)
def test_the_config_takes_it_by_name(order: str) -> None:
    assert parse_config({"policy": {"order": order}}, "test").policy.settings().order == order


def test_the_config_refuses_a_strict_queue_beside_a_discipline() -> None:
    with pytest.raises(
        UserError, match=r"policy.out_of_order: false: order: vqs goes past what does not fit"
    ):
        parse_config({"policy": {"order": "vqs", "out_of_order": False}}, "test")


def test_the_experiment_compares_at_equal_increase() -> None:
    jobs = helios_like(300, seed=2)
    found = experiment.explore(jobs, Spec(nodes=6, out_of_order=True, warmup=5), (experiment.LOOKED_AT,))
    assert set(found.runs) == {"fifo", *DISCIPLINES}
    assert len(list(experiment.rows(found))) == len(DISCIPLINES)
    assert len(list(experiment.by_size(found))) == 1 + len(DISCIPLINES)
    fifo = replace(found, runs={**found.runs, "bf-js": found.runs["fifo"]})
    (change, _), *_ = experiment.changes(fifo, "bf-js")
    assert abs(change) < 15, "FIFO against its own curve is its scatter"
