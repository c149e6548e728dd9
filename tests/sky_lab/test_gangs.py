"""A gang on a SkyPilot cluster of two nodes, with the real SkyPilot: it reduces, and goes on on one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from starburst.core.model.actions import Slot
from starburst.core.model.events import (
    InstanceGone,
    InstanceReady,
    MachinesLost,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.domain.job import Job, Workload
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import log_path
from starburst.runs.ports import Run
from tests.runs.allreduce import ALL_REDUCE
from tests.sky_lab.lab import Life, lab, vm_at

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]


#: Seconds of the attempt on the node that is left: longer than SkyPilot's autostop or the lease would let it.
LEFT_S = 150


def gang(name: str, *command: str, attempt: int = 1, nodes: tuple[int, ...] = (0, 1)) -> Run:
    """A run of an elastic gang of two tasks of four GPUs, each on one of these nodes of i-1."""
    need = Resources.of(4, 1, 1)
    slots = tuple(Slot(rank, "i-1", need, node) for rank, node in enumerate(nodes))
    job = Job(name, name, (need, need), least_tasks=1)
    return Run(job, attempt, slots, Workload(command))


def test_a_gang_reduces_over_two_nodes_and_goes_on_without_the_head(tmp_path: Path) -> None:
    """Without a worker: longer/test_lost_worker.py."""
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}", lost=0))


async def story(home: Path, controller: str, lost: int) -> None:
    async with Life(home, controller, lease_s=120.0) as life:
        offer = await life.offer("aws/us-east-1/p3.8xlarge")
        await life.cloud.launch("i-1", replace(offer, price_per_hour=None).times(2))
        assert (await life.heard(InstanceReady, seconds=600)).rate == Money.of("24.48")
        renewing = asyncio.create_task(renew(life))
        entry = life.cloud.machines["i-1"].entry
        assert len(set(entry.addresses)) == len({at.instance for at in entry.instances}) == 2

        await life.cloud.start(gang("reduce", "python3", "-c", ALL_REDUCE))
        assert (await life.heard(RunEnded)).exit_code == 0
        for rank in range(2):
            assert "sum 3 of 2 hosts" in log_path(home / "runs", "reduce", 1, rank).read_text()

        since = len(life.events)
        await life.cloud.start(gang("long", "sleep", "600"))
        await life.heard(RunStarted, since=since)
        vm, _ = vm_at(entry.addresses[lost])
        lab("preempt", vm)
        told = await life.heard(MachinesLost, seconds=400)
        assert [node for node, _ in told.lost] == [lost]
        assert (await life.heard(RunEnded, since=since)).end is RunEnd.LOST

        since = len(life.events)
        smaller = ("sh", "-c", f"sleep {LEFT_S}; echo one of $WORLD_SIZE")
        await life.cloud.start(gang("long", *smaller, attempt=2, nodes=(1 - lost,)))
        assert (await life.heard(RunEnded, since=since, seconds=LEFT_S + 200)).exit_code == 0
        assert "one of 1" in log_path(home / "runs", "long", 2, 0).read_text()
        assert not any(isinstance(event, InstanceGone) for event in life.events)

        await life.cloud.terminate("i-1")
        gone = await life.heard(InstanceGone, seconds=400)
        assert gone.launched_at < told.lost[0][1] < gone.ended_at
        assert await life.cloud.owned() == []
        assert {vm_at(address)[1] for address in entry.addresses} <= {"gone", "terminated"}
        renewing.cancel()


async def renew(life: Life) -> None:
    """As the scheduler does while it wants the machine."""
    while True:
        await life.cloud.renew(["i-1"])
        await asyncio.sleep(20)
