"""Machines of the embedded cloud outlive no lease, and controllers and stores share them rightly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst.clouds.local import LocalCloud
from starburst.core.model.events import (
    InstanceGone,
    InstanceReady,
    RunEnd,
    SiteSynced,
)
from starburst.domain.cloud import InstancePhase
from tests.clouds.embedded import BIG, SLOW, a_cloud, job_log, job_on, listed, now
from tests.runs.harness import is_alive, shell, until, watching

pytestmark = pytest.mark.processes


def test_a_machine_ends_by_itself_when_its_lease_is_not_renewed(root: Path) -> None:
    async def main() -> None:
        cloud = a_cloud(root, lease_s=2.0)
        async with watching(cloud) as reports:
            await job_on(cloud, reports, root)
            gone = await reports.first(InstanceGone)
            # It is looked at on the real clock, 1000 times slower.
            assert 1995 < gone.ended_at - gone.launched_at < 2900
            assert (await reports.ended()).end is RunEnd.LOST

    asyncio.run(main())


def test_with_nobody_there_its_runs_end_by_themselves_and_its_bill_with_the_lease(
    root: Path,
) -> None:
    async def main() -> None:
        cloud = a_cloud(root, lease_s=2.0)
        async with watching(cloud) as reports:
            pid = await job_on(cloud, reports, root)
        await until(lambda: not is_alive(pid))
        async with watching(a_cloud(root)) as reports:
            gone = await reports.first(InstanceGone)
            assert gone.ended_at - gone.launched_at == pytest.approx(2000, abs=5)
            end = await reports.ended()
        assert (end.end, end.message) == (RunEnd.LOST, "the lease of its machine passed")

    asyncio.run(main())


def test_renewing_keeps_a_machine_and_its_runs(root: Path) -> None:
    async def renew(cloud: LocalCloud) -> None:
        while True:
            await cloud.renew(["i1", "unknown"])
            await asyncio.sleep(0.1)

    async def main() -> None:
        cloud = a_cloud(root, lease_s=2.0)
        async with watching(cloud) as reports:
            renewing = asyncio.create_task(renew(cloud))
            pid = await job_on(cloud, reports, root)
            await asyncio.sleep(2.5)  # longer than a lease
            assert is_alive(pid)
            assert reports.of(InstanceGone) == []
            renewing.cancel()

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
