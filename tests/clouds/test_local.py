"""Machines of the embedded cloud: booted, billed, preempted, and what runs on them."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    OffersChanged,
    RunEnd,
    RunEnded,
    SiteSynced,
)
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Site
from starburst.domain.resources import Resources
from starburst.runs.ports import Cloud, Run
from tests.clouds.embedded import BIG, RARE, SLOW, a_cloud, job_log, job_on, now
from tests.runs.allreduce import ALL_REDUCE
from tests.runs.harness import PATIENCE_S, a_run, is_alive, shell, until, watching

pytestmark = pytest.mark.processes


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


def test_jobs_share_several_machines_and_no_gpu_of_them(root: Path) -> None:
    def visible(name: str, *nodes: int, gpus: int) -> Run:
        made = shell(
            "echo gpus=$CUDA_VISIBLE_DEVICES; sleep 1", job_id=name, where="i1", gpus=(gpus,) * len(nodes)
        )
        slots = zip(made.slots, nodes, strict=True)
        return replace(made, slots=tuple(replace(slot, node=node) for slot, node in slots))

    async def main() -> list[RunEnd]:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", BIG.times(2))
            await reports.first(InstanceReady)
            await cloud.start(visible("a", 0, 1, gpus=3))
            await cloud.start(visible("b", 1, gpus=1))
            await cloud.start(visible("c", 0, gpus=1))
            await cloud.start(visible("d", 0, gpus=1))
            return [(await reports.ended(name)).end for name in "abcd"]

    assert asyncio.run(main()) == [*[RunEnd.EXITED] * 3, RunEnd.LOST]
    logs = {name: job_log(root, name).splitlines() for name in "abc"}
    assert logs == {"a": ["gpus=0,1,2"], "b": ["gpus=3"], "c": ["gpus=3"]}


def test_several_machines_are_had_together_or_not_at_all(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root)
        async with watching(cloud) as reports:
            await cloud.launch("i1", RARE.times(2))
            told = "rare is sold out: 0 of 1 are in use, and 2 were asked for"
            assert reports.of(InstanceFailed) == [InstanceFailed("i1", told, sold_out=True)]

    asyncio.run(main())
