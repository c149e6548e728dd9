"""`simulate --packer`: the published figure, the two papers together, what is refused."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sim.packing.burst import simulate_burst
from sim.packing.cloud import CloudModel
from sim.packing.demands import Share, gpus_per_task, in_seconds, job_maker
from sim.packing.workloads import drawn
from sim.readers import read
from sim.spec import Spec
from starburst.cli.tools.packed import outcomes_csv
from tests.cli.answers import csv_file, one_line, told
from tests.references import SHARED

EVA = SHARED / "cases" / "eva"
needs_eva = pytest.mark.skipif(
    not (EVA / "instance_types.csv").is_file() and "STARBURST_REQUIRE_SHARED" not in os.environ,
    reason="the reference cases are not here: set STARBURST_SHARED to the folder that has cases/eva",
)
ALONE = {
    *("cost", "mean_jct_h", "instances", "migrations", "tasks_per_instance", "allocation", "full_share"),
    *("plans", "mean_idle_h", "mean_throughput", "bound", "cpu_seconds", "packer_cpu_seconds"),
    *("jobs_counted", "seed", "packing"),
}
BEHIND = ALONE - {"cost"} | {
    *("cloud_cost_usd", "no_wait_jct_h", "jct_increase_percent", "mean_wait_h", "cloud_jct_h"),
    *("cluster_utilization", "cloud_jobs", "passed_jobs", "engine", "waiting_cpu_seconds", "spec"),
}
CLUSTER = ("--nodes", 1, "--gpus-per-node", 2, "--engine", "core")
TOOK = ("cpu_seconds", "packer_cpu_seconds", "waiting_cpu_seconds")


@pytest.fixture
def cloud(tmp_path):
    """Two GPUs cost less than twice one, and slow each other's tasks a little."""
    types = [
        *("name,family,gpu,vcpu,ram_gb,usd_per_hour,acquire_delay_s,setup_delay_s,terminate_delay_s",),
        *("one,g,1,8,61,3.60,10,50,1", "two,g,2,16,122,5.40,10,50,1", "four,g,4,32,244,9,10,50,1"),
    ]
    workloads = [
        "workload,gpu,full_throughput_iters_per_s,fetch_delay_s,kill_delay_s,upload_delay_s,init_delay_s",
        *("a,1,2,5,1,4,20", "b,1,1,5,1,4,30", "c,2,1,5,1,4,60"),
    ]
    pairs = [f"{a},{b},0.97" for a in "abc" for b in "abc"]
    return (
        *("--catalog", csv_file(tmp_path / "types.csv", *types)),
        *("--workloads", csv_file(tmp_path / "workloads.csv", *workloads)),
        *(
            "--colocation",
            csv_file(tmp_path / "pairs.csv", "workload,colocated_with,throughput", *pairs),
        ),
    )


@pytest.fixture
def jobs(tmp_path):
    """For a cluster: half an hour each, of one or two GPUs, more than two GPUs can do."""
    rows = [f"j{i},{i / 10},0.5,{1 + i % 3 // 2}" for i in range(30)]
    return csv_file(tmp_path / "jobs.csv", "job_id,arrival_h,duration_h,gpus", *rows)


@pytest.fixture
def packed_jobs(tmp_path):
    """For a packed cloud."""
    rows = [f"j{i},{i * 200},1800,{'ab'[i % 2]},1,4,16" for i in range(20)]
    return csv_file(tmp_path / "packed.csv", "job_id,arrival_s,duration_s,workload,gpu,cpu,ram_gb", *rows)


@needs_eva
def test_no_packing_costs_what_was_published(cli):
    files = {"catalog": "instance_types", "workloads": "workloads", "colocation": "colocation_throughput"}
    words = [word for name, file in files.items() for word in (f"--{name}", EVA / f"{file}.csv")]
    trace = EVA / "trace_pai_200.csv"
    answer = cli(
        *("simulate", trace, "--nodes", 0, "--packer", "none", "--period", 300, "--cpu-column", "vcpu"),
        *(*words, "-o", "json"),
    )
    result = told(answer)
    assert f"{result['cost']:.2f} {result['mean_jct_h']:.2f}" == "20736.38 17.67"
    assert (result["instances"], result["migrations"], result["jobs_counted"]) == (200, 0, 200)


def test_json_has_the_promised_keys(cli, cloud, packed_jobs, jobs):
    alone = told(cli("simulate", packed_jobs, "--nodes", 0, "--packer", "eva", *cloud, "-o", "json"))
    assert set(alone) == ALONE
    assert set(alone["allocation"]) == {"gpu", "cpu", "ram"}
    assert (alone["jobs_counted"], alone["packing"]["packer"]) == (20, "eva")
    behind = told(cli("simulate", jobs, *CLUSTER, "--packer", "eva", *cloud, "--seed", 4, "-o", "json"))
    assert set(behind) == BEHIND
    assert (behind["seed"], behind["spec"]["nodes"], behind["jobs_counted"]) == (4, 1, 30)
    assert 0 < behind["cloud_jobs"] < 30


def test_two_runs_tell_the_same(cli, cloud, jobs):
    def once(*words):
        result = told(cli("simulate", jobs, *CLUSTER, "--packer", "eva", *cloud, *words, "-o", "json"))
        return {key: value for key, value in result.items() if key not in TOOK}

    assert once("--seed", 1) == once("--seed", 1)
    assert once("--seed", 1)["mean_jct_h"] != once("--seed", 2)["mean_jct_h"], "other workloads were drawn"


@pytest.mark.parametrize("name", ["none", "eva", "synergy"])
def test_the_bill_is_that_of_the_jobs_that_left(cli, cloud, jobs, name):
    words = ("--waiting", "no-wait", "--packer", name, *cloud, "-o", "json")
    result = told(cli("simulate", jobs, *CLUSTER, *words))
    trace = read(jobs).trace
    files = CloudModel.read(*(Path(word) for word in cloud[1::2]))
    picked = drawn(["a", "b", "c"], {"a": 1, "b": 1, "c": 2}, gpus_per_task(trace, 2), seed=0)
    alone = simulate_burst(
        trace,
        job_maker(trace, picked, 2, Share()),
        Spec(nodes=1, gpus_per_node=2, waiting="no-wait"),
        replace(files, kinds=in_seconds(files.kinds)),
        name,
        no_wait_jct_h=1.0,
    ).packed
    assert (result["cloud_cost_usd"], result["cloud_jct_h"]) == (alone.cost, alone.mean_jct_h)
    assert result["cloud_jobs"] == len(alone.jobs) > 0
    assert outcomes_csv(alone).count("\n") == len(alone.jobs) + 1


def test_who_waits_for_ever_pays_nothing(cli, cloud, jobs):
    words = ("--waiting", "infinite", "--packer", "eva", *cloud, "-o", "json")
    result = told(cli("simulate", jobs, *CLUSTER, *words))
    assert (result["cloud_cost_usd"], result["instances"], result["cloud_jobs"]) == (0, 0, 0)
    assert result["jct_increase_percent"] > 0


def test_a_trace_of_a_packed_cloud_may_stand_behind_a_cluster(cli, cloud, packed_jobs):
    words = ("--packer", "none", *cloud, "-o", "json")
    behind = told(cli("simulate", packed_jobs, *CLUSTER, "--waiting", "no-wait", *words))
    assert behind["cloud_jobs"] == behind["instances"] > 0
    alone = told(cli("simulate", packed_jobs, "--nodes", 0, *words))
    assert behind["cloud_cost_usd"] < alone["cost"]


def test_the_saving_is_told_if_it_is_asked_for(cli, cloud, packed_jobs):
    words = ("simulate", packed_jobs, "--nodes", 0, *cloud, "-o", "json")
    none = told(cli(*words, "--packer", "none"))
    result = told(cli(*words, "--packer", "eva", "--compare"))
    assert set(result) == ALONE | {"saved_percent", "no_packing"}
    assert result["no_packing"] == {"cost": none["cost"], "mean_jct_h": none["mean_jct_h"]}
    assert result["saved_percent"] == pytest.approx(100 * (1 - result["cost"] / none["cost"]))
    assert result["saved_percent"] > 0


def test_stratus_is_told_how_long_jobs_run_and_owl_who_slows_whom(cli, cloud, packed_jobs):
    for name, estimates, known in (("stratus", True, False), ("owl", False, True), ("eva", False, False)):
        words = ("--nodes", 0, "--packer", name, *cloud, "-o", "json")
        packing = told(cli("simulate", packed_jobs, *words))["packing"]
        assert (packing["estimates"], packing["known_colocation"]) == (estimates, known)
    words = ("--nodes", 0, "--packer", "stratus", "--no-estimates", *cloud, "-o", "json")
    assert told(cli("simulate", packed_jobs, *words))["packing"]["estimates"] is False


def test_what_slows_tasks_down_shows(cli, cloud, packed_jobs):
    words = ("simulate", packed_jobs, "--nodes", 0, "--packer", "eva-rp", *cloud[:4], "-o", "json")
    slow, fast = (told(cli(*words, "--uniform-throughput", value)) for value in (0.9, 1))
    assert slow["mean_throughput"] < 1 == fast["mean_throughput"]
    lame = told(cli(*words, "--uniform-throughput", 1, "--migration-delay", 5))
    assert lame["mean_idle_h"] > fast["mean_idle_h"]


def test_outcomes_tell_every_job_of_the_packed_cloud(cli, cloud, packed_jobs, tmp_path):
    file = tmp_path / "out.csv"
    words = ("--nodes", 0, "--packer", "none", *cloud, "--outcomes", file, "-o", "json")
    mean_h = told(cli("simulate", packed_jobs, *words))["mean_jct_h"]
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["job_id", "arrival_s", "end_s", "idle_s", "throughput", "moves"]
    took_s = [float(row["end_s"]) - float(row["arrival_s"]) for row in rows]
    assert sum(took_s) / len(took_s) / 3600 == pytest.approx(mean_h)


def test_a_few_lines_for_people(cli, cloud, packed_jobs, jobs):
    alone = cli("simulate", packed_jobs, "--nodes", 0, "--packer", "none", *cloud).out.splitlines()
    assert alone[0] == "20 jobs packed by none every 300 s; 3 types of machines"
    assert alone[1].split()[0] == "cost"
    assert "$" in alone[1]
    words = (*CLUSTER, "--waiting", "no-wait", "--packer", "eva", *cloud, "--compare")
    head, cost, *_ = cli("simulate", jobs, *words).out.splitlines()
    assert head == "No-Wait, FIFO, first-fit; 1 × 2 GPUs; packed by eva every 300 s; 30 of 30 jobs count"
    assert "less than No-Packing's $" in cost
    words = ("--nodes", 0, "--packer", "none", *cloud, "-o", "name")
    assert cli("simulate", packed_jobs, *words).out == "simulation/none\n"


PACKED = ["--packer", "eva", "--workloads", "w.csv", "--catalog", "c.csv", "--colocation", "p.csv"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "0"], "--nodes: 0: without a cluster all jobs are in the cloud; give --packer"),
        (["--catalog", "c.csv"], "--catalog: is for a packed cloud; give --packer too, or leave it out"),
        (["--packer", "evo"], "--packer: 'evo': did you mean eva? choose one of none, "),
        (PACKED[:2], "--packer: needs to know what can be rented; give --catalog CSV"),
        ([*PACKED[:2], *PACKED[4:]], "--packer: needs to know how long moves take; give --workloads CSV"),
        (PACKED[:6], "--packer: needs to know who slows whom; give --colocation CSV or "),
        ([*PACKED, "--uniform-throughput", "0.9"], "--colocation: has no effect beside --uniform-throughput"),
        ([*PACKED[:6], "--uniform-throughput", "2"], "--uniform-throughput: 2.0: must be more than 0 and at"),
        ([*PACKED, "--period", "0"], "--period: 0.0: must be more than 0"),
        ([*PACKED, "--migration-delay", "nan"], "--migration-delay: nan: must be at least 0"),
        ([*PACKED, "--nodes", "0", "--waiting", "no-wait"], "--waiting: has no effect with --nodes 0"),
        (
            [*PACKED, "--nodes", "0", "--memory-per-gpu", "8"],
            "--memory-per-gpu: has no effect with --nodes 0",
        ),
        ([*PACKED, "--waiting", "star", "--t-max", "1"], "--t-max: no job comes back from a packed cloud"),
        ([*PACKED, "--waiting", "star"], "--waiting: star: no job comes back from a packed cloud"),
        ([*PACKED, "--sweep", "budget=5"], "--sweep: is for clouds without --packer"),
        ([*PACKED, "--price-per-gpu-hour", "1"], "--price-per-gpu-hour: --catalog has the prices"),
        ([*PACKED, "--cloud-delay", "1"], "--cloud-delay: --catalog says how long machines take"),
        ([*PACKED, "--data-gravity", "1"], "--data-gravity: --workloads says how long jobs fetch"),
        ([*PACKED, "--bound"], "--bound: is known of clouds without --packer"),
        ([*PACKED, "--out", "dir"], "--out: draws clouds without --packer"),
        (["--compare", "--packer", "none", *PACKED[2:]], "--compare: none is what the others are compared"),
        (PACKED, "c.csv: cannot be read: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_gets_one_line(cli, jobs, words, said):
    assert one_line(cli("simulate", jobs, *words)).startswith(said)


def test_a_job_that_fits_no_machine_is_named(cli, cloud, packed_jobs):
    csv_file(packed_jobs, *packed_jobs.read_text().splitlines(), "huge,9999,60,a,5,1,1")
    said = one_line(cli("simulate", packed_jobs, "--nodes", 0, "--packer", "none", *cloud))
    assert said.startswith("job huge: task 0: no offer has 5 GPUs (the largest has 4)")


def test_a_trace_for_a_cluster_needs_one(cli, cloud, jobs):
    said = one_line(cli("simulate", jobs, "--nodes", 0, "--packer", "none", *cloud))
    assert said == f"{jobs}: is for a cluster, as it has no workloads; give --nodes 1 or more"
