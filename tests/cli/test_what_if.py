"""`starburst what-if`: the same history under the same config is the same, and under another one is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from starburst.domain.resources import Resources
from tests.cli.conftest import Cli
from tests.cli.past import Past

NODES = "cluster: {nodes: [{name: n, gpus: 1, count: 1}]}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new.yaml"


def told(cli: Cli, file: Path, text: str, *words: str) -> dict[str, dict[str, object]]:
    """What the command says of each queue."""
    file.write_text(text)
    answer = cli("what-if", "--config", file, "-o", "json", *words)
    assert answer.code == 0, answer.err
    return {row["queue"]: row for row in json.loads(answer.out)["queues"]}


def test_with_waiting_jobs_cost_less_and_take_longer_by_queue(cli: Cli, past: Past, file: Path) -> None:
    past.morning()
    free = told(cli, file, "policy: {waiting: no-wait, order: fifo}\n" + NODES)
    patient = told(cli, file, "policy: {waiting: infinite, order: fifo}\n" + NODES)
    assert free.keys() == {"all", "default", "papers"}
    assert free["all"]["jobs"] == 2
    assert free["all"]["cost_usd"]["now"] == patient["all"]["cost_usd"]["now"]  # type: ignore[index]
    costs = [found["all"]["cost_usd"]["then"] for found in (free, patient)]  # type: ignore[index]
    waits = [found["all"]["wait_h"]["then"] for found in (free, patient)]  # type: ignore[index]
    assert costs[0] >= costs[1] == 0
    assert waits[0] <= waits[1]


def refuse_constant(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def test_what_it_prints_as_json_is_json(cli: Cli, past: Past, file: Path) -> None:
    past.morning()
    file.write_text(NODES)
    told = json.loads(cli("what-if", "--config", file, "-o", "json").out, parse_constant=refuse_constant)
    assert (told["now"]["max_wait_h"], told["then"]["max_wait_h"]) == (None, None), "no limit"


@pytest.mark.parametrize(
    ("config", "simulated"),
    [
        ("policy: {max_slowdown: 1.5}", {"max_slowdown": 1.5}),
        ("policy: {waiting: star, t_max: 30m}", {"waiting": "star", "t_max_h": 0.5}),
        (
            "policy: {order: fair}\nqueues: [{name: papers, share: 3}, {name: default}, {name: new}]",
            {"order": "fair", "shares": [["papers", 3], ["default", 1]]},
        ),
    ],
    ids=["a bound on slowdowns", "star and its T_max", "shares of the queues"],
)
def test_what_the_other_config_says_of_waits_and_queues_is_simulated(
    cli: Cli, past: Past, file: Path, config: str, simulated: dict[str, object]
) -> None:
    past.morning()
    file.write_text(f"{config}\n{NODES}")
    answer = cli("what-if", "--config", file, "-o", "json")
    assert answer.code == 0, answer.err
    then = json.loads(answer.out)["then"]
    assert {name: then[name] for name in simulated} == simulated


def test_only_what_was_submitted_since_counts(cli: Cli, past: Past, file: Path) -> None:
    past.morning()
    file.write_text(NODES)
    lines = [line.split()[:2] for line in cli("what-if", "--config", file).out.splitlines()]
    assert lines == [["QUEUE", "JOBS"], ["all", "2"], ["default", "1"], ["papers", "1"]]
    answer = cli("what-if", "--config", file, "--history", "1s")
    assert (answer.code, answer.err) == (
        2,
        "error: no job that was submitted then has finished here; what-if needs some that have\n",
    )
    assert cli("what-if", "--config", file, "--history", "x").err.startswith("error: --history: 'x'")


def test_a_config_that_is_wrong_or_has_nodes_that_differ_is_refused(cli: Cli, past: Past, file: Path) -> None:
    past.morning()
    file.write_text("cluster: {nodes: [{name: a, gpus: 1}, {name: b, gpus: 2}]}")
    told = cli("what-if", "--config", file).err
    assert "these nodes are not alike, and what-if simulates nodes of one shape" in told
    assert "starburst advise --history --nodes N --gpus-per-node N --cpus-per-node N" in told
    file.write_text("polcy: {}")
    assert cli("what-if", "--config", file).code == 2


def test_a_job_is_as_large_on_each_cluster_as_that_ones_nodes_make_it(
    cli: Cli, past: Past, file: Path
) -> None:
    past.submit("train-7", tasks=(Resources.of(4, 8),))
    past.start("train-7")
    past.now += 3600
    past.end("train-7")
    halves = "cluster: {nodes: [{name: n, gpus: 2, cpus: 32, memory_gib: 128, count: 2}]}"
    row = told(cli, file, halves)["all"]
    assert (row["jobs"], row["jct_h"]) == (1, {"now": 1, "then": 1}), "on one node now, on two then"
    file.write_text(halves.replace("count: 2", "count: 1"))
    told_of_one = cli("what-if", "--config", file).err
    assert told_of_one.startswith("error: the history: this cluster holds none of the 1 jobs")
