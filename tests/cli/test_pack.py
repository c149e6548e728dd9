"""`pack`: what it promises to say, what it refuses."""

from __future__ import annotations

import csv
import json
import os

import pytest

from tests.cli.answers import csv_file, one_line, told
from tests.references import SHARED

EVA = SHARED / "cases" / "eva"
needs_eva = pytest.mark.skipif(
    not (EVA / "instance_types.csv").is_file() and "STARBURST_REQUIRE_SHARED" not in os.environ,
    reason="the reference cases are not here: set STARBURST_SHARED to the folder that has cases/eva",
)
KEYS = {
    *("packer", "cost_per_hour", "lower_bound", "gap", "instances", "tasks", "cpu_seconds"),
    *("unplaced", "assignment"),
}


@pytest.fixture
def catalog(tmp_path):
    """Four GPUs cost a little less than four times one."""
    return csv_file(
        tmp_path / "types.csv",
        "name,family,gpu,cpu,vcpu,ram_gb,usd_per_hour",
        "one,g,1,8,16,32,3",
        "four,g,4,32,64,128,11",
        "plain,c,0,16,32,256,0.5",
    )


@pytest.fixture
def tasks(tmp_path):
    """Five with a GPU, one of them a gang's, and two without; one fits nothing."""
    rows = [f"t{i},1,4,8,{'b' if i > 2 else 'a'}" for i in range(5)]
    rows += ["t5,0,8,100,c", "t6,0,8,100,c", "big,8,1,1,a"]
    return csv_file(tmp_path / "tasks.csv", "task_id,gpu,cpu,ram_gb,workload", *rows)


def test_json_has_the_promised_keys_and_every_task_once(cli, tasks, catalog):
    answer = told(cli("pack", tasks, "--catalog", catalog, "-o", "json"), code=1)
    assert set(answer) == KEYS
    assert (answer["packer"], answer["cost_per_hour"], answer["lower_bound"], answer["gap"]) == (
        "optimal",
        14.5,
        14.5,
        0,
    )
    assert (answer["instances"], answer["tasks"]) == (3, 8)
    held = [task for machine in answer["assignment"] for task in machine["tasks"]]
    assert sorted(held) == [f"t{i}" for i in range(7)]
    assert sorted(machine["offer"] for machine in answer["assignment"]) == ["four", "one", "plain"]
    assert answer["unplaced"] == [{"task": "big", "reason": "no offer has 8 GPUs (the largest has 4)"}]
    assert answer["cpu_seconds"] > 0


def test_another_packer_is_measured_by_the_same_bound(cli, tasks, catalog):
    answer = told(cli("pack", tasks, "--catalog", catalog, "--packer", "none", "-o", "json"), code=1)
    assert (answer["cost_per_hour"], answer["lower_bound"], answer["instances"]) == (16.0, 14.5, 7)
    assert answer["gap"] == pytest.approx(1.5 / 16)


def test_a_table_for_people(cli, tasks, catalog):
    answer = cli("pack", tasks, "--catalog", catalog)
    head, *lines = answer.out.splitlines()
    assert head.split() == ["OFFER", "INSTANCES", "TASKS", "$/HOUR"]
    assert [line.split() for line in lines[:3]] == [
        ["four", "1", "4", "11.00"],
        ["one", "1", "1", "3.00"],
        ["plain", "1", "2", "0.50"],
    ]
    assert "cost         $14.50 per hour; 3 instances, 7 tasks" in lines
    assert "lower bound  $14.50 per hour, which makes it the optimum" in lines
    assert lines[-1] == "unplaced     big: no offer has 8 GPUs (the largest has 4)"
    assert answer.code == 1


def test_interference_keeps_tasks_apart_and_is_told(cli, tasks, catalog, tmp_path):
    rows = [f"{a},{b},{0.2 if 'a' in (a, b) else 1}" for a in "abc" for b in "abc"]
    slow = csv_file(tmp_path / "slow.csv", "workload,colocated_with,throughput", *rows)
    answer = told(cli("pack", tasks, "--catalog", catalog, "--throughput", slow, "-o", "json"), code=1)
    assert set(answer) == KEYS | {"lost_per_hour"}
    assert (answer["cost_per_hour"], answer["lost_per_hour"], answer["lower_bound"]) == (15.5, 0, 14.5)


def test_tasks_of_a_gang_keep_their_names(cli, catalog, tmp_path):
    gang = csv_file(tmp_path / "gang.csv", "task_id,job_id,gpu,cpu,ram_gb", "w,j,1,1,1", "", "x,j,1,1,1")
    answer = told(cli("pack", gang, "--catalog", catalog, "--packer", "none", "-o", "json"))
    assert [machine["tasks"] for machine in answer["assignment"]] == [["w"], ["x"]]


def test_columns_of_cpus_may_be_named(cli, catalog, tmp_path):
    tasks = csv_file(tmp_path / "by_family.csv", "task_id,gpu,ram_gb,need_g,need_c", "a,0,1,32,32")
    words = ("pack", tasks, "--catalog", catalog, "--demand-column-prefix", "need_", "-o", "json")
    assert told(cli(*words))["assignment"][0]["offer"] == "four"
    assert told(cli(*words, "--cpu-column", "vcpu"))["assignment"][0]["offer"] == "plain"


def test_mistakes_are_one_line_each(cli, tasks, catalog, tmp_path):
    said = one_line(cli("pack", tasks, "--catalog", catalog, "--packer", "magic"))
    assert said.startswith("--packer: 'magic': is no packer; there are optimal, ")
    bare = csv_file(tmp_path / "bare.csv", "task_id,gpu,cpu,ram_gb", "a,0,1,1")
    table = csv_file(tmp_path / "table.csv", "workload,colocated_with,throughput", "a,a,1")
    said = one_line(cli("pack", bare, "--catalog", catalog, "--throughput", table))
    assert said == f"--throughput: {bare}: a task has no workload; fill the column workload"
    assert str(tmp_path / "none.csv") in one_line(cli("pack", tmp_path / "none.csv", "--catalog", catalog))


@needs_eva
def test_a_recorded_trial_costs_its_proven_optimum(cli, tmp_path):
    trial = json.loads((EVA / "micro_trials.json").read_text(encoding="utf-8"))["trials"][0]
    with (EVA / "workloads.csv").open(encoding="utf-8") as lines:
        kinds = {row["workload"]: row for row in csv.DictReader(lines)}
    columns = ("gpu", "ram_gb", "cpu_p3", "cpu_c7i", "cpu_r7i")
    rows = [
        ",".join([f"{name}-{i}", *(kinds[name][column] for column in columns)])
        for name, times in trial["counts"].items()
        for i in range(times)
    ]
    tasks = csv_file(tmp_path / "trial.csv", ",".join(("task_id", *columns)), *rows)
    words = ("--catalog", EVA / "instance_types.csv", "--cpu-column", "cpu_cores", "-o", "json")
    answer = told(cli("pack", tasks, *words))
    assert answer["cost_per_hour"] == answer["lower_bound"] == pytest.approx(trial["best_integer"], abs=1e-9)
