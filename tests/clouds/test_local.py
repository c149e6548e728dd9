"""Machines of the embedded cloud: booted, billed, preempted, and gone by themselves when nobody cares."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clouds.catalog import LocalOffer
from starburst.clouds.local import LocalCloud
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    OffersChanged,
    RunEnd,
    RunEnded,
    SiteSynced,
)
from starburst.domain.clock import Pace
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Site
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.runs.ports import Cloud
from starburst.runs.processes import ProcessRunner
from tests.runs.allreduce import ALL_REDUCE
from tests.runs.harness import PATIENCE_S, Reports, a_run, is_alive, shell, until, watching

pytestmark = pytest.mark.processes

BIG = Offer("big", Resources.of(4, 32, 244, "V100"), Money.of("12.24"))
RARE = Offer("rare", Resources.of(1, 8, 61, "V100"), Money.of("3.06"))
SLOW = Offer("slow", Resources.of(1, 8, 61), Money.of("1"))
OFFERS = (LocalOffer(BIG, 20, 40), LocalOffer(RARE, capacity=1), LocalOffer(SLOW, 1e9))

#: A minute of the scheduler passes in 60 ms.
PACE = Pace(time.time(), 1000.0)


def now() -> float:
    return PACE.scheduler_time(time.time())


def a_cloud(root: Path, lease_s: float = 600.0, owner: str = "us", controller: str = "c1") -> LocalCloud:
    return LocalCloud(
        OFFERS,
        root / "cloud",
        ProcessRunner(root / "cloud" / "runs", root / "checkpoints", Site.CLOUD),
        pace=PACE,
        now=now,
        lease_s=lease_s,
        owner=owner,
        controller=controller,
    )


async def listed(cloud: LocalCloud) -> dict[str, InstancePhase]:
    """Machines that it lists, and how they stand."""
    return {machine.id: machine.phase for machine in await cloud.owned()}


def job_log(root: Path, job_id: str = "job") -> str:
    path = root / "cloud" / "runs" / job_id / "1" / "0" / "log"
    return path.read_text() if path.exists() else ""


async def job_on(cloud: LocalCloud, reports: Reports, root: Path, offer: Offer = BIG) -> int:
    """Launch i1 and have a job run on it; its process id."""
    await cloud.launch("i1", offer)
    await reports.first(InstanceReady)
    await cloud.start(shell("echo $$; sleep 600", where="i1", gpus=(1,)))
    await until(lambda: job_log(root).endswith("\n"))
    await reports.started()
    return int(job_log(root))


def test_it_keeps_to_the_port(root: Path) -> None:
    async def main(cloud: Cloud) -> None:
        async with watching(cloud) as reports:
            assert reports.events == [
                OffersChanged((BIG, RARE, SLOW)),
                SiteSynced(Site.CLOUD, frozenset()),
            ]

    asyncio.run(main(a_cloud(root)))


def test_a_machine_is_ready_after_its_boot_and_setup_and_billed_from_its_launch(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            before = now()
            await cloud.launch("i1", BIG)
            after = now()
            assert [instance.phase for instance in await cloud.owned()] == [InstancePhase.LAUNCHING]
            ready = await reports.first(InstanceReady)
            assert before <= ready.launched_at <= after
            assert now() >= ready.launched_at + 60
            await cloud.terminate("i1")
            gone = await reports.first(InstanceGone)
            assert gone == InstanceGone("i1", ready.launched_at, gone.ended_at, preempted=False)
            assert ready.launched_at + 60 <= gone.ended_at <= now()

    asyncio.run(main())


def test_launching_an_intent_twice_makes_one_machine(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        await cloud.launch("i1", BIG)
        first = await cloud.owned()
        await cloud.launch("i1", BIG)
        await a_cloud(root).launch("i1", BIG)
        assert [one.launched_at for one in await cloud.owned()] == [one.launched_at for one in first]

    asyncio.run(main())


def test_an_offer_at_its_capacity_is_sold_out_and_stays_so_for_that_intent(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", RARE)
            await cloud.launch("i2", RARE)
            failed = InstanceFailed("i2", "rare is sold out: all 1 are in use", sold_out=True)
            assert reports.of(InstanceFailed) == [failed]
            await cloud.terminate("i1")
            await reports.first(InstanceGone)
            await cloud.launch("i2", RARE)
            assert reports.of(InstanceFailed) == [failed, failed]
            await cloud.launch("i3", RARE)
            await reports.first(InstanceReady, lambda ready: ready.instance_id == "i3")
        assert {instance.id for instance in await cloud.owned()} == {"i1", "i3"}

    asyncio.run(main())


def test_what_is_not_sold_cannot_be_launched(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", Offer("unheard-of", Resources(), None))
            message = "the embedded cloud does not sell 'unheard-of'"
            assert reports.of(InstanceFailed) == [InstanceFailed("i1", message)]

    asyncio.run(main())


def test_a_machine_terminated_before_its_launch_is_never_made(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.terminate("i1")
            (gone,) = reports.of(InstanceGone)
            assert gone.ended_at - gone.launched_at == pytest.approx(0, abs=1)
            await cloud.launch("i1", BIG)
            assert reports.of(InstanceGone) == [gone, gone]
        assert await cloud.owned() == []

    asyncio.run(main())


def test_terminating_a_failed_launch_confirms_that_it_is_gone(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", Offer("unheard-of", Resources(), None))
            await cloud.terminate("i1")
            assert [gone.instance_id for gone in reports.of(InstanceGone)] == ["i1"]

    asyncio.run(main())


def test_terminating_a_machine_kills_what_runs_on_it_first(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            pid = await job_on(cloud, reports, root)
            await cloud.terminate("i1")
            await reports.first(InstanceGone)
            assert not is_alive(pid)
            end = await reports.ended()
        assert (end.end, end.message) == (RunEnd.LOST, "its machine was given back")

    asyncio.run(main())


def test_jobs_share_a_machine_but_not_its_gpus(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", BIG)
            await reports.first(InstanceReady)
            for job_id in ("a", "b"):
                script = "echo $STARBURST_SITE $CUDA_VISIBLE_DEVICES; sleep 600"
                await cloud.start(shell(script, job_id=job_id, where="i1", gpus=(2,)))
            await until(lambda: all(job_log(root, job_id).endswith("\n") for job_id in "ab"))
        assert (job_log(root, "a"), job_log(root, "b")) == ("cloud 0,1\n", "cloud 2,3\n")

    asyncio.run(main())


def test_a_machine_takes_no_runs_before_it_is_ready_nor_after_it_was_given_back(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", SLOW)
            await cloud.start(shell("exit 0", job_id="early", where="i1"))
            await cloud.launch("i2", RARE)
            await cloud.terminate("i2")
            await cloud.start(shell("exit 0", job_id="late", where="i2"))
            for job_id, where in (("early", "i1"), ("late", "i2")):
                end = RunEnded(job_id, 1, RunEnd.LOST, message=f"{where} takes no runs")
                assert await reports.ended(job_id) == end

    asyncio.run(main())


def test_a_preempted_machine_is_reported_gone_before_its_runs_are_reported_lost(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            pid = await job_on(cloud, reports, root)
            a_cloud(root).preempt("i1")  # as another process would
            gone = await reports.first(InstanceGone)
            assert gone.preempted
            assert not is_alive(pid)
            assert (await reports.ended()).message == "its machine was preempted"
            kinds = [type(event) for event in reports.events]
            assert kinds.index(InstanceGone) < kinds.index(RunEnded)

    asyncio.run(main())


def test_only_a_living_machine_can_be_preempted(root: Path) -> None:
    with pytest.raises(ValueError, match="no machine 'i9' is alive; see `starburst instances`"):
        a_cloud(root).preempt("i9")


def test_a_machine_ends_by_itself_when_its_lease_is_not_renewed(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root, lease_s=0.6)
        async with watching(cloud) as reports:
            await job_on(cloud, reports, root)
            gone = await reports.first(InstanceGone)
            assert (
                595 < gone.ended_at - gone.launched_at < 900
            )  # it is looked at on the real clock, 1000 times slower
            assert (await reports.ended()).end is RunEnd.LOST

    asyncio.run(main())


def test_with_nobody_there_its_runs_end_by_themselves_and_its_bill_with_the_lease(
    root: Path,
) -> None:
    async def main() -> None:
        cloud = a_cloud(root, lease_s=0.6)
        async with watching(cloud) as reports:
            pid = await job_on(cloud, reports, root)
        await until(lambda: not is_alive(pid))
        async with watching(a_cloud(root)) as reports:
            gone = await reports.first(InstanceGone)
            assert gone.ended_at - gone.launched_at == pytest.approx(600, abs=5)
            end = await reports.ended()
        assert (end.end, end.message) == (RunEnd.LOST, "the lease of its machine passed")

    asyncio.run(main())


def test_renewing_keeps_a_machine_and_its_runs(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root, lease_s=0.6)
        async with watching(cloud) as reports:
            pid = await job_on(cloud, reports, root)
            until_s = time.monotonic() + 1.8
            while time.monotonic() < until_s:
                await cloud.renew(["i1", "unknown"])
                await asyncio.sleep(0.1)
            assert is_alive(pid)
            assert reports.of(InstanceGone) == []

    asyncio.run(main())


def test_a_lease_that_has_passed_cannot_be_renewed(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root, lease_s=0)
        await cloud.launch("i1", BIG)
        await a_cloud(root).renew(["i1"])
        assert [instance.phase for instance in await cloud.owned()] == [InstancePhase.TERMINATING]

    asyncio.run(main())


def test_a_new_controller_learns_of_every_machine_with_the_same_bill(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            for instance_id in ("i1", "i2"):
                await cloud.launch(instance_id, BIG)
            ready = await reports.first(InstanceReady, lambda event: event.instance_id == "i2")
            await cloud.terminate("i1")
            gone = await reports.first(InstanceGone)
        async with watching(a_cloud(root)) as reports:
            assert reports.of(InstanceReady)[:1] == [ready]
            assert reports.of(InstanceGone) == [gone]

    asyncio.run(main())


def test_a_termination_is_finished_by_the_next_controller(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        await cloud.launch("i1", BIG)
        await cloud.terminate("i1")
        async with watching(a_cloud(root)) as reports:
            await reports.first(InstanceGone)

    asyncio.run(main())


def test_machines_of_another_owner_are_neither_seen_nor_touched(root: Path) -> None:
    async def main() -> None:
        await a_cloud(root, owner="them").launch("i1", BIG)
        cloud = a_cloud(root, owner="us")
        async with watching(cloud) as reports:
            assert await cloud.owned() == []
            assert reports.of(InstanceReady) == []

    asyncio.run(main())


def test_the_same_intent_of_two_stores_is_two_machines(root: Path) -> None:
    async def main() -> None:
        await a_cloud(root, controller="lost").launch("i1", SLOW)
        cloud = a_cloud(root, controller="new")
        assert await listed(cloud) == {"lost/i1": InstancePhase.LAUNCHING}
        await cloud.launch("i1", BIG)
        async with watching(cloud) as reports:
            assert (await reports.first(SiteSynced)).instances == {"i1"}
            await reports.first(InstanceReady)
            assert await listed(cloud) == {"i1": InstancePhase.READY, "lost/i1": InstancePhase.LAUNCHING}
            await cloud.terminate("i1")
            await reports.first(InstanceGone)
            assert await listed(cloud) == {"i1": InstancePhase.GONE, "lost/i1": InstancePhase.LAUNCHING}
            told = [event for event in reports.events if getattr(event, "instance_id", "i1") != "i1"]
            assert not told, "nothing is reported of another store's machine"
        whose = {machine.id: machine.controller for machine in await cloud.owned()}
        assert whose == {"i1": "new", "lost/i1": "lost"}

    asyncio.run(main())


def test_a_machine_of_another_store_ends_by_its_name_in_the_listing(root: Path) -> None:
    async def main() -> None:
        await a_cloud(root, controller="lost").launch("i1", BIG)
        cloud = a_cloud(root, controller="new")
        async with watching(cloud) as reports:
            await cloud.terminate("lost/i1")
            await until(lambda: bool(list((root / "cloud" / "instances" / "lost" / "i1").glob("ended.json"))))
            assert not reports.of(InstanceGone)
        async with watching(a_cloud(root, controller="lost")) as reports:
            assert [gone.instance_id for gone in reports.of(InstanceGone)] == ["i1"]

    asyncio.run(main())


def test_what_runs_on_another_stores_machine_of_the_same_intent_keeps_its_gpus_and_its_life(
    root: Path,
) -> None:
    async def main() -> None:
        lost = a_cloud(root, controller="lost")
        async with watching(lost) as reports:
            await lost.launch("i1", BIG)
            await reports.first(InstanceReady)
            await lost.start(shell("echo $$; sleep 600", job_id="old", where="i1", gpus=(4,)))
            await until(lambda: job_log(root, "old").endswith("\n"))
            pid = int(job_log(root, "old"))
        cloud = a_cloud(root, controller="new")
        async with watching(cloud) as reports:
            await cloud.launch("i1", BIG)
            await reports.first(InstanceReady)
            await cloud.start(shell("echo $CUDA_VISIBLE_DEVICES; sleep 600", where="i1", gpus=(4,)))
            await until(lambda: job_log(root).endswith("\n"))
            assert job_log(root) == "0,1,2,3\n"
            await cloud.terminate("i1")
            assert (await reports.ended()).end is RunEnd.LOST
            assert is_alive(pid)
            await cloud.terminate("lost/i1")
            await until(lambda: not is_alive(pid))

    asyncio.run(main())


def test_a_listing_says_till_when_a_machine_lives_as_last_renewed(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root, lease_s=60.0)
        await cloud.launch("i1", BIG)
        before = now()
        (machine,) = await a_cloud(root).owned()
        assert machine.expires_at == pytest.approx(before + 60_000, abs=2000)
        await a_cloud(root, lease_s=600.0).renew(["i1"])
        (machine,) = await cloud.owned()
        assert machine.expires_at == pytest.approx(before + 600_000, abs=4000)

    asyncio.run(main())


def test_a_failure_inside_ends_the_watch_instead_of_going_unheard(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        await cloud.launch("i1", BIG)
        (root / "cloud" / "instances" / "c1" / "i1" / "launch.json").write_text("not JSON")
        with pytest.raises(ValueError, match="Expecting value"):
            await asyncio.wait_for(cloud.watch(lambda event: None), PATIENCE_S)

    asyncio.run(main())


def test_a_job_that_takes_from_a_cluster_what_this_cloud_cannot_give_is_refused_by_name(root: Path) -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "sets"}}
    spec = {"containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}], "volumes": [claim]}
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})

    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", BIG)
            await reports.first(InstanceReady)
            made = shell("echo ran", where="i1", gpus=(1,))
            await cloud.start(replace(made, workload=replace(made.workload, manifest=manifest)))
            end = await reports.ended()
            assert end.end is RunEnd.REFUSED
            paths = "spec.containers[0].env[0].valueFrom, spec.volumes[0].persistentVolumeClaim: is of a Kube"
            assert end.message.startswith(paths)
            assert job_log(root) == ""

    asyncio.run(main())


def test_a_gang_runs_over_the_machines_of_one_instance(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", BIG.times(2))
            await reports.first(InstanceReady)
            run = a_run(sys.executable, "-c", ALL_REDUCE, where="i1", gpus=(4, 4))
            await cloud.start(replace(run, slots=tuple(replace(slot, node=slot.rank) for slot in run.slots)))
            assert (await reports.ended()).exit_code == 0
            (machine,) = await cloud.owned()
            assert machine.nodes == 2

    asyncio.run(main())
    assert job_log(root).splitlines()[-1] == "sum 3 of 2 hosts"


def test_several_machines_are_had_together_or_not_at_all(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", RARE.times(2))
            told = "rare is sold out: 0 of 1 are in use, and 2 were asked for"
            assert reports.of(InstanceFailed) == [InstanceFailed("i1", told, sold_out=True)]

    asyncio.run(main())
