"""Gangs on rented machines: one cluster of several nodes, which is launched, attended and ended as one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clouds.sky.access.sdk import task_of
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines.entry import load_machines
from starburst.clouds.sky.network_tier import BEST, STANDARD, network_tier
from starburst.clouds.sky.offers import OfferName
from starburst.core.model.actions import Slot
from starburst.core.model.events import (
    InstanceGone,
    InstanceReady,
    InstanceUnreachable,
    JobsNotKeptApart,
    MachinesLost,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import Job, Workload
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.runs.ports import Run
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, SPOT, Life, of, play, ready

#: Every test's gang: a task that takes all four GPUs on each of two nodes.
NEED = Resources.of(4, 1, 1)


def gang(work_s: float, codes: tuple[int, int] = (0, 0), attempt: int = 1) -> Run:
    slots = tuple(Slot(rank, "i-1", NEED, rank) for rank in range(2))
    return Run(Job("g", "g", (NEED, NEED)), attempt, slots, Workload(("work", str(work_s), str(max(codes)))))


async def give_up(life: Life) -> InstanceGone:
    """As the core does for gangs that cannot go on: what is left of the machine is ended."""
    lost = await life.heard(MachinesLost)
    assert lost.preempted == life.cloud.machines["i-1"].entry.spot
    await life.cloud.terminate("i-1")
    return await life.heard(InstanceGone)


def test_its_nodes_come_and_go_as_one_and_are_paid_for_as_two(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.rates["p3.8xlarge"] = Money.of("12.24")
        await ready(life, offer=OFFER.times(2))
        assert life.of(InstanceReady)[0].rate == Money.of("24.48")
        assert [vm.node for vm in sky.alive()] == [0, 1]
        (listed,) = await life.cloud.owned()
        assert (listed.nodes, listed.phase) == (2, InstancePhase.READY)
        await life.cloud.start(gang(60))
        assert (await life.heard(RunEnded)).exit_code == 0
        assert [set(vm.tasks) for vm in sky.vms] == [{"g/1/0"}, {"g/1/1"}]
        assert all(vm.switch_s is not None and vm.ends_when_shut_down for vm in sky.vms)
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        assert not sky.alive()

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("offer", "nodes", "wanted", "asked"),
    [
        ("aws/us-east-1/p4d.24xlarge", 2, BEST, BEST),
        ("aws/us-east-1/us-east-1a/p4d.24xlarge/spot", 8, BEST, BEST),
        ("aws/us-east-1/p4d.24xlarge", 1, BEST, ""),  # it has nobody to talk to
        ("aws/us-east-1/p4d.24xlarge", 2, STANDARD, ""),
        ("gcp/us-central1/a3-highgpu-8g", 2, BEST, BEST),
        ("gcp/us-central1/a2-highgpu-1g", 2, BEST, ""),  # SkyPilot would fail to launch it
        ("azure/eastus/Standard_ND96asr_v4", 2, BEST, ""),  # and refuse this
    ],
)
def test_a_gang_has_the_fast_network_where_its_offer_has_it(
    offer: str, nodes: int, wanted: str, asked: str
) -> None:
    assert network_tier(OfferName.parse(offer), nodes, wanted) == asked


def test_the_network_that_the_config_asks_for_is_launched_for_gangs_only(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, "i-1", offer=OFFER.times(2))
        await ready(life, "i-2", offer=OFFER)
        tasks = [task_of(spec)["resources"] for spec in sky.clusters_known.values()]
        assert [task.get("network_tier") for task in tasks] == ["best", None]

    play(tmp_path, story, network_tier=BEST)


def test_each_task_is_told_where_the_others_are(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await life.cloud.start(gang(60))
        await life.heard(RunStarted)
        specs = [vm.tasks[f"g/1/{vm.node}"].spec for vm in sky.vms]
        assert [spec["hosts"] for spec in specs] == [["10.0.0.1", "10.0.0.2"]] * 2
        assert {spec["env"]["MASTER_ADDR"] for spec in specs} == {"10.0.0.1"}
        assert len({spec["env"]["MASTER_PORT"] for spec in specs}) == 1
        assert [spec["env"]["RANK"] for spec in specs] == ["0", "1"]

    play(tmp_path, story)


def test_the_task_that_decides_ends_the_others_and_the_run_has_succeeded(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        run = gang(60)
        await life.cloud.start(replace(run, workload=replace(run.workload, deciding=(0,))))
        await life.heard(RunStarted)
        sky.vms[1].tasks["g/1/1"].spec["command"] = ["work", "100000", "0"]
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 0)
        assert sky.vms[1].tasks["g/1/1"].exit is not None

    play(tmp_path, story)


def test_a_task_that_fails_before_another_could_begin_has_failed_and_nothing_is_lost(tmp_path: Path) -> None:
    sent: list[str] = []

    async def slow(what: str) -> None:
        """The second node gets its checkpoints an hour later."""
        if what == "before send":
            sent.append(what)
            await asyncio.sleep(3600.0 * (len(sent) - 1))

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        kept = life.home / "checkpoints" / "g"
        kept.mkdir(parents=True)
        (kept / "step").write_text("1")
        run = gang(5, (1, 1))
        await life.cloud.start(replace(run, job=replace(run.job, checkpoint=True)))
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 1)
        assert sum(task.began_at is not None for vm in sky.vms for task in vm.tasks.values()) == 1

    play(tmp_path, story, hook=slow)


def test_a_lost_node_ends_the_others_and_the_run(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=SPOT.times(2))
        await life.cloud.start(gang(10_000))
        await life.heard(RunStarted)
        sky.vms[1].ended_at = sky.vms[1].made_at + 100
        await give_up(life)
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        assert not sky.alive()

    play(tmp_path, story)


def test_a_node_that_is_stopped_by_hand_is_billed_until_then(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await asyncio.sleep(30)
        sky.stop(sky.vms[1])
        gone = await give_up(life)
        ((_, lost_at),) = life.of(MachinesLost)[0].lost
        stopped_at, ended_at = sky.vms[1].stopped_at, sky.vms[0].ended_at
        assert stopped_at is not None
        assert ended_at is not None
        assert lost_at == stopped_at < ended_at == gone.ended_at

    play(tmp_path, story)


def test_each_node_is_billed_for_its_own_seconds(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await asyncio.sleep(30)
        sky.vms[1].ended_at = wall()
        gone = await give_up(life)
        seconds = [vm.ended_at - vm.made_at for vm in sky.vms if vm.ended_at is not None]
        assert seconds[0] > seconds[1]
        ((_, lost_at),) = life.of(MachinesLost)[0].lost
        whole = 2 * (gone.ended_at - gone.launched_at) - (gone.ended_at - lost_at)
        assert whole == pytest.approx(sum(seconds))

    play(tmp_path, story)


def test_what_ends_of_it_before_the_last_is_told_with_its_end_as_a_cap_may_have_ended_between(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await life.cloud.terminate("i-1")
        sky.vms[1].ended_at = sky.vms[1].made_at + 20
        gone = await life.heard(InstanceGone)
        assert not life.of(MachinesLost)
        assert gone.ended_at == sky.vms[0].ended_at
        assert [at for _, at in gone.lost] == [sky.vms[1].ended_at]

    play(tmp_path, story)


def test_a_node_that_does_not_answer_makes_the_whole_unreachable_not_gone(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await life.cloud.start(gang(400))
        await life.heard(RunStarted)
        sky.vms[1].plugged = False
        await life.heard(InstanceUnreachable)
        sky.vms[1].plugged = True
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceGone)

    play(tmp_path, story)


def test_a_task_that_fails_ends_the_other(tmp_path: Path) -> None:
    async def story(life: Life, _: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await life.cloud.start(gang(30, codes=(0, 3)))
        assert (await life.heard(RunEnded)).exit_code == 3

    play(tmp_path, story)


def test_what_is_known_of_its_nodes_outlives_the_scheduler(tmp_path: Path) -> None:
    async def story(life: Life, _: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))

    play(tmp_path, story)
    (entry,) = load_machines(FileJournal(tmp_path / "home" / "notes")).values()
    assert entry.nodes == 2
    assert [at.instance for at in entry.instances] == ["i-0", "i-1"]
    assert [access.host for access in entry.workers] == ["10.0.0.2"]
    assert replace(entry, workers_at=[]).instances == []


def test_a_node_whose_agent_is_dead_ends_the_attempt_within_the_lease_though_the_head_is_well(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await life.cloud.start(gang(10_000))
        await life.heard(RunStarted)
        sky.vms[1].agent_fails = "No space left on device"
        told = await life.heard(InstanceUnreachable)
        assert told.why.endswith("-i-1-node1: the agent failed: No space left on device")
        until = [vm.lease_until for vm in sky.vms]
        while wall() < max(until):
            await life.cloud.renew(["i-1"])  # the scheduler wants it; only a machine of use is renewed
            await asyncio.sleep(60)
        assert [vm.lease_until for vm in sky.vms] == until
        sky.vms[1].agent_fails = ""
        end = await life.heard(RunEnded)
        assert end.end is RunEnd.LOST
        assert [task.exit["ended_by"] for vm in sky.vms for task in vm.tasks.values()] == ["lease", "lease"]
        await life.heard(InstanceGone)
        assert not sky.alive()

    play(tmp_path, story)


def placed(job: str, *nodes: int, gpus: int = 1, work_s: float = 60) -> Run:
    """A run whose tasks are on these nodes of one machine."""
    need = Resources.of(gpus, 1, 1)
    slots = tuple(Slot(rank, "i-1", need, node) for rank, node in enumerate(nodes))
    return Run(Job(job, job, (need,) * len(nodes)), 1, slots, Workload(("work", str(work_s), "0")))


def test_runs_of_several_jobs_share_the_nodes_and_no_gpu_of_them(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(3))
        for run in (placed("a", 0, 1, 2, gpus=3), placed("b", 1, 2), placed("c", 0)):
            await life.cloud.start(run)
        await life.heard(RunStarted, lambda event: event.job_id == "c")
        there = [{name: task.gpus for name, task in vm.tasks.items()} for vm in sky.vms]
        assert there == [
            {"a/1/0": (0, 1, 2), "c/1/0": (3,)},
            {"a/1/1": (0, 1, 2), "b/1/0": (3,)},
            {"a/1/2": (0, 1, 2), "b/1/1": (3,)},
        ]
        first, second = sky.vms[0].tasks["a/1/0"].spec, sky.vms[1].tasks["b/1/0"].spec
        assert second["hosts"] == ["10.0.0.2", "10.0.0.3"]
        assert second["env"]["MASTER_ADDR"] == "10.0.0.2"
        assert first["env"]["MASTER_PORT"] != second["env"]["MASTER_PORT"]
        for job in ("a", "b", "c"):
            assert (await life.heard(RunEnded, of(job))).exit_code == 0

    play(tmp_path, story)


def test_the_end_of_one_run_leaves_those_on_other_nodes_and_on_its_own_alone(tmp_path: Path) -> None:
    async def story(life: Life, _: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        await life.cloud.start(placed("a", 0, 1, work_s=600))
        await life.cloud.start(placed("b", 1, work_s=10_000))
        await life.heard(RunStarted, lambda event: event.job_id == "b")
        await life.cloud.stop("b", 1, 1.0)
        assert (await life.heard(RunEnded, of("b"))).end is RunEnd.STOPPED
        assert (await life.heard(RunEnded, of("a"))).exit_code == 0
        assert not life.of(InstanceGone)

    play(tmp_path, story)


def test_a_lost_node_ends_the_whole_and_the_runs_of_all_jobs_there(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=SPOT.times(2))
        for run in (placed("a", 0, 1, work_s=10_000), placed("b", 0, work_s=10_000)):
            await life.cloud.start(run)
        await life.heard(RunStarted, lambda event: event.job_id == "b")
        sky.vms[1].ended_at = wall()
        await give_up(life)
        assert [(await life.heard(RunEnded, of(job))).end for job in ("a", "b")] == [RunEnd.LOST] * 2
        assert not sky.alive()

    play(tmp_path, story)


def test_jobs_are_kept_apart_if_every_node_does_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=OFFER.times(2))
        sky.vms[1].together = "no sudo"
        await life.cloud.start(placed("a", 0, 1, work_s=600))
        await life.heard(RunEnded)
        assert life.of(JobsNotKeptApart) == [JobsNotKeptApart("i-1", "no sudo")]
        sky.vms[1].together = ""
        await life.heard(JobsNotKeptApart, lambda event: not event.why)

    play(tmp_path, story)
