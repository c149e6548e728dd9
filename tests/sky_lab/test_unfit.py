"""A machine whose Ray takes no jobs any more, on the laboratory: two machines, two jobs, some minutes."""

from __future__ import annotations

import asyncio
import os
import signal
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
from tests.sky_lab.lab import Life, _family, job, lab, vm_at
from tests.sky_lab.test_lab import of

#: SkyPilot and its libraries warn of themselves.
pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]


def test_when_rays_dashboard_is_killed_jobs_run_elsewhere_and_the_machine_is_given_back(
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
        await life.cloud.start(job("runs", "i-1", "sleep 40; echo over"))
        await life.heard(RunStarted, of("runs"))
        host = life.host("i-1")
        kill_dashboard(host)
        await life.cloud.start(job("starts", "i-1", "echo here"))
        unfit = await life.heard(InstanceUnfit)
        assert unfit.instance_id == "i-1"
        assert "Ray's job API" in unfit.why
        assert (await life.heard(RunEnded, of("starts"))).end is RunEnd.NOT_STARTED
        await life.cloud.start(job("starts", "i-2", "echo there", attempt=2))
        assert (await life.heard(RunEnded, of("starts", 2))).exit_code == 0
        assert (await life.heard(RunEnded, of("runs"))).exit_code == 0
        for name in ("i-1", "i-2"):
            await life.cloud.terminate(name)
            await life.heard(InstanceGone, lambda event, name=name: event.instance_id == name)
    assert vm_at(host)[1] != "running"


def kill_dashboard(host: str) -> None:
    """Of the machine at this address: what serves its Ray's job API."""
    rows = [line.split("\t") for line in lab("vms").splitlines()]
    (root,) = [int(row[8]) for row in rows if host in row[6:8] and row[5] == "running"]
    killed = 0
    for pid in _family(root):
        words = Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b""
        if b"dashboard/dashboard.py" in words:
            os.kill(pid, signal.SIGKILL)
            killed += 1
    assert killed
