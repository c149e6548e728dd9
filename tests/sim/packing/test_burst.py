"""The core with a cloud of shared machines: who leaves, when, asking for what, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import SimulationError
from sim.eva_replica.check import check_fits
from sim.packing.burst import Both, counted, simulate_burst
from sim.packing.cloud import CloudModel
from sim.packing.demands import Share, as_trace, gpus_per_task, in_seconds, job_maker
from sim.packing.inputs import Kind, MachineType, PackedJob
from sim.packing.workloads import drawn, gpus_of, is_packed, workloads_of
from sim.readers.columns import trace_of
from sim.run import run
from sim.spec import Spec
from sim.sweep import no_wait
from sim.trace import Trace
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from tests.sim.eva_replica.cases import BIG, KINDS, PAIRS, SMALL

TINY = Spec(nodes=1, gpus_per_node=2, waiting="no-wait")


def trace(*jobs: tuple[float, float, int], **columns: list[float]) -> Trace:
    """Arrival and duration in hours, GPUs."""
    arrival, duration, gpus = (np.array(column, float) for column in zip(*jobs, strict=True))
    more = {name: np.array(values, float) for name, values in columns.items()}
    return trace_of([f"j{i}" for i in range(len(jobs))], arrival, duration, gpus, **more)  # type: ignore[arg-type]


def both(
    given: Trace, spec: Spec, machines: list[MachineType], kinds: dict[str, Kind], name: str = "none"
) -> Both:
    """The core with a packer, every job of the workload w."""
    cloud = CloudModel(machines, in_seconds(kinds), PAIRS)
    job_of = job_maker(given, ["w"] * len(given), 2, Share(0, 0))
    at_once = run(given, no_wait(spec), "core").result.mean_jct_h
    return simulate_burst(given, job_of, spec, cloud, name, no_wait_jct_h=at_once)


def test_who_leaves_does_so_after_its_wait_in_the_order_of_leaving() -> None:
    # Two GPUs are taken by j0; j1 may wait 2 h per GPU-hour, j2 as long per its half hour.
    given = trace((0, 9, 2), (1, 1, 1), (1.5, 0.5, 1))
    result = both(given, Spec(nodes=1, gpus_per_node=2, waiting="compute", factor=2), [SMALL, BIG], KINDS)
    assert [(job.id, job.arrival_s / 3600) for job in result.packed.jobs] == [("j1", 3.0), ("j2", 2.5)]


def test_the_whole_is_what_a_hand_computes() -> None:
    # j0 fills the cluster; j1 leaves at once. Its small machine is asked for at 3600, up at 3660, the job
    # runs from 3695 until 7295. Then the machine is given back; it is paid for from 3610 to 7296, a tenth
    # of a cent a second.
    given = trace((0, 2, 2), (1, 1, 1))
    result = both(given, TINY, [SMALL, BIG], KINDS)
    assert result.packed.cost == pytest.approx(0.001 * (7296 - 3610))
    assert result.jct_h.tolist() == pytest.approx([2, (7295 - 3600) / 3600])
    told = result.as_dict()
    assert (told["cloud_jobs"], told["jobs_counted"], told["instances"]) == (1, 2, 1)
    assert told["cloud_cost_usd"] == result.packed.cost
    assert told["jct_increase_percent"] == pytest.approx(100 * (result.mean_jct_h / 1.5 - 1))


def test_if_nothing_leaves_nothing_is_billed() -> None:
    given = trace((0, 2, 2), (0, 1, 1), (0, 1, 2))
    result = both(given, Spec(nodes=1, gpus_per_node=2, waiting="infinite"), [SMALL, BIG], KINDS)
    assert (result.packed.cost, result.packed.instances) == (0, 0)
    assert result.mean_jct_h == result.front.result.mean_jct_h


def test_jobs_that_leave_together_share_a_machine_and_its_bill_and_slow_each_other() -> None:
    given = trace((0, 9, 2), (1, 1, 1), (1, 1, 1))
    apart, shared = (both(given, TINY, [BIG], KINDS, name).packed for name in ("none", "synergy"))
    assert (apart.instances, shared.instances) == (2, 1)
    assert shared.cost < apart.cost
    slow = PAIRS.pair("w", "w")
    assert [job.throughput for job in shared.jobs] == pytest.approx([slow, slow])
    assert shared.jobs[0].end_s - shared.jobs[0].arrival_s > 3600 / slow


FREE = MachineType(Offer("free", Resources.of(2, 64, 64), Money.of("1")))
LOADS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 2)), min_size=1, max_size=12
)


def loaded(jobs: list[tuple[int, int, int]]) -> Trace:
    """Jobs in eighths of hours, by arrival: what ties in binary fractions of hours does so in seconds."""
    return trace(*sorted((arrival / 8, duration / 8, gpus) for arrival, duration, gpus in jobs))


@settings(max_examples=25)
@given(
    jobs=LOADS,
    waiting=st.sampled_from(["no-wait", "constant", "compute", "infinite"]),
    warmup=st.integers(0, 2),
)
def test_machines_that_are_there_at_once_change_no_completion(
    jobs: list[tuple[int, int, int]], waiting: str, warmup: int
) -> None:
    """A cloud without delays and interference is the cloud of the simulations in GPU-hours."""
    given = loaded(jobs)
    spec = Spec(
        nodes=1, gpus_per_node=2, waiting=waiting, factor=0.25, warmup=min(warmup, (len(jobs) - 1) // 2)
    )
    result = both(given, spec, [FREE], {"w": Kind("w", 1.0)})
    plain = run(given, spec, "core")
    rows = counted(len(given), spec.warmup)
    assert result.jct_h == pytest.approx((plain.outcomes.end_h - given.arrival_h)[rows], abs=1e-9)
    assert len(result.packed.jobs) == result.front.result.cloud_jobs == plain.result.cloud_jobs


@settings(max_examples=25)
@given(jobs=LOADS, name=st.sampled_from(["none", "eva", "synergy", "optimal"]))
def test_all_work_gets_done_and_all_bills_add_up(jobs: list[tuple[int, int, int]], name: str) -> None:
    given = loaded(jobs)
    result = both(given, TINY, [SMALL, BIG], KINDS, name)
    outcomes = result.front.outcomes
    assert (outcomes.end_h - outcomes.start_h >= given.duration_h - 1e-9).all(), (
        "nothing is faster than alone"
    )
    assert len(result.packed.jobs) == outcomes.in_cloud.sum()
    most_usd = 0.01 * 3600 * sum(job.end_s - job.arrival_s + 3600 for job in result.packed.jobs)
    assert 0 <= result.packed.cost <= most_usd
    assert 0 <= result.packed.gpu_allocation <= 1 + 1e-9


def test_jobs_of_the_warm_up_are_simulated_and_not_billed() -> None:
    given = trace(*[(0.0, 1, 2)] * 5)
    result = both(given, Spec(nodes=1, gpus_per_node=2, waiting="no-wait", warmup=1), [BIG], KINDS)
    assert [job.id for job in result.packed.jobs] == ["j1", "j2", "j3", "j4"], (
        "the last one counts, as it does for the cluster"
    )


def test_a_job_that_says_nothing_asks_for_a_share_per_gpu() -> None:
    given = trace((0, 1, 2), (0, 1, 0), cpus=[0, 0])
    make = job_maker(given, ["w", "v"], 8, Share(cpus=3, memory_gib=10))
    (two,), (none,) = make(0).tasks, make(1).tasks
    assert (two.resources, two.workload) == (Resources.of(2, 6, 20), "w")
    assert (none.resources, none.workload) == (Resources.of(0, 3, 10), "v")


def test_what_a_job_says_is_split_as_its_gpus_are() -> None:
    given = trace((0, 1, 20), (0, 1, 4), cpus=[40, 6], memory_gib=[200, 8], nodes=[1, 2])
    make = job_maker(given, ["w", "w"], 8, Share())
    wants = [[task.resources for task in make(row).tasks] for row in (0, 1)]
    assert wants[0] == [Resources.of(8, 16, 80), Resources.of(8, 16, 80), Resources.of(4, 8, 40)]
    assert wants[1] == [Resources.of(2, 3, 4)] * 2
    assert gpus_per_task(given, 8).tolist() == [8, 2]


def test_a_trace_of_a_packed_cloud_is_one_of_a_cluster() -> None:
    gang = job_maker(trace((0.5, 2, 4), cpus=[6], memory_gib=[8], nodes=[2]), ["w"], 8, Share())(0)
    seen = as_trace([gang])
    assert (seen.ids, seen.arrival_h[0], seen.duration_h[0]) == (["j0"], 0.5, 2)
    assert (seen.gpus[0], seen.cpus[0], seen.memory_gib[0], seen.nodes[0]) == (4, 6, 8, 2)
    assert seen.tasks(0, 8) == tuple(task.resources for task in gang.tasks)


GPUS = {"cpu": 0, "one": 1, "uno": 1, "two": 2, "four": 4}


def test_workloads_are_drawn_among_those_with_most_gpus_that_are_not_too_many() -> None:
    wanted = np.array([0, 1, 2, 3, 4, 8] * 50)
    picked = drawn(list(GPUS), GPUS, wanted, seed=3)
    by_want = {
        want: {p for p, w in zip(picked, wanted, strict=True) if w == want} for want in (0, 1, 2, 3, 4, 8)
    }
    assert by_want == {0: {"cpu"}, 1: {"one", "uno"}, 2: {"two"}, 3: {"two"}, 4: {"four"}, 8: {"four"}}
    assert set(drawn(["two", "four"], GPUS, np.ones(50, int), 0)) == {"two", "four"}, "none has one"
    assert set(drawn(["a", "b"], {}, np.ones(50, int), 0)) == {"a", "b"}, "GPUs are not known"


def test_a_draw_depends_on_the_seed_and_the_place_alone() -> None:
    ones = np.ones(40, int)
    picked = drawn(list(GPUS), GPUS, ones, seed=5)
    assert picked == drawn(list(GPUS), GPUS, ones, seed=5)
    assert picked != drawn(list(GPUS), GPUS, ones, seed=6)
    other = ones.copy()
    other[:20] = 2
    assert picked[20:] == drawn(list(GPUS), GPUS, other, seed=5)[20:]


def test_a_trace_may_say_what_its_jobs_run(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,arrival_h,workload,gpus\na,0,w,1\nb,0,,1\n", encoding="utf-8")
    assert workloads_of(file, ["a", "b"], ["w"]) == {"a": "w"}
    assert not is_packed(file)
    with pytest.raises(SimulationError, match=r"jobs.csv:2: workload: w: is no workload; there are v"):
        workloads_of(file, ["a", "b"], ["v"])
    file.write_text("[\n]\n", encoding="utf-8")
    assert workloads_of(file, ["a"], ["w"]) == {}


def test_workloads_may_say_how_many_gpus_they_use(tmp_path: Path) -> None:
    file = tmp_path / "workloads.csv"
    file.write_text("workload,gpu\na,2\n", encoding="utf-8")
    assert gpus_of(file) == {"a": 2}
    file.write_text("workload,x\na,2\n", encoding="utf-8")
    assert gpus_of(file) == {}


def test_jobs_that_no_machine_holds_are_named_twenty_at_most() -> None:
    make = job_maker(trace(*[(0, 1, 3)] * 23), ["w"] * 23, 8, Share())
    jobs: list[PackedJob] = [make(row) for row in range(23)]
    with pytest.raises(SimulationError) as error:
        check_fits(jobs, [SMALL.offer, BIG.offer])
    first, *_, last = str(error.value).splitlines()
    assert first == (
        "job j0: task 0: no offer has 3 GPUs (the largest has 2): take it out or extend the catalog"
    )
    assert last == "and 3 more jobs"
