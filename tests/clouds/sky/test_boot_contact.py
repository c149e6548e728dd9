"""Machines have a lease and their switch as soon as they let anybody log in, before SkyPilot is done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clouds.sky.access.ports import SkyUnreachableError
from starburst.clouds.sky.boot_contact import LOOK_S, RENEWALS
from starburst.core.model.events import InstanceReady
from starburst.domain.cloud import Offer
from tests.app.virtual import run, wall
from tests.clouds.sky import fake
from tests.clouds.sky.fake import BOOT_S, FakeSky
from tests.clouds.sky.life import OFFER, SPOT, Life, play


@pytest.mark.parametrize("offer", [OFFER, SPOT, OFFER.times(2)], ids=["on-demand", "spot", "two"])
def test_every_launch_has_its_switch_while_it_comes_up(tmp_path: Path, offer: object) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", offer)  # type: ignore[arg-type]
        await asyncio.sleep(BOOT_S / 2)
        assert sky.vms
        for vm in sky.vms:
            assert vm.switch_s == 5 * 60 + 300
            assert vm.spot or vm.ends_when_shut_down
        assert not life.of(InstanceReady)
        await life.heard(InstanceReady)

    play(tmp_path, story)


def test_a_launch_that_breaks_off_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduler and API server die while SkyPilot sets the machine up: no autostop, no keeper, no login."""
    monkeypatch.setattr("tests.app.virtual.LIMIT_S", 10_000.0)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await life.cloud.launch("i-1", OFFER)
            await asyncio.sleep(BOOT_S / 2)
        for request in sky.requests.values():
            request.done.cancel()
        sky.lose_state()
        (vm,) = sky.vms
        vm.settle(wall())
        assert vm.ended_at is None
        await asyncio.sleep(900 + 11 * 60)
        vm.settle(wall())
        assert vm.ended_at is not None

    run(main())


def test_its_lease_is_renewed_however_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.app.virtual.LIMIT_S", 10_000.0)
    monkeypatch.setattr(fake, "BOOT_S", 3000.0)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", launch_limit_s=3600.0) as life:
            await life.cloud.launch("i-1", OFFER)
            await asyncio.sleep(60.0)
            asked = sky.calls["search"], sky.calls["ssh"]
            await life.heard(InstanceReady)
            assert [vm.ended_at for vm in sky.vms] == [None]
            assert sky.calls["search"] - asked[0] <= 3, "its address is known"
            assert sky.calls["ssh"] - asked[1] <= 15

    run(main())


@pytest.mark.parametrize("offer", [OFFER, OFFER.times(2)], ids=["one", "of two"])
def test_what_comes_in_the_place_of_an_instance_has_its_switch_once_a_lease_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offer: Offer
) -> None:
    monkeypatch.setattr(fake, "BOOT_S", 3000.0)

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", offer)
        await asyncio.sleep(60.0)
        first = sky.vms[0]
        assert first.switch_s is not None
        first.ended_at = wall()
        sky.vms.append(replace(first, id="i-99", ended_at=None, made_at=wall(), replaced=1, switch_s=None))
        await asyncio.sleep(900.0 / RENEWALS + 2 * LOOK_S)
        assert not life.of(InstanceReady)
        assert sky.vms[-1].switch_s is not None

    play(tmp_path, story)


def test_where_a_cloud_cannot_be_searched_the_switch_comes_with_the_login(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.cloud_searches = False
        await life.cloud.launch("i-1", OFFER)
        await asyncio.sleep(BOOT_S / 2)
        assert sky.vms[0].switch_s is None
        await life.heard(InstanceReady)
        assert sky.vms[0].switch_s is not None

    play(tmp_path, story)


def test_a_cloud_that_throttles_at_first_is_told_later_to_terminate_what_shuts_down(tmp_path: Path) -> None:
    until = 0.0

    async def hook(what: str) -> None:
        if what == "before arm" and wall() < until:
            raise SkyUnreachableError("RequestLimitExceeded")

    async def story(life: Life, sky: FakeSky) -> None:
        nonlocal until
        until = wall() + BOOT_S + 60
        await life.cloud.launch("i-1", OFFER)
        await life.heard(InstanceReady)
        at_first = sky.vms[0].ends_when_shut_down
        await asyncio.sleep(300)
        assert (at_first, sky.vms[0].ends_when_shut_down) == (False, True)
        told = sky.calls["arm"]
        await asyncio.sleep(300)
        assert sky.calls["arm"] == told, "that is settled"

    play(tmp_path, story, hook=hook)
