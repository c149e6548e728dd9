"""`advise` for one's own history: the cluster and the budget's mode are this home's unless they are given."""

from __future__ import annotations

import json

import pytest

from sim import parallel
from starburst.app.config import parse_config
from starburst.core.model.events import NodesChanged
from starburst.domain.node import Node
from starburst.domain.resources import Resources


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    """No workers: these simulations are so small that starting them would take longest."""
    monkeypatch.setattr(parallel, "cores", lambda: 1)


def specs(answer):
    assert answer.code == 0, answer.err
    return [row["spec"] for row in json.loads(answer.out)["budgets"]]


def cluster(spec):
    return [spec[what] for what in ("nodes", "gpus_per_node", "cpus_per_node", "memory_gib_per_node")]


@pytest.mark.parametrize(
    ("words", "size"), [((), [1, 4, 64, 256]), (("--nodes", 3, "--gpus-per-node", 2), [3, 2, 64, 256])]
)
def test_the_cluster_is_the_one_here_as_far_as_it_is_not_given(cli, past, words, size):
    past.morning()
    assert all(cluster(spec) == size for spec in specs(cli("advise", "--history", *words, "-o", "json")))


def test_nodes_that_are_not_alike_must_be_given(cli, past):
    past.morning()
    past.tell(NodesChanged((Node("a", Resources.of(4, 64, 256)), Node("b", Resources.of(0, 32, 64)))))
    told = cli("advise", "--history", "--gpus-per-node", 4)
    assert told.code == 2
    assert told.err == (
        "error: --history: 1 × 4 GPUs, 64 CPUs, 256 GiB; 1 × 0 GPUs, 32 CPUs, 64 GiB: these nodes are not "
        "alike, and advise simulates nodes of one shape; give the nearest by --nodes, --cpus-per-node\n"
    )


@pytest.mark.parametrize(
    ("words", "mode", "hopeless"),
    [
        ((), "calibrated", "leave"),
        (("--budget-mode", "open"), "open", "leave"),
        (("--hopeless", "wait"), "calibrated", "wait"),
    ],
)
def test_the_budget_is_spent_as_it_is_here(cli, past, words, mode, hopeless):
    past.morning()
    policy = {"budget_mode": "calibrated", "hopeless": "leave", "order": "sjf"}
    past.store.set_fact("config", parse_config({"policy": policy}, "test").model_dump(mode="json"))
    for spec in specs(cli("advise", "--history", *words, "-o", "json")):
        assert (spec["budget_mode"], spec["hopeless"], spec["order"]) == (mode, hopeless, "sjf")


@pytest.mark.parametrize(
    ("words", "waiting", "queue_cap"),
    [((), "constant", 7), (("--waiting", "runtime", "--queue-cap", 9), "runtime", 9)],
)
def test_jobs_wait_and_leave_as_they_do_here(cli, past, words, waiting, queue_cap):
    past.morning()
    policy = {"waiting": "constant", "queue_limit": 7, "short_jobs": "6m", "max_slowdown": 3, "order": "fair"}
    queues = [{"name": "papers", "share": 3}, {"name": "empty", "share": 2}]
    config = parse_config({"policy": policy, "queues": [*queues, {"name": "default"}]}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    for spec in specs(cli("advise", "--history", *words, "-o", "json")):
        assert (spec["waiting"], spec["queue_cap"]) == (waiting, queue_cap)
        assert (spec["no_short_jobs_h"], spec["max_slowdown"]) == (0.1, 3)
        assert sorted(spec["shares"]) == [["default", 1], ["papers", 3]], "those that jobs are in"


@pytest.mark.parametrize(
    ("waiting", "advised", "t_max_h"), [("no-wait", "compute", None), ("star", "star", 0.5)]
)
def test_of_a_policy_without_a_budget_another_is_advised_and_star_has_the_t_max_of_here(
    cli, past, waiting, advised, t_max_h
):
    past.morning()
    config = parse_config({"policy": {"waiting": waiting, "t_max": "30m"}}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    for spec in specs(cli("advise", "--history", "-o", "json")):
        assert (spec["waiting"], spec["t_max_h"]) == (advised, t_max_h)


def test_a_calibrated_budget_is_advised_as_one(cli, tmp_path):
    file = tmp_path / "jobs.csv"
    rows = [f"j{i},{i / 4},1,1" for i in range(40)]
    file.write_text("\n".join(["job_id,arrival_h,duration_h,gpus", *rows, ""]))
    words = ("--nodes", 1, "--gpus-per-node", 2, "-o", "json")
    told = [cli("advise", file, *words, *more).out for more in ((), ("--budget-mode", "calibrated"))]
    modes = [{row["spec"]["budget_mode"] for row in json.loads(text)["budgets"]} for text in told]
    assert modes == [{"open"}, {"calibrated"}]
    assert " %, calibrated: " in json.loads(told[1])["sentences"][1]
    assert cli("advise", file, "--budget-mode", "x").err == (
        "error: --budget-mode: 'x': choose one of open, calibrated\n"
    )


def test_what_the_cluster_cannot_hold_is_left_out_and_said(cli, past):
    past.morning()
    past.tell(NodesChanged((Node("a", Resources.of(4, 64, 256)), Node("b", Resources.of(4, 64, 256)))))
    past.submit("gang-66666", tasks=(Resources.of(4, 60), Resources.of(4, 60)))
    past.start("wait-55555")
    past.end("train-44444")
    past.end("wait-55555")
    past.start("gang-66666")
    past.now += 60
    past.end("gang-66666")
    few = "note: 5 jobs are few: the advice may be chance; from 500 jobs on it is sounder\n"
    assert cli("advise", "--history").err == few, "two tasks of 60 CPUs are no job of 120"
    told = cli("advise", "--history", "--nodes", 1)
    left_out, few = told.err.splitlines()
    assert left_out == "note: --history: left out what this cluster cannot hold: 1 of 5 jobs"
    assert few.startswith("note: 4 jobs are few")
    (told,) = cli("advise", "--history", "--gpus-per-node", 0).err.splitlines()
    none = "this cluster holds none of the 5 jobs"
    assert told == f"error: --history: {none}; simulate more nodes, or larger ones"


def test_few_are_the_jobs_that_count(cli, tmp_path):
    file = tmp_path / "jobs.csv"
    rows = [f"j{i},{i / 4},1,1" for i in range(600)]
    file.write_text("\n".join(["job_id,arrival_h,duration_h,gpus", *rows, ""]))
    assert cli("advise", file, "--nodes", 1).err == ""
    assert cli("advise", file, "--nodes", 1, "--warmup", 250).err.startswith("note: 101 jobs are few")


def test_several_traces_get_a_line_each_and_the_advice_of_each_alone(cli, tmp_path):
    files = []
    for name, every_h in (("busy.csv", 0.25), ("idle.csv", 10.0)):
        files.append(tmp_path / name)
        rows = [f"j{i},{i * every_h},1,1" for i in range(40)]
        files[-1].write_text("\n".join(["job_id,arrival_h,duration_h,gpus", *rows, ""]))
    words = ("--nodes", 1, "--gpus-per-node", 2)
    told = json.loads(cli("advise", *files, *words, "-o", "json").out)
    alone = [json.loads(cli("advise", file, *words, "-o", "json").out) for file in files]
    assert [row.pop("trace") for row in told] == list(map(str, files))
    assert [row["sentences"] for row in told] == [row["sentences"] for row in alone]
    listed = cli("advise", *files, *words)
    head, busy, idle = listed.out.splitlines()
    assert head.split() == ["TRACE", "JOBS", "BUDGET", "NO-WAIT", "COST", "SAVED", "LONGER"]
    assert busy.split()[:3] == [str(files[0]), "40", f"{told[0]['advised_budget']:g}"]
    assert idle.split()[1:] == ["40", "–", "$0", "0.0", "%", "0.0", "%"]
    assert [line.split(":")[1].strip() for line in listed.err.splitlines()] == list(map(str, files))
    refused = cli("advise", *files, "--out", tmp_path / "out")
    assert (refused.code, refused.err) == (
        2,
        "error: --out: is for one trace; leave it out, or give one JOBS\n",
    )


def test_advice_goes_by_the_estimates_that_jobs_had_and_says_what_right_ones_would_save(cli, past):
    for name in "abcdef":
        past.submit(f"job-{name}", gpus=4)
    for name in "abcdef":
        past.start(f"job-{name}") if past.scheduler.state.jobs[f"job-{name}"].slots else None
    past.now += 3600
    past.end("job-a")
    for name in "bcdef":
        past.start(f"job-{name}")
        past.now += 3600
        past.end(f"job-{name}")
    answer = cli("advise", "--history")
    assert answer.code == 0, answer.err
    sentences = answer.out.split("\n\n")[0].splitlines()
    assert sentences[3].startswith(
        "0 of 6 jobs had an estimate of their run time; if each had a right one, P = "
    )
    told = json.loads(cli("advise", "--history", "-o", "json").out)
    assert {row["spec"]["runtime_estimates"] for row in told["budgets"]} == {"given"}
    assert told["other_estimates"]["spec"]["runtime_estimates"] == "right"
