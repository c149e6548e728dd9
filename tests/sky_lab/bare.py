"""The same work by SkyPilot alone, for the comparison in docs/results/sky.md."""

from __future__ import annotations

import re
import subprocess
import time

from tests.sky_lab.ec2 import COSTING, of_cluster

#: What the job prints: the time on its machine's clock, which is this host's in the laboratory.
SCRIPT = "date +%s.%N"
#: A time as `SCRIPT` prints it, wherever SkyPilot puts it in a line.
_TIME = re.compile(r"\b(\d{10}\.\d{9})\b")
LIMIT_S = 1200.0


def launch(cluster: str, infra: str, instance_type: str) -> float:
    """Seconds from `sky launch` on a new spot machine to the job's first line."""
    place = ["--infra", infra, "--instance-type", instance_type, "--use-spot"]
    return _first_line("launch", "-y", "-c", cluster, *place, SCRIPT)


def execute(cluster: str) -> float:
    """Seconds from `sky exec` on a machine that is there to the job's first line."""
    return _first_line("exec", cluster, SCRIPT)


def idle(cluster: str) -> float:
    """Seconds that a machine without work is billed under the shortest autostop there is."""
    command = ["sky", "autostop", "-y", "-i", "1", "--down", cluster]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
    since, there = time.time(), set(of_cluster(cluster).values())
    assert there & COSTING, f"{cluster} is {', '.join(there) or 'not there'}"
    while COSTING & set(of_cluster(cluster).values()):
        assert time.time() - since < LIMIT_S, f"{cluster} is not given back"
        time.sleep(1)
    return round(time.time() - since, 1)


def _first_line(*words: str) -> float:
    since = time.time()
    told = subprocess.run(["sky", *words], check=True, capture_output=True, text=True, timeout=LIMIT_S)
    found = _TIME.search(told.stdout)
    assert found is not None, told.stdout[-2000:]
    return round(float(found[1]) - since, 1)
