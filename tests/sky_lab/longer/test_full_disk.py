"""A job fills the disk of a machine that it shares, with the real SkyPilot: some four minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from starburst.clouds.sky.machines import fitness
from starburst.core.model.events import (
    InstanceGone,
    InstanceReady,
    InstanceUnfit,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
)
from tests.sky_lab.lab import Life, job
from tests.sky_lab.within import inside, root_of

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

#: The machine's lease, seconds; the job below works for more than two of them.
LEASE_S = 45.0
#: Puts a small disk under the agent's directory of a machine, which has the host's own.
SMALL = """
cd /home/ubuntu && cp -a starburst starburst.before
mount -t tmpfs -o size=64m,mode=755,uid=$(stat -c %u starburst),gid=$(stat -c %g starburst) tmpfs starburst
cp -a starburst.before/. starburst
"""
#: Takes all of the disk, and what becomes free later.
FILLS = "echo begun; while :; do cat /dev/zero >>all 2>/dev/null; sleep 0.2; done"
WORKS = "echo begun; sleep 100; exit 3"


def of(name: str) -> Callable[[Any], bool]:
    return lambda event: event.job_id == name


def test_a_job_that_fills_the_disk_costs_its_neighbour_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitness, "UNFIT_S", 20.0)
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller, lease_s=LEASE_S) as life:
        await life.cloud.launch("i-1", await life.offer("aws/us-east-1/c7i.xlarge"))
        await life.heard(InstanceReady)
        renewals = asyncio.create_task(renewed(life))
        root = root_of(life.host("i-1"))
        inside(root, SMALL)
        await life.cloud.start(job("works", "i-1", WORKS))
        await life.written("works", "begun")
        await life.cloud.start(job("fills", "i-1", FILLS))
        await life.heard(RunStarted, of("fills"))
        unfit = await life.heard(InstanceUnfit)
        assert unfit.why.startswith("its disk is full: ")
        inside(root, "! dd if=/dev/zero of=/home/ubuntu/starburst/one bs=4k count=1 2>/dev/null")
        await life.cloud.start(job("late", "i-1", "echo here"))
        late = await life.heard(RunEnded, of("late"))
        assert (late.end, unfit.why in late.message) == (RunEnd.NOT_STARTED, True)
        works = await life.heard(RunEnded, of("works"))
        assert (works.end, works.exit_code) == (RunEnd.EXITED, 3)
        await life.cloud.stop("fills", 1, 5.0)
        assert (await life.heard(RunEnded, of("fills"))).end is RunEnd.STOPPED
        assert not [event for event in life.events if isinstance(event, InstanceUnreachable)]
        renewals.cancel()
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)


async def renewed(life: Life) -> None:
    """As the reaper does, more often."""
    while True:
        await life.cloud.renew(["i-1"])
        await asyncio.sleep(5)
