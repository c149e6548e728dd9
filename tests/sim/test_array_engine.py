"""Promise: the array engine gives what the core gives, bit for bit, and so what was published.

The published runs are in test_reference_cases.
"""

from __future__ import annotations

import csv
import errno
import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the array engine needs the extra `fast`")

from sim.array.cluster import CODES
from sim.array.compiled import kept, ready
from sim.engines import array_engine, core_engine
from sim.outcomes import Outcomes, measure
from sim.readers.columns import trace_of
from sim.run import run
from sim.spec import Spec
from sim.trace import Trace
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.ordering import ORDERS
from starburst.policy.placement import PLACEMENTS
from starburst.policy.waiting import WAITING
from tests.references import SHARED
from tests.sim.cases import assert_equal

ROOT = Path(__file__).parents[2]
PHILLY = SHARED / "cases" / "philly.csv"


def both(trace: Trace, estimate_h: Any, spec: Spec) -> Outcomes:
    """What the array engine gives, if the core gives exactly the same."""
    ours = array_engine.simulate(trace, estimate_h, spec)
    assert_equal(ours, core_engine.simulate(trace, estimate_h, spec))
    return ours


def philly() -> Trace:
    """The public trace of Philly; seconds become hours."""
    with PHILLY.open(encoding="utf-8", newline="") as lines:
        table = list(csv.DictReader(lines))
    hours = np.array([[float(row["arrival_s"]), float(row["duration_s"])] for row in table]).T / 3600
    gpus = np.array([int(row["gpus"]) for row in table])
    n = len(table)
    return Trace(
        ids=[row["job_id"] for row in table],
        arrival_h=hours[0],
        duration_h=hours[1],
        gpus=gpus,
        cpus=np.zeros(n),
        memory_gib=np.zeros(n),
        nodes=np.ones(n, np.int64),
        cost=gpus * hours[1],
    )


@pytest.mark.skipif(
    not PHILLY.is_file() and "STARBURST_REQUIRE_SHARED" not in os.environ, reason="Philly's trace is not here"
)
def test_philly_gives_the_published_costs_and_times() -> None:
    trace = philly()

    def figures(**changes: Any) -> tuple[float, float]:
        spec = Spec(**{"nodes": 64, "warmup": 5000, **changes})
        result = measure(trace, array_engine.simulate(trace, trace.duration_h, spec), spec)
        return round(result.cloud_cost, 3), round(result.mean_jct_h, 5)

    assert figures(waiting="no-wait") == (181_172.579, 3.3541)
    assert figures(waiting="constant", factor=1.0) == (175_907.343, 3.67775)
    compute = figures(waiting="compute", factor=0.076, out_of_order=True, queue_cap=30)
    assert compute == (118_307.077, 3.52217)


#: Dyadic, so that sums are exact and ends, arrivals and deadlines tie; 0 is a job that ends as it starts.
eighths = st.integers(0, 24).map(lambda n: n / 8)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Up to 40 jobs in a few shapes: gangs, CPUs and memory included, some too large for any cluster."""
    n = draw(st.integers(1, 40))

    def column(values: st.SearchStrategy[Any], kind: Any = np.float64) -> Any:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)), kind)

    gpus = column(st.sampled_from([0, 1, 1, 2, 3, 4, 6, 9]), np.int64)
    duration_h = column(st.one_of(eighths, st.floats(0.001, 4)))
    return Trace(
        ids=[f"job {i}" for i in range(n)],
        arrival_h=np.sort(column(st.one_of(eighths, st.floats(0, 3)))),
        duration_h=duration_h,
        gpus=gpus,
        cpus=column(st.sampled_from([0, 0, 1, 2.5, 7, 40])),
        memory_gib=column(st.sampled_from([0, 0, 0.5, 10, 300])),
        nodes=np.where(gpus > 1, column(st.sampled_from([1, 1, 2, 3]), np.int64), 1),
        cost=gpus * duration_h,
    )


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Any setting the engine supports."""

    def one_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    spec = Spec(
        nodes=one_of(1, 2, 3, 5),
        gpus_per_node=one_of(1, 4, 4, 8),
        cpus_per_node=one_of(8, 16, 37.5),
        memory_gib_per_node=one_of(16, 64, 1e6),
        waiting=one_of(*WAITING),
        factor=one_of(None, 0.0, 0.125, 0.5, 1.0, 0.3),
        budget_percent=one_of(25.0, 60.0, 400.0),
        cpu_offload=one_of(False, True),
        no_short_jobs_h=one_of(0.0, 0.0, 0.25),
        max_wait_h=one_of(float("inf"), 0.5),
        order=one_of(*(name for name in ORDERS if name not in {*DISCIPLINES, "fair"})),
        out_of_order=one_of(False, True),
        binpack=one_of(*PLACEMENTS),
        queue_cap=one_of(None, None, 0, 1, 3),
        oracle=one_of(False, False, True),
        data_gravity_h=one_of(0.0, 0.25),
        cloud_delay_s=one_of(0.0, 450.0, 100.0),
    )
    return replace(spec, factor=0.5) if array_engine.why_not(spec) else spec


@given(traces(), specs(), st.sampled_from([0.5, 1.0, 1.1]))
@settings(max_examples=120)
def test_any_trace_under_any_supported_spec_ends_as_in_the_core(
    trace: Trace, spec: Spec, error: float
) -> None:
    both(trace, trace.duration_h * error, spec)


def test_a_long_queue_of_many_shapes_ends_as_in_the_core() -> None:
    """Long enough for heaps to be swept of jobs that left."""
    draw, n = np.random.default_rng(1), 1500
    gpus, duration_h = draw.choice([1, 2, 4, 8, 20], n), draw.integers(0, 40, n) / 8
    trace = Trace(
        ids=[str(i) for i in range(n)],
        arrival_h=np.sort(draw.integers(0, 400, n) / 8),
        duration_h=duration_h,
        gpus=gpus,
        cpus=draw.choice([0, 1.1, 4, 13.3], n),
        memory_gib=draw.choice([0, 10.3, 40], n),
        nodes=np.where(gpus > 2, draw.integers(1, 4, n), 1),
        cost=gpus * duration_h,
    )
    spec = Spec(nodes=12, cpus_per_node=24, memory_gib_per_node=64, waiting="runtime", factor=20, order="sjf")
    for out_of_order, cap in ((False, None), (True, None), (True, 90)):
        outcomes = both(trace, duration_h, replace(spec, out_of_order=out_of_order, queue_cap=cap))
        assert 0.05 < np.mean(outcomes.in_cloud) < 0.95


def test_on_a_cluster_without_gpus_jobs_that_leave_at_once_stay_while_there_is_room() -> None:
    """So `advise` tells the same of a CPU cluster with Numba and without."""
    at = np.array([0.0, 0.0, 0.5])
    trace = trace_of(["a", "b", "c"], at, np.ones(3), np.zeros(3), cpus=np.full(3, 4.0))
    spec = Spec(nodes=2, gpus_per_node=0, cpus_per_node=4, cpu_offload=True, waiting="no-wait")
    assert run(trace, spec).outcomes.in_cloud.tolist() == [False, False, True]


def test_every_placement_of_the_registry_is_compiled() -> None:
    assert set(CODES) == set(PLACEMENTS)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"waiting": "star", "factor": 1.0, "t_max_h": 0.25}, "come home"),
        ({"backfill": True}, "Backfill"),
        ({"budget_mode": "calibrated"}, "calibrated"),
        ({"hopeless": "leave"}, "hopeless"),
        ({"waiting": "constant"}, "learns run times"),
        ({"waiting": "resource"}, "learns run times"),
        ({"cpu_offload": True, "gpus_per_node": 0}, "nodes without GPUs"),
    ],
)
def test_what_it_cannot_do_it_says_and_refuses(changes: dict[str, Any], word: str) -> None:
    spec = Spec(**changes)
    assert word in array_engine.why_not(spec)
    nothing = np.zeros(1)
    trace = Trace(
        ["a"], nothing, nothing, np.ones(1, np.int64), nothing, nothing, np.ones(1, np.int64), nothing
    )
    with pytest.raises(ValueError, match=word):
        array_engine.simulate(trace, nothing, spec)


def test_a_job_without_an_estimate_is_refused() -> None:
    unknown, nothing, one = np.full(1, np.nan), np.zeros(1), np.ones(1, np.int64)
    trace = Trace(["a"], nothing, nothing, one, nothing, nothing, one, nothing)
    with pytest.raises(ValueError, match="mean run time"):
        array_engine.simulate(trace, unknown, Spec())


@pytest.mark.parametrize("waiting", ["no-wait", "runtime", "compute", "infinite"])
def test_a_budget_without_run_times_is_supported(waiting: str) -> None:
    assert array_engine.why_not(Spec(waiting=waiting)) == ""


def test_without_numba_it_says_so() -> None:
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from sim.engines import array_engine; from sim.spec import Spec; print(array_engine.why_not(Spec()))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "extra `fast`" in done.stdout


def test_code_that_cannot_be_kept_on_disk_is_compiled_all_the_same() -> None:
    scope: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x", scope)  # it has no file, so Numba has no place for its cache
    double = kept(scope["double"])
    ready(double, 21)
    assert double(21) == 42


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "from sim.array.compiled import kept, ready\n\n"
        "def double(x):\n    return 2 * x\n\n"
        "double = kept(double)\nready(double, 1.0)\nassert double(21.0) == 42\n"
        "print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))\n"
    )
    path = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-c", "import slow"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=path) for _ in range(2)]
    assert sorted(process.communicate()[0].split() for process in both) == [["0", "1"], ["1", "0"]]


def test_without_the_lock_each_process_compiles_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone.py").write_text(
        "from sim.array.compiled import kept\n\ndef half(x):\n    return x / 2\n\nhalf = kept(half)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    half = importlib.import_module("alone").half
    (Path(half.stats.cache_path) / "half.lock").mkdir()  # as little to be written as another user's file
    ready(half, 42.0)
    assert half(42.0) == 21


@pytest.mark.parametrize("for_the_lock", [True, False], ids=["nor for the lock", "but for the lock"])
def test_where_the_disk_has_no_room_for_it_the_code_is_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_the_lock: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    name = f"full{for_the_lock:d}"
    (tmp_path / f"{name}.py").write_text(
        "from sim.array.compiled import kept\n\ndef third(x):\n    return x / 3\n\nthird = kept(third)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    third = importlib.import_module(name).third
    monkeypatch.setattr(third._cache, "save_overload", full)
    if for_the_lock:
        (Path(third.stats.cache_path) / "third.lock").mkdir()
    ready(third, 42.0)
    assert third(42.0) == 14


def test_the_second_process_need_not_compile() -> None:
    program = (
        "import numpy as np; from sim.engines.array_engine import simulate; from sim.array import kernel;"
        "from sim.spec import Spec; from sim.trace import Trace; z = np.ones(1); i = np.ones(1, int);"
        "simulate(Trace(['a'], z, z, i, z, z, i, z), z, Spec(factor=0.1));"
        "print(sum(kernel.run.stats.cache_hits.values()))"
    )
    one, first = np.ones(1), np.ones(1, np.int64)
    trace = Trace(["a"], one, one, first, one, one, first, one)
    array_engine.simulate(trace, one, Spec(factor=0.1))  # this process has compiled
    command = [sys.executable, "-c", program]
    again = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert again.stdout.strip() == "1"
