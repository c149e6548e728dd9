"""A machine whose Ray is dead, and one that starts nothing, on the laboratory: two machines, some minutes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from starburst.clouds.sky.machines import fitness
from starburst.core.model.events import (
    InstanceGone,
    InstanceReady,
    InstanceUnfit,
    RunEnd,
    RunEnded,
    RunStarted,
)
from tests.sky_lab.lab import Life, family, job, lab, vm_at
from tests.sky_lab.test_lab import of

#: SkyPilot and its libraries warn of themselves.
pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]


#: What a job might want: files of the agent and of the machine's user, processes, SkyPilot's Ray.
HOSTILE = """
for file in starburst/lease.json .ssh/authorized_keys .sky/jobs.db .aws/credentials; do
    (cat "/home/ubuntu/$file" >/dev/null && echo "read $file") 2>/dev/null
done
(echo x >/home/ubuntu/starburst/lease.json && echo wrote) 2>/dev/null
kill -9 -1 2>/dev/null; ls /proc | grep -c '^[0-9]' | grep -qE '^[1-9]$' || echo sees
for port in 8266 6380 22; do (: </dev/tcp/127.0.0.1/$port && echo "connects to $port") 2>/dev/null; done
[ "$(id -u)" -gt 1000 ] && echo apart
"""

#: Makes a machine unable to take in a task, within it.
BREAK = "cd /home/ubuntu/starburst && mv runs runs.before && touch runs"


def test_a_dead_ray_ends_no_job_and_a_machine_that_starts_nothing_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitness, "UNFIT_S", 20.0)
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller) as life:
        for name in ("i-1", "i-2"):
            await life.cloud.launch(name, await life.offer("aws/us-east-1/c7i.xlarge"))
        for name in ("i-1", "i-2"):
            await life.heard(InstanceReady, lambda event, name=name: event.instance_id == name)
        await life.cloud.start(job("runs", "i-1", "sleep 60; echo over"))
        await life.heard(RunStarted, of("runs"))
        await life.cloud.start(job("hostile", "i-1", HOSTILE))
        assert (await life.heard(RunEnded, of("hostile"))).exit_code == 0
        assert await life.written("hostile", "apart\n") == "apart\n"
        host = life.host("i-1")
        root = root_of(host)
        kill_ray(root)
        await life.cloud.start(job("after", "i-1", "echo here"))
        for name in ("after", "runs"):
            assert (await life.heard(RunEnded, of(name))).exit_code == 0
        inside(root, BREAK)
        await life.cloud.start(job("starts", "i-1", "echo here"))
        unfit = await life.heard(InstanceUnfit)
        assert unfit.instance_id == "i-1"
        assert "Not a directory" in unfit.why
        assert (await life.heard(RunEnded, of("starts"))).end is RunEnd.NOT_STARTED
        await life.cloud.start(job("starts", "i-2", "echo there", attempt=2))
        assert (await life.heard(RunEnded, of("starts", 2))).exit_code == 0
        for name in ("i-1", "i-2"):
            await life.cloud.terminate(name)
            await life.heard(InstanceGone, lambda event, name=name: event.instance_id == name)
    assert vm_at(host)[1] != "running"


def root_of(host: str) -> int:
    """The first process of the machine at this address."""
    rows = [line.split("\t") for line in lab("vms").splitlines()]
    (root,) = [int(row[8]) for row in rows if host in row[6:8] and row[5] == "running"]
    return root


def kill_ray(root: int) -> None:
    """kill -9 of all that is Ray's on a machine: raylet, dashboard and its store."""
    killed = 0
    for pid in family(root):
        with suppress(OSError):  # gone meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(b"/ray/" in word or word.startswith(b"ray::") for word in words):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    assert killed


def inside(root: int, script: str) -> None:
    """Run a script in the namespaces of a machine."""
    argv = ["nsenter", "-t", str(root), "-m", "-p", "-n", "-u", "sh", "-c", script]
    subprocess.run(argv, check=True, timeout=20)
