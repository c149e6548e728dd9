"""A gang on a SkyPilot cluster of two nodes, with the real SkyPilot: it reduces, and is lost with a node."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from starburst.core.model.actions import Slot
from starburst.core.model.events import InstanceGone, InstanceReady, RunEnd, RunEnded, RunStarted
from starburst.domain.job import Job, Workload
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import log_path
from starburst.runs.ports import Run
from tests.runs.allreduce import ALL_REDUCE
from tests.sky_lab.lab import Life, lab, vm_at

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]


def gang(name: str, *command: str) -> Run:
    """A run of two tasks of four GPUs, one on each node of i-1."""
    need = Resources.of(4, 1, 1)
    slots = tuple(Slot(rank, "i-1", need, rank) for rank in range(2))
    return Run(Job(name, name, (need, need)), 1, slots, Workload(command))


def test_a_gang_reduces_over_two_nodes_and_is_lost_with_one_of_them(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller) as life:
        offer = await life.offer("aws/us-east-1/p3.8xlarge")
        await life.cloud.launch("i-1", replace(offer, price_per_hour=None).times(2))
        assert (await life.heard(InstanceReady, seconds=600)).rate == Money.of("24.48")
        entry = life.cloud.machines["i-1"].entry
        assert len(set(entry.addresses)) == len({at.instance for at in entry.instances}) == 2

        await life.cloud.start(gang("reduce", "python3", "-c", ALL_REDUCE))
        assert (await life.heard(RunEnded)).exit_code == 0
        for rank in range(2):
            assert "sum 3 of 2 hosts" in log_path(home / "runs", "reduce", 1, rank).read_text()

        since = len(life.events)
        await life.cloud.start(gang("long", "sleep", "600"))
        await life.heard(RunStarted, since=since)
        vm, _ = vm_at(entry.addresses[1])
        lab("preempt", vm)
        gone = await life.heard(InstanceGone, seconds=400)
        assert gone.ended_at > gone.launched_at
        assert (await life.heard(RunEnded, since=since)).end is RunEnd.LOST
        assert await life.cloud.owned() == []
        assert {vm_at(address)[1] for address in entry.addresses} <= {"gone", "terminated"}
