"""Gangs of each kind on real kubelets and the embedded cloud, whose machines are processes here."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.gangs.story import begin, cluster_of_two, run_gangs
from tests.hybrid.test_hybrid import LAUNCH_S, config, jobs, machines
from tests.kube.live import Live

pytestmark = [pytest.mark.gangs, pytest.mark.filterwarnings("ignore")]

MACHINE = {"name": "p3.8xlarge", "gpus": 4, "gpu_type": "V100", "cpus": 32, "memory_gib": 244}
OFFER = {**MACHINE, "usd_per_hour": 12.24, "boot": "1s", "setup": "1s"}


def test_gangs_of_each_kind_run_at_home_and_away_and_end_once(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    settings = {**config(tmp_path), "cloud": {"trust_users": True, "offers": [OFFER]}}
    with cluster_of_two(tmp_path) as cluster:
        begin(cluster, settings)
        run_gangs(cluster, lose_a_machine)
        for one in json.loads(cluster.run("instances", "--all", "-o", "json")):
            number = machines(cluster)[one["id"]].offer.nodes
            print(f"{one['id']}: {number} machines, {one['billed_s']:.0f} s, ${one['cost_usd']:.4f}")
            assert one["usd_per_hour"] == pytest.approx(12.24 * number)
            cost = one["usd_per_hour"] * one["billed_s"] / 3600
            assert one["cost_usd"] == pytest.approx(cost, abs=1e-5)


def lose_a_machine(cluster: Live, name: str) -> None:
    """The embedded cloud takes the machines of a job, as its files have it."""
    (machine,) = [job.runs_on for job in jobs(cluster) if job.name == name]
    (directory,) = (cluster.home / "cloud" / "instances").glob(f"*/{machine}")
    (directory / "preempted.json").write_text(json.dumps({"at": time.time()}))
    cluster.wait_for("its end is known", lambda: machines(cluster)[machine].preempted, LAUNCH_S)
