"""What the real SkyPilot says a machine costs, and what a job on it says of itself: some two minutes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from starburst.core.model.events import InstanceGone, InstanceReady, Progress, RunEnded
from starburst.domain.money import Money
from tests.sky_lab.lab import Life, job

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

SAYS = """
echo '{"done": 1, "total": 3, "per_s": 0.1}' >$STARBURST_REPORT
sleep 8
echo '{"done": 2, "total": 3, "per_s": 0.1}' >$STARBURST_REPORT
sleep 8
"""


def test_a_machine_is_billed_at_skypilots_price_and_its_job_is_heard(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller) as life:
        await life.cloud.launch("i-1", await life.offer("aws/us-east-1/p3.8xlarge"))
        assert (await life.heard(InstanceReady)).rate == Money.of("12.24")
        await life.cloud.start(job("says", "i-1", SAYS))
        for done in (1, 2):
            await life.heard(Progress, lambda told, done=done: told.done == done)
        assert (await life.heard(RunEnded)).exit_code == 0
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
