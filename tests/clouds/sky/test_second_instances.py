"""One intent has one machine; what SkyPilot makes beside it in a launch is ended, and billed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clouds.sky.access.ports import SkyUnreachableError
from starburst.core.model.events import InstanceFailed, InstanceGone, InstanceReady
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, play


@pytest.mark.parametrize("comes_up", [True, False], ids=["identified at its login", "found by its labels"])
def test_all_instances_that_one_launch_made_are_billed(tmp_path: Path, comes_up: bool) -> None:
    """SkyPilot gives an instance up in its launch and makes another one for the same intent."""

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        (first,) = sky.vms
        sky.server_up = comes_up
        await asyncio.sleep(8)
        first.ended_at = wall()
        await asyncio.sleep(4)
        second = replace(first, id="second", made_at=wall(), ended_at=None)
        sky.vms.append(second)
        if comes_up:
            ready = await life.heard(InstanceReady)
            assert ready.launched_at < second.made_at, "caps count both from now on"
        await asyncio.sleep(300)
        second.ended_at = wall()
        sky.clusters_known.clear()
        sky.server_up = True
        gone = await life.heard(InstanceGone)
        billed_s = sum(vm.ended_at - vm.made_at for vm in (first, second) if vm.ended_at is not None)
        assert gone.ended_at - gone.launched_at == pytest.approx(billed_s)
        assert gone.ended_at == second.ended_at

    play(tmp_path, story)


def test_a_second_instance_that_skypilot_does_not_know_is_ended_and_billed(tmp_path: Path) -> None:
    """SkyPilot's server died as it asked for the first one, and asked for another one when it was up."""

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        (used,) = sky.vms
        other = replace(used, id="other", cluster="")
        sky.vms.append(other)
        await life.heard(InstanceReady)
        await asyncio.sleep(300)
        assert other.ended_at is not None
        assert used.ended_at is None, "jobs run there"
        used.ended_at = wall()
        gone = await life.heard(InstanceGone)
        billed_s = sum(vm.ended_at - vm.made_at for vm in (used, other) if vm.ended_at is not None)
        assert gone.ended_at - gone.launched_at == pytest.approx(billed_s)

    play(tmp_path, story)


def test_a_second_instance_is_ended_though_the_cloud_throttles_at_first(tmp_path: Path) -> None:
    throttles = iter((True, True))

    async def hook(what: str) -> None:
        if what == "before end" and next(throttles, False):
            raise SkyUnreachableError("RequestLimitExceeded")

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        (used,) = sky.vms
        other = replace(used, id="other", cluster="")
        sky.vms.append(other)
        await life.heard(InstanceReady)
        await asyncio.sleep(400)
        assert other.ended_at is not None
        assert used.ended_at is None

    play(tmp_path, story, hook=hook)


def test_a_second_instance_that_may_not_be_ended_costs_the_machine_nothing_but_its_bill(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.takes_orders = False
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        (used,) = sky.vms
        sky.vms.append(replace(used, id="other", cluster=""))
        ready = await life.heard(InstanceReady)
        assert ready.launched_at < used.made_at, "what it has cost until then"

    play(tmp_path, story)


def test_a_launch_that_made_too_many_machines_is_given_up_with_all_of_them(tmp_path: Path) -> None:
    """An answer of the cloud was lost, and SkyPilot, which asked again, takes all for one cluster's."""

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        (first,) = sky.vms
        sky.vms.append(replace(first, id="second"))
        failed = await life.heard(InstanceFailed)
        assert "has 2 machines in place of 1: SkyPilot asked the cloud again" in failed.message
        assert sky.alive() == []
        assert failed.launched_at is not None
        assert failed.ended_at is not None
        billed_s = sum(vm.ended_at - vm.made_at for vm in sky.vms if vm.ended_at is not None)
        assert failed.ended_at - failed.launched_at == pytest.approx(billed_s, abs=1.0)

    play(tmp_path, story)
