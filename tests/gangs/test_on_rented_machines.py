"""Gangs of each kind on both laboratories: real kubelets, and real SkyPilot before a fake EC2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gangs.calls import calls
from tests.gangs.jobs import SWEEP
from tests.gangs.programs import ctr
from tests.gangs.story import DONE, START_S, begin, cluster_of_two, fill_the_cluster, run_gangs
from tests.hybrid.test_hybrid import BOOT_S, LAUNCH_S, NOTICE_S, all_gone, config, jobs, machines, phases, tag
from tests.kube.live import IMAGE, Live
from tests.sky_lab.conftest import laboratory
from tests.sky_lab.containers import BUSYBOX, engines
from tests.sky_lab.ec2 import rented
from tests.sky_lab.lab import lab

__all__ = ["laboratory"]

pytestmark = [pytest.mark.gangs, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster(laboratory: None, tmp_path: Path) -> Iterator[Live]:
    with cluster_of_two(tmp_path) as found:
        yield found


def test_gangs_of_each_kind_run_at_home_and_away_and_end_once(cluster: Live) -> None:
    (cluster.root / "checkpoints").mkdir()
    begin(cluster, config(cluster.root))
    run_gangs(cluster, lose_a_node)
    the_bill_is_right(cluster)


def test_an_array_of_a_batch_script_and_calls_of_python_overflow(cluster: Live) -> None:
    """The array runs in containers, the calls without."""
    (cluster.root / "checkpoints").mkdir()
    with engines():
        begin(cluster, config(cluster.root))
        gate = fill_the_cluster(cluster)
        (cluster.root / "sweep.sh").write_text(SWEEP)
        for node in range(2):  # its image has the name that it has in the machines' registry
            tag_image(cluster, node)
        cluster.run("submit", "sweep.sh", "--image", BUSYBOX, "--max-wait", "1s", "--no-workdir")
        with calls(cluster) as called:
            called.are_answered(START_S)
        cluster.wait_for("the array has ended", lambda: phases(cluster, "sweep") == {"succeeded": 8}, START_S)
        gate.touch()
        cluster.wait_for("the blockers have ended", lambda: phases(cluster, "block") == {"succeeded": 2})
        cluster.wait_for("no machine is left", lambda: all_gone(cluster), LAUNCH_S)
    for job in jobs(cluster):
        if job.name.startswith("sweep"):
            assert job.site == "cloud"
            assert len(DONE.findall(cluster.run("logs", job.id))) == 1
    the_bill_is_right(cluster)


def lose_a_node(cluster: Live, name: str) -> None:
    """The cloud takes one of the two nodes of a job's machine."""
    (machine,) = [job.runs_on for job in jobs(cluster) if job.name == name]
    nodes = [one.id for one in rented(tag(cluster)) if one.intent == machine]
    assert len(nodes) == 2
    lab("preempt", nodes[1])
    cluster.wait_for("its end is known", lambda: machines(cluster)[machine].preempted, LAUNCH_S)


def the_bill_is_right(cluster: Live) -> None:
    """Each machine costs what its cloud counted for each of its nodes; the cloud has nothing of ours left."""
    told = {one["id"]: one for one in json.loads(cluster.run("instances", "--all", "-o", "json"))}
    nodes = rented(tag(cluster))
    assert {node.intent for node in nodes} == told.keys()
    for name, machine in told.items():
        own = [node for node in nodes if node.intent == name]
        number = machines(cluster)[name].offer.nodes
        assert len(own) == number, (machine, own)
        assert all(node.ended_at is not None for node in own)
        price = machine["usd_per_hour"] / (number - machine["nodes_lost"]) / 3600
        counted = sum((node.ended_at or 0.0) - node.launched_at for node in own) * price
        lives = [(node.ended_at or 0.0) - node.launched_at for node in own]
        print(
            f"{name}: {number} × {own[0].type}, {', '.join(f'{life:.0f}' for life in lives)} s by its cloud, "
            f"${counted:.4f}; billed {machine['billed_s']:.0f} s, ${machine['cost_usd']:.4f}"
        )
        least, most = (
            counted - number * BOOT_S * price,
            counted + number * NOTICE_S * price,
        )
        assert least <= machine["cost_usd"] <= most, (machine, own)
        if not machine["nodes_lost"]:
            assert machine["cost_usd"] == pytest.approx(number * price * machine["billed_s"], abs=1e-5)
    shares = json.loads(cluster.run("cost", "--by", "job", "-o", "json"))
    whole = sum(machine["cost_usd"] for machine in told.values())
    assert sum(share["cost_usd"] for share in shares) == pytest.approx(whole, abs=1e-6)


def tag_image(cluster: Live, node: int) -> None:
    """Let a kubelet have busybox under its name in the machines' registry."""
    ctr(cluster.lab, node, "images", "tag", IMAGE, BUSYBOX)
