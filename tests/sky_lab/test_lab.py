"""The real SkyPilot on the laboratory: two machines, seven jobs, some five minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from tests.sky_lab.lab import Life, job, lab, vm_at

#: SkyPilot and its libraries warn of themselves.
pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

#: Says when it was there, and on which GPUs.
SHARING = (
    "echo gpus=$CUDA_VISIBLE_DEVICES from=$(date +%s.%N); sleep 15; echo till=$(date +%s.%N); exit {code}"
)
#: Saves on SIGTERM, and goes on from what was saved.
SAVING = """
echo "step $(cat $STARBURST_CHECKPOINT_DIR/step 2>/dev/null || echo none)"
trap 'echo saving; sleep 1; echo 7 >$STARBURST_CHECKPOINT_DIR/step; echo saved; exit 0' TERM
while :; do sleep 0.1; done
"""


def of(name: str, attempt: int = 1) -> Callable[[Any], bool]:
    return lambda event: (event.job_id, event.attempt) == (name, attempt)


def test_machines_and_jobs_from_the_launch_to_the_last_instance_gone(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller) as first:
        await launched(first)
        host = first.host("i-1")
        await shared(first)
        await stopped_with_grace_and_gone_on(first, home)
        await first.cloud.start(job("long", "i-1", "echo began; sleep 30; echo over"))
        await first.written("long", "began")
    async with Life(home, controller) as second:  # the scheduler was killed meanwhile
        assert ("long", 1) in (await second.heard(SiteSynced)).known
        await cut_off(second, host)
        assert (await second.heard(RunEnded, of("long"))).exit_code == 0
        assert "over" in await second.written("long", "over")
        await preempted(second, host)
        await second.cloud.terminate("i-3")
        await second.heard(InstanceGone, lambda event: event.instance_id == "i-3")
        assert await second.cloud.owned() == []
    assert vm_at(host)[1] != "running"


async def launched(life: Life) -> None:
    """A spot machine comes up; an offer that is sold out leaves nothing; a third is given back on its way."""
    lab("capacity", "us-west-2", "c7i.xlarge", "off")
    try:
        await life.cloud.launch("i-1", await life.offer("aws/us-east-1/p3.8xlarge/spot"))
        await life.cloud.launch("i-2", await life.offer("aws/us-west-2/c7i.xlarge"))
        failed = await life.heard(InstanceFailed)
        assert (failed.instance_id, failed.sold_out) == ("i-2", True)
    finally:
        lab("capacity", "us-west-2", "c7i.xlarge", "on")
    assert (await life.heard(InstanceReady)).instance_id == "i-1"
    assert [machine.id for machine in await life.cloud.owned()] == ["i-1"]
    await life.cloud.launch("i-3", await life.offer("aws/us-east-1/c7i.xlarge"))


async def shared(life: Life) -> None:
    """Two jobs are on the machine at one time, each with GPUs of its own; their ends and words are told."""
    for name, code in (("a", 0), ("b", 3)):
        await life.cloud.start(job(name, "i-1", SHARING.format(code=code), gpus=2))
    codes = [(await life.heard(RunEnded, of(name))).exit_code for name in "ab"]
    assert codes == [0, 3]
    said = [dict(word.split("=") for word in (await life.written(name, "till")).split()) for name in "ab"]
    assert sorted(gpu for one in said for gpu in one["gpus"].split(",")) == ["0", "1", "2", "3"]
    assert max(float(one["from"]) for one in said) < min(float(one["till"]) for one in said)


async def stopped_with_grace_and_gone_on(life: Life, home: Path) -> None:
    """SIGTERM leaves time to save; what was saved comes home and goes out with the next attempt."""
    await life.cloud.start(job("c", "i-1", SAVING, checkpoint=True))
    assert await life.written("c", "step") == "step none\n"
    await life.cloud.stop("c", 1, 30.0)
    assert (await life.heard(RunEnded, of("c"))).end is RunEnd.STOPPED
    assert "saved" in await life.written("c", "saved")
    assert (home / "checkpoints" / "c" / "step").read_text() == "7\n"
    await life.cloud.start(job("c", "i-1", SAVING, attempt=2, checkpoint=True))
    assert await life.written("c", "step", attempt=2) == "step 7\n"
    await life.cloud.stop("c", 2, 0.0)
    assert (await life.heard(RunEnded, of("c", 2))).end is RunEnd.STOPPED


async def cut_off(life: Life, host: str) -> None:
    """A machine without a network is unreachable, not dead, and is heard of again."""
    vm, state = vm_at(host)
    assert state == "running"
    lab("unplug", vm)
    try:
        await life.heard(InstanceUnreachable)
        assert not any(isinstance(event, InstanceGone) for event in life.events)
    finally:
        told = len(life.events)
        lab("plug", vm)
    await life.heard(InstanceReachable, since=told)


async def preempted(life: Life, host: str) -> None:
    """A spot machine that the cloud takes away takes its runs with it."""
    await life.cloud.start(job("d", "i-1", "sleep 600"))
    await life.heard(RunStarted, of("d"))
    lab("preempt", vm_at(host)[0])
    gone = await life.heard(InstanceGone, lambda event: event.instance_id == "i-1")
    assert gone.preempted
    assert (await life.heard(RunEnded, of("d"))).end is RunEnd.LOST
