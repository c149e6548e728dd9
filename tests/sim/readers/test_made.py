"""Traces that are not files of jobs: generated workloads and history; and whether jobs fit a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sim.errors import SimulationError
from sim.readers import check_fits, from_records, read
from sim.readers.columns import trace_of
from sim.spec import Spec
from sim.trace import Trace

SPEC = (
    "{arrivals: {process: poisson, rate_per_h: 24}, "
    "durations: {distribution: exponential, mean_h: .75, min_s: 30, max_s: 10000}, "
    "gpus: {1: .7, 2: .15, 4: .1, 8: .05}, jobs: 6000, seed: 101}"
)


NAN = float("nan")


def error(text: str) -> str:
    with pytest.raises(SimulationError) as caught:
        read(text)
    return str(caught.value)


def test_a_generated_workload_has_the_moments_asked_for() -> None:
    trace = read(SPEC).trace
    assert (len(trace), trace.arrival_h[0]) == (6000, 0)
    assert np.diff(trace.arrival_h).mean() == pytest.approx(1 / 24, rel=0.05)
    assert (trace.duration_h.min(), trace.duration_h.max()) == (30 / 3600, 10000 / 3600)
    assert (trace.gpus == 1).mean() == pytest.approx(0.7, abs=0.03)
    assert np.array_equal(trace.cost, trace.gpus * trace.duration_h)


def test_the_seed_decides_and_a_limit_keeps_the_first() -> None:
    first, again, other = read(SPEC).trace, read(SPEC, limit=10).trace, read(SPEC.replace("101", "7")).trace
    assert first.duration_h[:10].tolist() == again.duration_h.tolist()
    assert first.duration_h[0] != other.duration_h[0]


def test_gamma_arrivals_vary_as_told() -> None:
    gaps = np.diff(read(SPEC.replace("poisson,", "gamma, cv: 3,")).trace.arrival_h)
    assert gaps.std() / gaps.mean() == pytest.approx(3, rel=0.15)


def test_gavel_durations() -> None:
    head, _, tail = SPEC.partition("exponential, mean_h: .75, min_s: 30, max_s: 10000")
    minutes = read(head + "gavel" + tail).trace.duration_h * 60
    assert 10**1.5 <= minutes.min() < minutes.max() <= 10**4
    assert (minutes < 1000).mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("name", "wrap"), [("w.yaml", str), ("w.json", None)])
def test_a_file_is_as_good_as_text_in_place(tmp_path: Path, name: str, wrap: type[str] | None) -> None:
    parameters = {
        "arrivals": {"process": "poisson", "rate_per_h": 1}, "durations": {"distribution": "gavel"},
        "gpus": {"1": 1}, "jobs": 3,
    }  # fmt: skip
    text = json.dumps(parameters)
    (tmp_path / name).write_text(f"# a workload\n{text}" if wrap else text)
    assert read(tmp_path / name).trace.duration_h.tolist() == read(text).trace.duration_h.tolist()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("jobs: 6000", "jobs: 0", "workload: jobs: 0: Input should be greater than or equal to 1"),
        ("jobs: 6000", "job: 1", "workload: jobs: missing: Field required\n"
         "workload: job: 1: Extra inputs are not permitted"),
        ("1: .7", "1: .8", "the shares of gpus must sum to 1, not 1.1"),
        ("poisson,", "poisson, cv: 2,", "a Poisson process has cv 1; use process: gamma"),
        ("min_s: 30", "min_s: 30000", "min_s must be at most max_s"),
        ("mean_h: .75", "mean_h: .inf", "workload: durations.exponential.mean_h: inf: "),
        ("seed: 101}", "seed: 101", "workload:1: not YAML (expected ',' or '}', but got '<stream end>')"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(old: str, new: str, message: str) -> None:
    assert message in error(SPEC.replace(old, new))


def test_history_is_sorted_and_begins_at_hour_0() -> None:
    b = ("b", 7200, 1800, 2, 4, 8, "nlp", "n", None)
    trace = from_records([b, ("a", 3600, 3600, 1, 53, 0, "vision", "v", 7200.0)])
    assert (trace.ids, trace.arrival_h.tolist(), trace.duration_h.tolist()) == (["a", "b"], [0, 1], [1, 0.5])
    assert (trace.queues, trace.users) == (["vision", "nlp"], ["v", "n"])
    assert trace.estimate_h is not None
    assert np.array_equal(trace.estimate_h, [2, np.nan], equal_nan=True)
    assert (trace.gpus.tolist(), trace.cost[0], trace.memory_gib.tolist()) == ([1, 2], 2, [0, 8])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "history: no jobs: there must be one that ran"),
        ([("a", 0, -1, 1, 0, 0, "q", "u", None)], "history: job 1: run time: -1: must be 0 or more"),
        ([("a", 0, NAN, 1, 0, 0, "q", "u", None)], "history: job 1: run time: nan: must be a finite number"),
    ],
)
def test_wrong_history_is_named(
    rows: list[tuple[str, float, float, int, float, float, str, str, float | None]], message: str
) -> None:
    with pytest.raises(SimulationError) as caught:
        from_records(rows)
    assert str(caught.value) == message


def one(gpus: int, cpus: float = 0, memory_gib: float = 0, nodes: int = 1) -> Trace:
    """A trace of one job, a."""
    return trace_of(
        ["a"], np.zeros(1), np.ones(1), np.array([gpus], float), cpus=np.array([cpus], float),
        memory_gib=np.array([memory_gib], float), nodes=np.array([nodes], float),
    )  # fmt: skip


SMALL = Spec(nodes=2, gpus_per_node=8, cpus_per_node=96, memory_gib_per_node=100)


@pytest.mark.parametrize("trace", [one(16), one(0, 96, 100), one(16, 192, 200, 2), one(5, nodes=2)])
def test_jobs_that_fit(trace: Trace) -> None:
    check_fits(trace, SMALL)


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        (one(17), "gpus: 17 (id a): there are 16 in all"),
        (one(1, cpus=97), "cpus per node: 97 (id a): there are 96 a node"),
        (one(1, memory_gib=101), "memory_gib per node: 101 (id a): there are 100 a node"),
        (one(16, nodes=4), "nodes: 4 (id a): there are 2 nodes"),
        (one(0, cpus=200, nodes=3), "nodes: 3 (id a): there are 2 nodes"),
    ],
)
def test_jobs_that_never_fit_are_named(trace: Trace, problem: str) -> None:
    with pytest.raises(SimulationError) as caught:
        check_fits(trace, SMALL)
    assert (
        str(caught.value)
        == f"trace: job 1: {problem}; give the cluster more, or take the job out of the trace"
    )
