"""A SkyPilot task with alternatives on an embedded site: real processes, at home and then on a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_life import NO_SIGCHLD, until
from tests.runs.harness import ending_what_is_left

pytestmark = pytest.mark.processes

CONFIG = """
policy: {waiting: constant, factor: 0.5, returns: never}
cluster:
  nodes:
    - {name: t4, gpus: 2, gpu_type: Tesla-T4, cpus: 8, memory_gib: 32}
    - {name: a100, gpus: 2, gpu_type: NVIDIA-A100-SXM4-40GB, cpus: 8, memory_gib: 32}
cloud:
  offers:
    - {name: t, gpus: 2, gpu_type: T4, cpus: 8, memory_gib: 61, usd_per_hour: 1}
    - {name: dear, gpus: 2, gpu_type: H100, cpus: 8, memory_gib: 61, usd_per_hour: 9}
    - {name: cheap, gpus: 2, gpu_type: H200, cpus: 8, memory_gib: 61, usd_per_hour: 3, boot: 10s, setup: 20s}
clock: {speed: 100}
debug: {validate: true}
"""
TASK = """
name: NAME
resources: {accelerators: {A100: 2, H100: 2, H200: 2}}
run: |
  until [ -e GO ]; do sleep 0.05; done
"""


def test_the_first_runs_at_home_and_the_next_on_the_cheapest_machine(
    home: Path, cli: Cli, tmp_path: Path
) -> None:
    config, log, go = tmp_path / "starburst.yaml", tmp_path / "up.log", tmp_path / "go"
    config.write_text(CONFIG)
    command = [*NO_SIGCHLD, sys.executable, "-m", "starburst", "up", "--config", str(config)]
    with ending_what_is_left(home), log.open("w") as err:
        process = subprocess.Popen(command, stderr=err, text=True, env=dict(os.environ))
        try:
            until(lambda: log.read_text().count('"synced"') == 2 or process.poll() is not None)
            for name in ("first", "second"):
                (tmp_path / "task.yaml").write_text(TASK.replace("NAME", name).replace("GO", str(go)))
                assert cli("submit", tmp_path / "task.yaml").code == 0
                until(lambda name=name: "runs" in cli("explain", name).out)  # type: ignore[misc]
            assert "on a100" in cli("explain", "first").out
            assert "(cheap)" in cli("explain", "second").out
            (rented,) = json.loads(cli("instances", "-o", "json").out)
            assert rented["offer"] == "cheap"
            go.touch()
            until(lambda: all("succeeded" in cli("explain", name).out for name in ("first", "second")))
        finally:
            process.kill()
            process.wait()
