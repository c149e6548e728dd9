"""One simulation: which engine, which estimates, what is said of bad parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim import run as runs
from sim.errors import SimulationError
from sim.run import estimates, run
from sim.spec import Spec
from sim.trace import Trace
from tests.sim.cases import assert_equal

SMALL = Spec(nodes=1, gpus_per_node=2, factor=0.5)


def trace(jobs: int = 40, gpus: int = 1) -> Trace:
    """One-hour jobs, four an hour."""
    size = np.full(jobs, gpus)
    return Trace(
        ids=[str(i) for i in range(jobs)],
        arrival_h=np.arange(jobs) / 4,
        duration_h=np.ones(jobs),
        gpus=size,
        cpus=np.zeros(jobs),
        memory_gib=np.zeros(jobs),
        nodes=np.ones(jobs, int),
        cost=size * 1.0,
    )


def test_what_comes_out_can_be_added_up_by_hand() -> None:
    done = run(trace(), replace(SMALL, waiting="no-wait", factor=None))
    assert done.result.cloud_cost == 20, "of four arrivals an hour two find a GPU"
    assert done.result.mean_jct_h == 1
    assert done.result.cloud_cost_usd == 50


@pytest.mark.parametrize(("wait_h", "stays_h"), [(2.0, 1.0), (0.1, 1.0 + 3.5)], ids=["home", "left again"])
def test_each_start_up_of_a_rented_machine_is_billed(wait_h: float, stays_h: float) -> None:
    """A job that came home after half an hour has paid for an hour, half of which was the start-up."""
    both = replace(
        trace(2, gpus=2), arrival_h=np.zeros(2), duration_h=np.array([2.0, 3.0]), cost=np.array([4.0, 6.0])
    )
    spec = replace(SMALL, waiting="star", factor=wait_h / 2, t_max_h=0.5, cloud_delay_s=1800)
    done = run(both, spec)
    assert done.outcomes.returned.tolist() == [False, True]
    assert done.result.cloud_cost == pytest.approx(2 * stays_h)


def test_the_engines_agree() -> None:
    pytest.importorskip("numba")
    core, arrays = (run(trace(), SMALL, engine) for engine in ("core", "array"))
    assert core.result == arrays.result
    assert (core.engine, arrays.engine) == ("core", "array")


def test_without_the_array_engine_the_core_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(runs, "import_module", nowhere)
    assert run(trace(), SMALL).engine == "core"
    with pytest.raises(SimulationError, match=r"--engine: array: needs numba: pip install"):
        run(trace(), SMALL, "array")


def test_an_unknown_engine() -> None:
    with pytest.raises(SimulationError, match="--engine: 'gpu': choose one of auto, core, array"):
        run(trace(), SMALL, "gpu")


def test_estimates_are_off_by_at_most_what_is_said_and_never_negative() -> None:
    perfect = estimates(trace(400), Spec())
    assert perfect.tolist() == [1.0] * 400
    off = estimates(trace(400), Spec(estimate_error=25, seed=1))
    assert off.min() >= 0.75
    assert off.max() <= 1.25
    assert np.ptp(off) > 0.45, "over the whole range"
    assert estimates(trace(400), Spec(estimate_error=300)).min() == 0


def test_without_an_estimate_a_job_waits_by_the_mean_of_past_ones() -> None:
    """No job has ended when the second of 9 hours arrives: it counts as an hour, the prior."""
    lone = replace(trace(2, gpus=2), arrival_h=np.array([0, 0.5]), duration_h=np.array([9.0, 9.0]))
    by = {
        kind: run(replace(lone, estimate_h=np.array([np.nan, 3.0])), replace(SMALL, runtime_estimates=kind))
        for kind in ("right", "given", "none")
    }
    waits_h = {kind: done.outcomes.wait_h[1] for kind, done in by.items()}
    assert waits_h == pytest.approx({"right": 8.5, "given": 3.0, "none": 1.0}), "factor × 2 GPUs × estimate"
    assert {kind: done.engine for kind, done in by.items()} == {
        "right": "array",
        "given": "core",
        "none": "core",
    }


def overstated() -> Trace:
    """Ten jobs of a quarter of an hour, one of 9 h, and one that waits for it; 9 h are said of each."""
    return replace(
        trace(12, gpus=2),
        arrival_h=np.array([*range(10), 20.0, 20.5]),
        duration_h=np.array([0.25] * 10 + [9.0, 0.25]),
        estimate_h=np.full(12, 9.0),
    )


def test_users_estimates_count_by_what_their_past_ones_were_worth() -> None:
    """Of ten jobs of a quarter of an hour each, limited to 9 h: the next one is not taken to run for 9 h."""
    whose = {"one": ["ann"] * 12, "another": [*["ann"] * 11, "ben"], "nobody": None}
    done = {
        name: run(replace(overstated(), users=users), replace(SMALL, runtime_estimates="given"))
        for name, users in whose.items()
    }
    waits_h = {name: each.outcomes.wait_h[-1] for name, each in done.items()}
    assert waits_h == pytest.approx({"one": 2.262, "another": 8.5, "nobody": 8.5}, abs=0.01)
    assert {name: each.engine for name, each in done.items()} == {
        "one": "core",
        "another": "core",
        "nobody": "array",
    }


def test_limits_of_users_count_by_what_their_past_jobs_ran_for() -> None:
    """Ten jobs of a quarter of an hour had limits of 9 h, as the next one has."""
    lone = replace(overstated(), users=["ann"] * 12)
    limits = replace(SMALL, runtime_estimates="limits")
    known, unknown = (run(each, limits) for each in (lone, replace(lone, users=None)))
    assert known.outcomes.wait_h[-1] < unknown.outcomes.wait_h[-1] < 1
    assert known.engine == "core"


def test_right_estimates_of_users_stay_as_they_are() -> None:
    """So that the array engine gives bit for bit what the core gives."""
    named = replace(trace(), users=["ann", "ben"] * 20)
    ours, core = (run(named, SMALL, engine) for engine in ("auto", "core"))
    assert (ours.engine, core.engine) == ("array", "core")
    assert_equal(ours.outcomes, core.outcomes)


@pytest.mark.parametrize(
    ("changes", "engine", "said"),
    [
        (
            {"runtime_estimates": "given"},
            "auto",
            "--runtime-estimates: given: the trace has no estimates of its users; write right or none",
        ),
        (
            {"runtime_estimates": "limits"},
            "auto",
            "--runtime-estimates: limits: the trace has no estimates of its users; write right or none",
        ),
        (
            {"runtime_estimates": "given", "estimate_error": 5.0},
            "auto",
            "--estimate-error: is how far right estimates are off; leave it out, or --runtime-estimates",
        ),
        (
            {"runtime_estimates": "none"},
            "array",
            "--engine: array: Jobs without an estimate wait by the mean run time of such jobs, which only "
            "the core learns; choose core or auto",
        ),
    ],
)
def test_estimates_that_cannot_be_had(changes: dict[str, Any], engine: str, said: str) -> None:
    with pytest.raises(SimulationError) as caught:
        run(trace(), replace(SMALL, **changes), engine)
    assert str(caught.value) == said


def test_the_seed_decides_the_estimates() -> None:
    once, again, other = (estimates(trace(), Spec(estimate_error=25, seed=seed)) for seed in (1, 1, 2))
    assert once.tolist() == again.tolist() != other.tolist()


def test_keys_are_json_without_infinities() -> None:
    told = run(trace(), SMALL).as_dict(SMALL)
    text = json.dumps(told, allow_nan=False)
    assert json.loads(text)["spec"]["max_wait_h"] is None
    assert told["jobs_per_cpu_second"] == pytest.approx(40 / told["cpu_seconds"])
    assert told["max_rss_mb"] > 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            Spec(waiting="compte"),
            "--waiting: 'compte': did you mean compute? "
            "choose one of no-wait, constant, runtime, resource, compute, star, infinite",
        ),
        (
            Spec(order="lifo"),
            "--order: 'lifo': did you mean fifo? "
            "choose one of fifo, sjf, edf, priority, fair, bf-js, vqs, vqs-bf",
        ),
        (Spec(binpack="x"), "--binpack: 'x': choose one of first-fit, best-fit, worst-fit, tetris"),
        (Spec(factor=float("nan")), "--factor: nan: must be a finite number"),
        (Spec(budget_percent=float("inf")), "--budget: inf: must be a finite number"),
        (Spec(budget_percent=-1.0), "--budget: -1.0: must be at least 0"),
        (
            Spec(budget_percent=0, budget_mode="calibrated"),
            "--budget: 0: must be more than 0 where it is calibrated; no-wait spends nothing",
        ),
        (Spec(nodes=0), "--nodes: 0: must be at least 1"),
        (Spec(queue_cap=-1), "--queue-cap: -1: must be at least 0"),
        (Spec(warmup=-5), "--warmup: -5: must be at least 0"),
        (
            Spec(backfill=True, out_of_order=True),
            "--backfill: is for a strict queue; leave out --out-of-order or --backfill",
        ),
        (
            Spec(backfill_rule="artifact"),
            "--backfill-rule: artifact: has no effect without --backfill",
        ),
        (
            Spec(backfill=True, backfill_rule="artifact", hopeless="leave"),
            "--backfill-rule: artifact: jobs with a reservation stay; leave out --hopeless",
        ),
        (
            Spec(waiting="star"),
            "--waiting: star waits after a return only; give --t-max, for instance --t-max 0.25",
        ),
        (
            Spec(warmup=20),
            "--warmup: 20: off both ends leaves none of the trace's 40 jobs to count; must be below 20",
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_bad_parameters_are_named_as_on_the_command_line(spec: Spec, said: str) -> None:
    with pytest.raises(SimulationError) as problem:
        run(trace(), spec)
    assert str(problem.value) == said


def test_every_problem_has_a_line() -> None:
    with pytest.raises(SimulationError) as problem:
        Spec(nodes=0, gpus_per_node=-1, order="x").check()
    assert [line.split(":")[0] for line in str(problem.value).splitlines()] == [
        "--nodes",
        "--gpus-per-node",
        "--order",
    ]


def test_the_largest_warmup_leaves_a_job() -> None:
    assert run(trace(), replace(SMALL, warmup=19)).result.jobs_counted == 3


def test_a_trace_without_jobs() -> None:
    with pytest.raises(SimulationError, match="the trace has no jobs"):
        run(trace(0), SMALL)
