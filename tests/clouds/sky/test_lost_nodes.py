"""Machines rented as one of which some have ended: what is left is attended, billed and ended as before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clouds.sky.access.ports import InstanceRef
from starburst.core.model.actions import Slot
from starburst.core.model.events import (
    InstanceGone,
    InstanceReachable,
    InstanceUnreachable,
    MachinesLost,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.domain.job import Job, Workload
from starburst.domain.resources import Resources
from starburst.runs.ports import Run
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, SPOT, Life, of, play, ready

NEED = Resources.of(4, 1, 1)


def gang(*nodes: int, attempt: int = 1, work_s: float = 10_000, checkpoint: bool = False) -> Run:
    """An attempt of a gang of three tasks with one task on each of these machines."""
    slots = tuple(Slot(rank, "i-1", NEED, node) for rank, node in enumerate(nodes))
    job = Job("g", "g", (NEED,) * 3, least_tasks=1, grace_s=30.0, checkpoint=checkpoint)
    return Run(job, attempt, slots, Workload(("work", str(work_s), "0")))


async def running(life: Life, *, checkpoint: bool = False) -> None:
    """Its first attempt runs on three machines."""
    await ready(life, offer=SPOT.times(3))
    await life.cloud.start(gang(0, 1, 2, checkpoint=checkpoint))
    await life.heard(RunStarted)


def attempt(number: int) -> Callable[[RunEnded], bool]:
    return lambda event: event.attempt == number


def billed_s(sky: FakeSky) -> float:
    """Seconds for which the cloud bills machines, all of which have ended."""
    return sum((vm.stopped_at or vm.ended_at or 0.0) - vm.made_at for vm in sky.vms)


def paid_s(gone: InstanceGone, told: MachinesLost) -> float:
    """Seconds of machines that the core pays for three of which some were lost."""
    return 3 * (gone.ended_at - gone.launched_at) - sum(gone.ended_at - at for _, at in told.lost)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_next_attempt_runs_on_the_machines_that_are_left(tmp_path: Path, lost: int) -> None:
    left = [node for node in range(3) if node != lost]

    async def story(life: Life, sky: FakeSky) -> None:
        await running(life)
        await asyncio.sleep(100)
        sky.vms[lost].ended_at = ended_at = wall()
        told = await life.heard(MachinesLost)
        assert (told.instance_id, told.preempted) == ("i-1", True)
        assert told.lost == ((lost, pytest.approx(ended_at)),)
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        exits = [sky.vms[node].tasks[f"g/1/{node}"].exit for node in left]
        assert [one and one["ended_by"] for one in exits] == ["stop", "stop"]
        await life.cloud.start(gang(*left, attempt=2, work_s=60))
        end = await life.heard(RunEnded, attempt(2))
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 0)
        specs = [sky.vms[node].tasks[f"g/2/{rank}"].spec for rank, node in enumerate(left)]
        assert [spec["hosts"] for spec in specs] == [[f"10.0.0.{node + 1}" for node in left]] * 2
        assert {spec["env"]["MASTER_ADDR"] for spec in specs} == {f"10.0.0.{left[0] + 1}"}
        assert {(spec["env"]["WORLD_SIZE"], spec["env"]["NNODES"]) for spec in specs} == {("2", "2")}
        await life.cloud.terminate("i-1")
        gone = await life.heard(InstanceGone)
        assert not sky.alive()
        assert not gone.preempted
        assert paid_s(gone, told) == pytest.approx(billed_s(sky))

    play(tmp_path, story)


def test_what_is_left_lives_on_its_renewals_and_ends_without_them(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life)
        sky.vms[0].ended_at = wall()
        await life.heard(MachinesLost)
        keepers = sky.calls["exec"]
        for _ in range(10):
            await life.cloud.renew(["i-1"])
            await asyncio.sleep(30)
        assert [vm.node for vm in sky.alive()] == [1, 2]
        assert sky.calls["exec"] == keepers, "SkyPilot takes no job for a part of a cluster"
        await life.heard(InstanceGone)
        assert not sky.alive()

    play(tmp_path, story, lease_s=60.0)


def test_a_machine_that_does_not_answer_is_not_lost(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life)
        sky.vms[1].plugged = False
        await life.heard(InstanceUnreachable)
        await asyncio.sleep(300)
        assert not life.of(MachinesLost)
        sky.vms[1].ended_at = wall()
        await life.heard(MachinesLost)
        await life.heard(InstanceReachable)

    play(tmp_path, story)


def test_one_that_its_cloud_has_deleted_is_lost_if_it_is_silent(tmp_path: Path) -> None:
    """As GCP deletes spot machines; one whose tags were taken away is not found either, and answers."""

    async def story(life: Life, sky: FakeSky) -> None:
        await running(life)
        life.cloud.machines["i-1"].entry.workers_at[1] = InstanceRef("aws", "us-east-1", "without tags")
        await asyncio.sleep(130)
        assert not life.of(MachinesLost)
        del sky.vms[1]
        told = await life.heard(MachinesLost)
        assert (told.lost, told.preempted) == (((1, pytest.approx(wall(), abs=90)),), True)
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        assert len(sky.alive()) == 2

    play(tmp_path, story)


def test_one_that_is_only_stopped_is_ended_at_once(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life)
        sky.stop(sky.vms[2])
        told = await life.heard(MachinesLost)
        assert told.lost == ((2, pytest.approx(sky.vms[2].stopped_at)),)
        await life.heard(RunEnded)
        assert [vm.node for vm in sky.alive()] == [0, 1]

    play(tmp_path, story)


def test_where_a_cloud_ends_whole_clusters_a_stopped_machine_ends_with_the_others(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.ends_alone = False
        await running(life)
        sky.stop(sky.vms[2])
        await life.heard(MachinesLost)
        await life.heard(RunEnded)
        await life.cloud.start(gang(0, 1, attempt=2, work_s=60))
        assert (await life.heard(RunEnded, attempt(2))).end is RunEnd.EXITED
        assert all(vm.ended_at is None for vm in sky.vms)

    play(tmp_path, story)


def test_machines_that_end_one_after_the_other_are_told_together(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life)
        sky.vms[2].ended_at = wall()
        await life.heard(MachinesLost)
        sky.vms[0].ended_at = wall()
        told = await life.heard(MachinesLost, lambda event: len(event.lost) == 2)
        assert [node for node, _ in told.lost] == [0, 2]
        sky.vms[1].ended_at = wall()
        gone = await life.heard(InstanceGone)
        assert gone.preempted
        assert paid_s(gone, told) == pytest.approx(billed_s(sky))

    play(tmp_path, story)


def test_jobs_on_the_machines_that_are_left_run_on(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(3))
        await life.cloud.start(gang(0, 1))
        await life.cloud.start(replace(gang(2, work_s=600), job=Job("b", "b", (NEED,))))
        await life.heard(RunStarted, lambda event: event.job_id == "b")
        sky.vms[1].ended_at = wall()
        assert (await life.heard(RunEnded, of("g"))).end is RunEnd.LOST
        assert (await life.heard(RunEnded, of("b"))).exit_code == 0

    play(tmp_path, story)


def test_a_start_on_a_lost_machine_is_a_lost_run(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(3))
        sky.vms[1].ended_at = wall()
        await life.heard(MachinesLost)
        await life.cloud.start(gang(0, 1, 2))
        assert (await life.heard(RunEnded)).end is RunEnd.LOST

    play(tmp_path, story)


def test_checkpoints_come_home_from_the_machines_that_are_left(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life, checkpoint=True)
        for vm in sky.vms[:2]:
            home = sky.root / (f"{vm.cluster}-node{vm.node}" if vm.node else vm.cluster)
            (home / "starburst" / "checkpoints" / "g").mkdir(parents=True)
            (home / "starburst" / "checkpoints" / "g" / "step").write_text(str(vm.node))
        sky.vms[2].ended_at = begun = wall()
        end = await life.heard(RunEnded)
        assert (end.end, "checkpoint lost" in end.message) == (RunEnd.LOST, False)
        assert wall() - begun < 200
        assert (life.home / "checkpoints" / "g" / "step").read_text() == "0"

    play(tmp_path, story)


def test_what_is_lost_outlives_the_scheduler(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as first:
            await running(first)
            sky.vms[0].ended_at = wall()
            told = await first.heard(MachinesLost)
        async with Life(sky, tmp_path / "home") as second:
            assert await second.heard(MachinesLost) == told
            await second.heard(RunEnded)
            await second.cloud.start(gang(1, 2, attempt=2, work_s=60))
            assert (await second.heard(RunEnded, attempt(2))).exit_code == 0
            await second.cloud.terminate("i-1")
            await second.heard(InstanceGone)
            assert not sky.alive()

    run(main())
