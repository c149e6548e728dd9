"""Grids: which simulations they are, in which order they come back, what they are compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.errors import SimulationError
from sim.reports.advice import BUDGETS, advise
from sim.run import run
from sim.spec import Spec
from sim.sweep import Axis, grid, no_wait, offered_load, parse_axis, sweep
from sim.trace import Trace

BASE = Spec(nodes=1, gpus_per_node=4, out_of_order=True)


def busy(jobs: int = 200) -> Trace:
    """More work than four GPUs can do, of jobs of many sizes."""
    draw = np.random.default_rng(7)
    gpus = draw.choice([1, 2, 4], jobs)
    duration_h = draw.exponential(1.0, jobs)
    return Trace(
        ids=[f"j{i}" for i in range(jobs)],
        arrival_h=np.cumsum(draw.exponential(0.4, jobs)),
        duration_h=duration_h,
        gpus=gpus,
        cpus=np.zeros(jobs),
        memory_gib=np.zeros(jobs),
        nodes=np.ones(jobs, int),
        cost=gpus * duration_h,
    )


def test_an_axis_is_written_as_its_option() -> None:
    assert parse_axis("budget=5,12.5") == Axis("budget_percent", (5.0, 12.5))
    assert parse_axis("waiting=compute,star") == Axis("waiting", ("compute", "star"))
    assert parse_axis("queue-cap=30") == Axis("queue_cap", (30,))
    assert parse_axis("out-of-order=on,off") == Axis("out_of_order", (True, False))
    assert parse_axis("t-max=0.25").name == "t-max"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "bugdet=5",
            r"--sweep: 'bugdet=5': write OPTION=VALUE,VALUE,… as in budget=5,10,25; options are nodes,",
        ),
        ("budget", r"--sweep: 'budget': write OPTION=VALUE"),
        ("budget=", r"--sweep: 'budget=': write OPTION=VALUE"),
        ("budget=5,x", r"--sweep budget: 'x': must be a number"),
        ("nodes=4.5", r"--sweep nodes: '4.5': must be a whole number"),
        ("backfill=maybe", r"--sweep backfill: 'maybe': must be on or off"),
    ],
)
def test_an_axis_that_is_none(text: str, said: str) -> None:
    with pytest.raises(SimulationError, match=said):
        parse_axis(text)


def test_the_last_axis_varies_fastest() -> None:
    cells = grid(BASE, [parse_axis("waiting=compute,constant"), parse_axis("budget=5,10")])
    assert [(c["waiting"], c["budget"]) for c, _ in cells] == [
        ("compute", 5),
        ("compute", 10),
        ("constant", 5),
        ("constant", 10),
    ]
    assert cells[3][1] == replace(BASE, waiting="constant", budget_percent=10.0)


@pytest.mark.parametrize(
    ("base", "axes", "said"),
    [
        (BASE, ["budget=5", "budget=10"], "--sweep: budget is given twice"),
        (replace(BASE, factor=1.0), ["budget=5"], "--sweep: a budget has no effect beside a factor"),
        (BASE, ["factor=1", "budget=5"], "--sweep: a budget has no effect beside a factor"),
        (BASE, ["waiting=compute,compte"], "--waiting: 'compte': did you mean compute"),
        (BASE, ["budget=5,nan"], "--budget: nan: must be a finite number"),
        (BASE, ["backfill=on"], "--backfill: is for a strict queue"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_before_anything_runs(
    base: Spec, axes: list[str], said: str
) -> None:
    with pytest.raises(SimulationError, match=said):
        grid(base, [parse_axis(text) for text in axes])


def test_no_wait_keeps_the_cluster_and_the_cloud_and_drops_the_policy() -> None:
    spec = Spec(
        nodes=3,
        cloud_delay_s=60,
        warmup=7,
        binpack="best-fit",
        waiting="star",
        t_max_h=1,
        queue_cap=4,
        seed=9,
    )
    assert no_wait(spec) == Spec(nodes=3, cloud_delay_s=60, warmup=7, binpack="best-fit", waiting="no-wait")


def test_each_point_is_the_simulation_by_itself_and_knows_what_it_saves() -> None:
    points = sweep(busy(), BASE, [parse_axis("budget=10,100")], workers=1)
    base = run(busy(), no_wait(BASE)).result
    for point, budget in zip(points, (10.0, 100.0), strict=True):
        assert point.result == run(busy(), replace(BASE, budget_percent=budget)).result
        assert point.no_wait == base
        assert point.saved_percent == pytest.approx(100 * (1 - point.result.cloud_cost / base.cloud_cost))
        assert point.jct_percent == pytest.approx(100 * (point.result.mean_jct_h / base.mean_jct_h - 1))
    assert points[0].saved_percent < points[1].saved_percent


def test_jobs_without_gpus_that_leave_at_once_do_so_under_no_wait_too() -> None:
    """Else their bills would be those of the budget, and waiting would seem to cost money."""
    gpus = np.where(np.arange(200) % 2, busy().gpus, 0)
    trace = replace(busy(), gpus=gpus, cpus=np.where(gpus, 0.0, 40.0), cost=busy().cost)
    spec = replace(BASE, cpu_offload=True)
    for point in sweep(trace, spec, [parse_axis("budget=10,100")], workers=1):
        assert point.no_wait == run(trace, replace(spec, waiting="no-wait", out_of_order=False)).result
        assert point.saved_percent > 0


def test_every_cluster_has_a_no_wait_of_its_own_and_it_runs_once() -> None:
    told: list[tuple[int, int]] = []
    points = sweep(
        busy(),
        BASE,
        [parse_axis("nodes=1,2"), parse_axis("budget=10,50")],
        workers=1,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(i, 6) for i in range(1, 7)]
    assert points[0].no_wait == points[1].no_wait != points[2].no_wait
    assert points[0].load == 2 * points[2].load


def test_load_is_work_per_capacity() -> None:
    trace = busy()
    work = float(np.sum(trace.gpus * trace.duration_h))
    assert offered_load(trace, BASE) == pytest.approx(work / (4 * np.ptp(trace.arrival_h)))


@pytest.mark.processes
def test_processes_change_neither_results_nor_their_order() -> None:
    axes = [parse_axis("budget=100,10,25")]
    alone, together = (sweep(busy(), BASE, axes, engine="core", workers=n) for n in (1, 2))
    assert [p.result for p in alone] == [p.result for p in together]
    assert [p.gantt for p in alone] == [p.gantt for p in together]


@pytest.mark.processes
def test_a_simulation_that_fails_in_a_process_is_said_in_the_same_words() -> None:
    with pytest.raises(SimulationError, match="--warmup: 100: off both ends leaves none"):
        sweep(busy(), replace(BASE, warmup=100), [parse_axis("budget=5,10")], workers=2)


def test_advice_names_a_budget_that_saves_and_its_price() -> None:
    points = sweep(busy(), BASE, [BUDGETS], workers=1)
    advice = advise(points)
    (best,) = [p for p in points if p.spec.budget_percent == advice.budget_percent]
    assert best.saved_percent > 0
    assert f"{best.saved_percent:.1f} %" in advice.sentences[1]
    assert f"{best.jct_percent:.1f} % longer" in advice.sentences[1]


def test_advice_for_a_cluster_that_is_large_enough() -> None:
    points = sweep(busy(), replace(BASE, nodes=100), [BUDGETS], workers=1)
    advice = advise(points)
    assert advice.budget_percent is None
    assert advice.sentences[1] == "Nothing would have left for the cloud."
