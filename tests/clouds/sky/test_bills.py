"""Bills are the cloud's own seconds, an intent has one machine, and a launch has a limit; in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst.clouds.sky.machines import observer
from starburst.core.model.events import Event, InstanceFailed, InstanceGone, InstanceReady
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import BOOT_S, RENT_S, FakeSky
from tests.clouds.sky.fake_vm import Vm
from tests.clouds.sky.life import OFFER, Life, play, ready


def bill(event: InstanceGone | InstanceFailed) -> tuple[float | None, float | None]:
    return event.launched_at, event.ended_at


def of_cloud(vm: Vm) -> tuple[float, float | None]:
    return vm.made_at, vm.ended_at


async def autostopped(sky: FakeSky) -> Vm:
    """The machine comes up, and SkyPilot gives it back before anybody has logged in."""
    while not sky.vms:
        await asyncio.sleep(0.5)
    (vm,) = sky.vms
    sky.server_up = False  # starved: it launches, and does not answer
    await asyncio.sleep(300)
    vm.ended_at = wall()
    sky.clusters_known.clear()
    sky.server_up = True
    return vm


@pytest.mark.parametrize("forgets", [False, True])
def test_a_machine_that_came_and_went_before_the_first_login_is_billed_and_ends_its_intent(
    tmp_path: Path, forgets: bool
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        vm = await autostopped(sky)
        if forgets:
            sky.requests.clear()
        gone = await life.heard(InstanceGone)
        assert bill(gone) == of_cloud(vm)
        await asyncio.sleep(3 * BOOT_S)
        assert (len(sky.vms), sky.calls["launch"]) == (1, 1), "a second machine needs an intent of its own"
        assert not life.of(InstanceReady)

    play(tmp_path, story)


def test_a_machine_that_is_given_back_is_billed_until_its_end_not_until_we_hear_of_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await asyncio.sleep(60)
        await life.cloud.terminate("i-1")
        while sky.alive():
            await asyncio.sleep(0.1)
        sky.server_up = False
        await asyncio.sleep(500)
        sky.server_up = True
        gone = await life.heard(InstanceGone)
        assert bill(gone) == of_cloud(sky.vms[0])
        assert wall() - gone.ended_at > 400

    play(tmp_path, story)


def test_what_ends_while_skypilot_is_away_is_billed_until_then_though_its_cloud_forgets_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_tells_s=100.0)
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            sky.server_up = False
            await life.cloud.terminate("i-1")
            await asyncio.sleep(60)
            sky.vms[0].ended_at = wall()
            await asyncio.sleep(500)
            sky.server_up = True
            assert bill(await life.heard(InstanceGone)) == of_cloud(sky.vms[0])

    run(main())


def test_what_skypilot_ends_long_after_its_switch_did_is_billed_until_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("SWITCH_S", 10.0), ("DOWN_S", 10.0), ("COARSE_S", 50.0)):
        monkeypatch.setattr(f"starburst.clouds.sky.machines.machine.{name}", seconds)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_tells_s=100.0)
        async with Life(sky, tmp_path / "home", lease_s=60.0) as life:
            await ready(life)
            await life.cloud.renew(["i-1"])
            await asyncio.sleep(10)
            (vm,) = sky.vms
            vm.plugged = sky.server_up = sky.cloud_up = False
            await life.cloud.terminate("i-1")
            await asyncio.sleep(800)
            vm.settle(wall())
            assert vm.ended_at == vm.stopped_at is not None
            sky.server_up = sky.cloud_up = True
            gone = await life.heard(InstanceGone)
            assert vm.stopped_at <= gone.ended_at <= vm.stopped_at + 70.0

    run(main())


def test_where_the_cloud_does_not_tell_the_end_of_skypilots_own_request_is_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_sees=False)
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await life.cloud.terminate("i-1")
            while sky.alive():
                await asyncio.sleep(0.1)
            sky.server_up = False
            await asyncio.sleep(500)
            sky.server_up = True
            gone = await life.heard(InstanceGone)
            assert sky.vms[0].ended_at == pytest.approx(gone.ended_at, abs=1.0)

    run(main())


def test_a_machine_that_is_preempted_is_billed_until_its_cloud_took_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.server_up = False
        await asyncio.sleep(10)
        sky.preempt()
        gone = await life.heard(InstanceGone)
        assert bill(gone) == of_cloud(sky.vms[0]), "known without SkyPilot"

    play(tmp_path, story)


def test_a_machine_is_billed_for_its_clouds_seconds_though_our_clock_is_an_hour_ahead(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        (vm,) = sky.vms
        vm.made_at -= 3600.0
        await life.heard(InstanceReady)
        await asyncio.sleep(60)
        vm.ended_at = wall() - 3600.0
        gone = await life.heard(InstanceGone)
        assert gone.ended_at - gone.launched_at == pytest.approx(vm.ended_at - vm.made_at)

    play(tmp_path, story)


def test_a_machine_that_ended_long_before_anybody_could_ask_is_billed_until_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not identified at its login, then SkyPilot was away: only a search by labels knows it."""
    monkeypatch.setattr("starburst.clouds.sky.machines.machine.DOWN_S", 10.0)
    monkeypatch.setattr("starburst.clouds.sky.machines.machine.SWITCH_S", 10.0)

    async def story(life: Life, sky: FakeSky) -> None:
        sky.cloud_up = False
        await ready(life)
        sky.server_up = False
        await asyncio.sleep(5)
        sky.preempt()
        sky.cloud_up = True
        await asyncio.sleep(450)
        sky.server_up = True
        gone = await life.heard(InstanceGone)
        assert bill(gone) == of_cloud(sky.vms[0])

    play(tmp_path, story, lease_s=60.0)


def test_a_cloud_that_answered_before_a_restart_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            sky.cloud_up = False
            await ready(life, "i-2")  # nobody said which instance it is
            await life.cloud.terminate("i-2")
        (vm,) = [vm for vm in sky.alive() if vm.cluster.endswith("i-2")]
        vm.ended_at = wall()
        async with Life(sky, tmp_path / "home") as life:
            await asyncio.sleep(100)
            sky.cloud_up = True
            gone = await life.heard(InstanceGone)
            assert bill(gone) == of_cloud(vm)

    run(main())


def test_a_cloud_that_throttles_for_a_moment_is_asked_again_what_became_of_a_machine(tmp_path: Path) -> None:
    """SkyPilot was away when its switch ended it; the one question to the cloud was not answered."""

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.server_up = False
        await life.cloud.terminate("i-1")
        await asyncio.sleep(100)
        (vm,) = sky.vms
        vm.ended_at = wall()
        await asyncio.sleep(300)
        sky.cloud_up = False
        sky.server_up = True
        sky.clusters_known.clear()
        await asyncio.sleep(60)
        assert not life.of(InstanceGone)
        sky.cloud_up = True
        gone = await life.heard(InstanceGone)
        assert bill(gone) == of_cloud(vm)

    play(tmp_path, story)


@pytest.mark.parametrize("restarts", [False, True])
def test_where_nobody_says_when_a_machine_ended_its_own_switch_bounds_its_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """Its cloud cannot be asked, SkyPilot was away for long, and it was taken at the beginning of that."""
    for name, seconds in (("SWITCH_S", 10.0), ("DOWN_S", 10.0), ("COARSE_S", 50.0)):
        monkeypatch.setattr(f"starburst.clouds.sky.machines.machine.{name}", seconds)
    lasts_s = 60.0 + 300.0 + 10.0 + 10.0 + 50.0  # lease, idle minutes, switch, way down, as seldom as written

    async def gone_of(life: Life, sky: FakeSky, silent_s: float) -> InstanceGone:
        await asyncio.sleep(silent_s)
        sky.clusters_known.clear()
        sky.server_up = True
        return await life.heard(InstanceGone)

    async def main() -> tuple[InstanceGone, Vm]:
        sky = FakeSky(tmp_path / "sky", cloud_sees=False, cloud_searches=False)
        async with Life(sky, tmp_path / "home", lease_s=60.0) as life:
            await ready(life)
            await asyncio.sleep(30)
            sky.server_up = False
            sky.preempt()
            if not restarts:
                return await gone_of(life, sky, 700.0), sky.vms[0]
            await asyncio.sleep(100)
        async with Life(sky, tmp_path / "home", lease_s=60.0) as life:
            return await gone_of(life, sky, 600.0), sky.vms[0]

    gone, vm = run(main())
    assert vm.ended_at is not None
    assert vm.ended_at <= gone.ended_at <= vm.ended_at + lasts_s


def test_a_stopped_machine_is_billed_until_it_was_stopped(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await asyncio.sleep(30)
        sky.stop(sky.vms[0])
        gone = await life.heard(InstanceGone)
        assert gone.ended_at == sky.vms[0].stopped_at
        assert sky.vms[0].ended_at is not None
        assert sky.vms[0].ended_at > gone.ended_at

    play(tmp_path, story)


def test_a_launch_that_takes_too_long_is_aborted_and_fails(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        stuck = sky.begin("sky.launch", life.cloud._context.naming.cluster("i-1"), asyncio.sleep(10_000))
        await life.cloud.launch("i-1", OFFER)
        since = wall()
        failed = await life.heard(InstanceFailed)
        assert 300 <= wall() - since < 330
        assert "it was not up within 300 s (cloud.launch_limit)" in failed.message
        assert not failed.sold_out
        assert sky.requests[stuck].done.cancelled()
        assert not sky.vms

    play(tmp_path, story, launch_limit_s=300.0)


def test_the_limit_of_a_launch_outlasts_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", launch_limit_s=300.0) as first:
            sky.begin("sky.launch", first.cloud._context.naming.cluster("i-1"), asyncio.sleep(10_000))
            await first.cloud.launch("i-1", OFFER)
            await asyncio.sleep(200)
        since = wall()
        async with Life(sky, tmp_path / "home", launch_limit_s=300.0) as second:
            await second.heard(InstanceFailed)
            assert wall() - since < 130

    run(main())


def test_a_launch_past_its_limit_whose_machine_is_up_is_ended_and_billed(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        sky.vms[0].plugged = False
        failed = await life.heard(InstanceFailed)
        assert not sky.alive()
        assert bill(failed) == of_cloud(sky.vms[0])

    play(tmp_path, story, launch_limit_s=100.0)


@pytest.mark.parametrize("after_s", [0.1, 1.0, RENT_S + 1, BOOT_S - 1])
def test_an_intent_whose_launch_was_lost_has_one_machine(tmp_path: Path, after_s: float) -> None:
    """The API server's database is lost while it launches, and the scheduler dies, too."""

    async def main() -> tuple[FakeSky, list[Event]]:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as first:
            await first.cloud.launch("i-1", OFFER)
            await asyncio.sleep(after_s)
        for request in sky.requests.values():
            request.done.cancel()
        sky.lose_state()
        async with Life(sky, tmp_path / "home") as second:
            await second.heard((InstanceReady, InstanceGone, InstanceFailed))
            await asyncio.sleep(2 * BOOT_S)
            return sky, second.events

    sky, _events = run(main())
    assert len(sky.vms) == 1


@pytest.mark.parametrize("word_s", [observer.WORD_S, 60.0], ids=["for a while", "for longer than others are"])
def test_a_launch_given_up_is_not_over_while_its_cloud_does_not_say_what_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word_s: float
) -> None:
    """SkyPilot's state is lost in the middle of a launch, and the cloud answers 500 meanwhile."""
    monkeypatch.setattr(observer, "WORD_S", word_s)

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, "i-0")
        await life.cloud.launch("i-1", OFFER)
        while len(sky.vms) < 2:
            await asyncio.sleep(0.5)
        for request in sky.requests.values():
            request.done.cancel()
        sky.lose_state()
        sky.cloud_up = False
        await life.cloud.terminate("i-1")
        await asyncio.sleep(100)
        assert not life.of(InstanceGone)
        sky.cloud_up = True
        gone = await life.heard(InstanceGone)
        assert bill(gone) == of_cloud(sky.vms[1])

    play(tmp_path, story)


def test_a_machine_that_its_switch_ended_is_not_billed_longer_for_each_restart_that_would_renew_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("SWITCH_S", 10.0), ("DOWN_S", 10.0), ("COARSE_S", 50.0)):
        monkeypatch.setattr(f"starburst.clouds.sky.machines.machine.{name}", seconds)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_sees=False, cloud_searches=False)
        async with Life(sky, tmp_path / "home", lease_s=60.0) as life:
            await ready(life)
            await life.cloud.renew(["i-1"])
            await asyncio.sleep(10)
        (vm,) = sky.vms
        vm.plugged = sky.server_up = False
        await asyncio.sleep(400)
        vm.settle(wall())
        assert vm.stopped_at is not None
        for _ in range(2):
            async with Life(sky, tmp_path / "home", lease_s=60.0) as life:
                await life.cloud.renew(["i-1"])
                await asyncio.sleep(30)
        sky.server_up = True
        sky.clusters_known.clear()
        async with Life(sky, tmp_path / "home", lease_s=60.0) as life:
            await life.cloud.terminate("i-1")
            gone = await life.heard(InstanceGone)
            assert vm.stopped_at <= gone.ended_at <= vm.stopped_at + 70.0

    run(main())
