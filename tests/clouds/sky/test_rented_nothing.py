"""SkyPilot also lists what it could not rent: what made no instance has no bill; in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst.clouds.sky.access.ports import LaunchSpec
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines import retention
from starburst.clouds.sky.machines.entry import load_machines
from starburst.core.model.events import InstanceFailed, InstanceGone
from tests.app.virtual import START, run, wall
from tests.clouds.sky.fake import RENT_S, FakeSky
from tests.clouds.sky.fake_vm import Vm
from tests.clouds.sky.life import OFFER, Life, play, ready


async def refused_after_another(life: Life, sky: FakeSky) -> LaunchSpec:
    """A machine is up; the next launch is listed, and the cloud is about to refuse it."""
    await ready(life)
    sky.refused = {"p3.8xlarge"}
    await life.cloud.launch("i-2", OFFER)
    while not any("i-2" in cluster for cluster in sky.clusters_known):
        await asyncio.sleep(0.5)
    return next(spec for cluster, spec in sky.clusters_known.items() if "i-2" in cluster)


@pytest.mark.parametrize("shown", [True, False], ids=["shown another", "shown nothing"])
def test_a_launch_that_rented_nothing_is_billed_only_where_its_cloud_may_be_another(
    tmp_path: Path, shown: bool
) -> None:
    """SkyPilot lists the cluster until it hears that the cloud refuses the machine."""

    async def story(life: Life, sky: FakeSky) -> None:
        if shown:
            await ready(life)
        sky.refused = {"p3.8xlarge"}
        await life.cloud.launch("i-2", OFFER)
        failed = await life.heard(InstanceFailed)
        assert "AuthFailure" in failed.message
        assert (failed.launched_at == failed.ended_at) is shown
        assert len(sky.vms) == shown

    play(tmp_path, story)


def test_an_instance_that_its_cloud_shows_late_is_billed_and_ended(tmp_path: Path) -> None:
    """A launch failed, SkyPilot took down what it listed, and the cloud did not find the instance yet."""

    async def story(life: Life, sky: FakeSky) -> None:
        spec = await refused_after_another(life, sky)
        while spec.cluster in sky.clusters_known:
            await asyncio.sleep(0.5)
        await asyncio.sleep(30.0)
        late = Vm(spec.cluster, spec.spot, 0, wall() - 40.0, "i-late", spec.labels)
        sky.vms.append(late)
        failed = await life.heard(InstanceFailed)
        assert late.ended_at is not None
        assert failed.ended_at - failed.launched_at == pytest.approx(late.ended_at - late.made_at, abs=1.0)

    play(tmp_path, story)


def test_what_ended_so_long_ago_that_its_cloud_has_forgotten_it_is_billed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch failed, and neither SkyPilot nor the cloud answered for longer than a cloud remembers."""
    monkeypatch.setattr(retention, "RETAINED_S", 300.0)

    async def story(life: Life, sky: FakeSky) -> None:
        spec = await refused_after_another(life, sky)
        sky.cloud_up = sky.server_up = False
        sky.vms.append(Vm(spec.cluster, spec.spot, 0, wall(), "i-made", spec.labels))
        sky.vms[1].ended_at = wall() + 20.0
        sky.cloud_tells_s = 10.0
        await asyncio.sleep(400)
        sky.cloud_up = sky.server_up = True
        failed = await life.heard(InstanceFailed)
        assert failed.ended_at - failed.launched_at > 400.0

    play(tmp_path, story)


def test_a_launch_that_its_cloud_may_have_forgotten_is_billed_from_its_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot took down what it made before that was listed, and the cloud answered only an hour later."""
    monkeypatch.setattr(retention, "RETAINED_S", 300.0)

    async def story(life: Life, sky: FakeSky) -> None:
        spec = await refused_after_another(life, sky)
        asked_at = wall() - RENT_S
        sky.cloud_up = False
        del sky.clusters_known[spec.cluster]
        await asyncio.sleep(life.launch_limit_s + 400.0)
        sky.cloud_up = True
        failed = await life.heard(InstanceFailed)
        assert failed.launched_at == pytest.approx(asked_at, abs=2.0)
        assert 300.0 < failed.ended_at - failed.launched_at < 450.0

    play(tmp_path, story, launch_limit_s=300.0)


def test_a_launch_of_which_its_cloud_found_nothing_all_the_time_made_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot was away for longer than a cloud remembers; its cloud was not."""
    monkeypatch.setattr(retention, "RETAINED_S", 300.0)
    monkeypatch.setattr(retention, "COARSE_S", 10.0)

    async def story(life: Life, sky: FakeSky) -> None:
        sky.refused = {"p3.8xlarge"}
        await life.cloud.launch("i-1", OFFER)
        await asyncio.sleep(1.0)
        sky.server_up = False
        await life.cloud.terminate("i-1")
        await asyncio.sleep(800.0)
        sky.clusters_known.clear()
        sky.server_up = True
        gone = await life.heard(InstanceGone)
        assert gone.launched_at == gone.ended_at

    play(tmp_path, story, launch_limit_s=60.0)


def test_a_launch_that_nobody_can_tell_of_is_billed_no_longer_than_a_machine_lives_by_itself(
    tmp_path: Path,
) -> None:
    """The scheduler was away for two days, and by then neither SkyPilot nor the cloud knows of the launch."""

    async def asks() -> None:
        async with Life(FakeSky(tmp_path / "sky"), tmp_path / "home") as life:
            await life.cloud.launch("i-1", OFFER)
            await asyncio.sleep(5.0)

    async def comes_back() -> None:
        async with Life(FakeSky(tmp_path / "another"), tmp_path / "home") as life:
            failed = await life.heard(InstanceFailed)
            longest_s = life.launch_limit_s + life.cloud.machines["i-1"].survival_s
            assert failed.launched_at == pytest.approx(START, abs=1.0)
            assert failed.ended_at - failed.launched_at == pytest.approx(longest_s)

    run(asks())
    run(comes_back(), start=START + 2 * 86_400)


def test_the_end_that_a_cloud_tells_while_skypilot_is_away_outlives_the_scheduler(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.server_up = False
        await life.cloud.terminate("i-1")
        sky.vms[0].ended_at = wall()
        await asyncio.sleep(120.0)
        (entry,) = load_machines(FileJournal(life.home / "notes")).values()
        assert entry.halted_at == sky.vms[0].ended_at

    play(tmp_path, story)
