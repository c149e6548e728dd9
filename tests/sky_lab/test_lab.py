"""The real SkyPilot on the laboratory: two machines, a dozen jobs, some five minutes.

Its Ray is killed on the first machine before most jobs come there; the second one starts nothing at last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from starburst.clouds.sky.machines import fitness
from starburst.clouds.sky.offers import OfferName
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnfit,
    InstanceUnreachable,
    OffersChanged,
    Progress,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from tests.sky_lab.conftest import DEAR, KIND
from tests.sky_lab.lab import Life, job, lab, vm_at
from tests.sky_lab.within import inside, kill_ray, root_of

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
#: Reports its progress.
SAYS = """
echo '{"done": 1, "total": 3, "per_s": 0.1}' >$STARBURST_REPORT
sleep 8
echo '{"done": 2, "total": 3, "per_s": 0.1}' >$STARBURST_REPORT
sleep 8
"""
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
BREAK = "cd /home/ubuntu/starburst && rm -rf runs && touch runs"


def of(name: str, attempt: int = 1) -> Callable[[Any], bool]:
    return lambda event: (event.job_id, event.attempt) == (name, attempt)


def test_machines_and_jobs_from_the_launch_to_the_last_instance_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dear_zone: str
) -> None:
    monkeypatch.setattr(fitness, "UNFIT_S", 20.0)
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller) as first:
        await launched(first)
        host = first.host("i-1")
        await without_ray(first, host)
        await shared(first)
        await stopped_with_grace_and_gone_on(first, home)
        assert (await first.heard(RunEnded, of("runs"))).exit_code == 0
        await first.cloud.start(job("long", "i-1", "echo began; sleep 30; echo over"))
        await first.written("long", "began")
    async with Life(home, controller) as second:  # the scheduler was killed meanwhile
        assert ("long", 1) in (await second.heard(SiteSynced)).known
        await rented_in_its_zone(second)
        inside(root_of(second.host("i-3")), BREAK)
        await second.cloud.start(job("starts", "i-3", "echo here"))
        await cut_off(second, host)
        assert (await second.heard(RunEnded, of("long"))).exit_code == 0
        assert "over" in await second.written("long", "over")
        await unfit(second)
        await preempted(second, host)
        await second.cloud.terminate("i-3")
        await second.heard(InstanceGone, lambda event: event.instance_id == "i-3")
        assert await second.cloud.owned() == []
    assert vm_at(host)[1] != "running"


async def launched(life: Life) -> None:
    """A spot machine comes up; an offer that is sold out leaves nothing; a third one is on its way."""
    lab("capacity", "us-west-2", "c7i.xlarge", "off")
    try:
        await life.cloud.launch("i-1", await life.offer("aws/us-east-1/p3.8xlarge/spot"))
        await life.cloud.launch("i-2", await life.offer("aws/us-west-2/c7i.xlarge"))
        failed = await life.heard(InstanceFailed)
        assert (failed.instance_id, failed.sold_out) == ("i-2", True)
    finally:
        lab("capacity", "us-west-2", "c7i.xlarge", "on")
    ready = await life.heard(InstanceReady)
    assert (ready.instance_id, ready.rate) == ("i-1", Money.of("3.672"))
    assert [machine.id for machine in await life.cloud.owned()] == ["i-1"]
    await life.cloud.launch("i-3", await dear_offer(life))


async def dear_offer(life: Life) -> Offer:
    """The offer of the zone that is dearer than the other."""
    offers = (await life.heard(OffersChanged)).offers
    (dear,) = [offer for offer in offers if offer.price_per_hour == Money.of(DEAR)]
    assert OfferName.parse(dear.name) == OfferName("aws", "us-east-1", dear.zone, KIND, spot=True)
    return dear


async def rented_in_its_zone(life: Life) -> None:
    """The machine is in the zone of its offer, at that zone's price."""
    ready = await life.heard(InstanceReady, lambda event: event.instance_id == "i-3")
    assert ready.rate == Money.of(DEAR)
    vm, zone = vm_at(life.host("i-3"))[0], (await dear_offer(life)).zone
    (row,) = [row for row in (line.split("\t") for line in lab("vms").splitlines()) if row[0] == vm]
    assert row[1:5] == ["us-east-1", zone, KIND, "spot"]


async def without_ray(life: Life, host: str) -> None:
    """What runs goes on, what comes starts and is heard; and a hostile job reaches nothing."""
    await life.cloud.start(job("runs", "i-1", "sleep 40; echo over"))
    await life.heard(RunStarted, of("runs"))
    await life.cloud.start(job("hostile", "i-1", HOSTILE))
    assert (await life.heard(RunEnded, of("hostile"))).exit_code == 0
    assert await life.written("hostile", "apart\n") == "apart\n"
    kill_ray(root_of(host))
    await life.cloud.start(job("says", "i-1", SAYS))
    for done in (1, 2):
        await life.heard(Progress, lambda told, done=done: told.done == done)


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


async def unfit(life: Life) -> None:
    """A machine that starts nothing says so, and its run starts elsewhere."""
    told = await life.heard(InstanceUnfit)
    assert told.instance_id == "i-3"
    assert "Not a directory" in told.why
    assert (await life.heard(RunEnded, of("starts"))).end is RunEnd.NOT_STARTED
    await life.cloud.start(job("starts", "i-1", "echo there", attempt=2))
    assert (await life.heard(RunEnded, of("starts", 2))).exit_code == 0


async def preempted(life: Life, host: str) -> None:
    """A spot machine that the cloud takes away takes its runs with it."""
    await life.cloud.start(job("d", "i-1", "sleep 600"))
    await life.heard(RunStarted, of("d"))
    lab("preempt", vm_at(host)[0])
    gone = await life.heard(InstanceGone, lambda event: event.instance_id == "i-1")
    assert gone.preempted
    assert (await life.heard(RunEnded, of("d"))).end is RunEnd.LOST
