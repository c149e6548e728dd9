"""Machines of SkyPilot: up, unreachable, given back and gone, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst.app.daemon.reaper import Fate, ReapRules
from starburst.clouds.sky.machines.naming import Naming
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnreachable,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.domain.cloud import InstancePhase
from tests.app.virtual import wall
from tests.clouds.sky.fake import BOOT_S, FakeSky
from tests.clouds.sky.life import OFFER, SPOT, Life, at, play, ready, run_of


def test_the_offers_come_first_and_then_what_is_known(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        assert (await life.heard(OffersChanged)).offers == (OFFER, SPOT)
        synced = await life.heard(SiteSynced)
        assert (synced.known, synced.instances) == (frozenset(), frozenset())

    play(tmp_path, story)


def test_the_bill_begins_when_the_machine_does(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        assert life.of(InstanceReady)[0].launched_at == sky.vms[0].made_at < wall() - 5

    play(tmp_path, story)


def test_a_launch_that_finds_no_capacity_fails_as_sold_out_and_leaves_nothing(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.sold_out = {"p3.8xlarge"}
        await life.cloud.launch("i-1", OFFER)
        failed = await life.heard(InstanceFailed)
        assert failed.sold_out
        assert not sky.alive()
        sky.sold_out = set()
        await life.cloud.launch("i-1", OFFER)
        await asyncio.sleep(2 * BOOT_S)
        assert not sky.vms, "an intent that failed stays so"

    play(tmp_path, story)


def test_a_launch_that_fails_after_its_machine_booted_is_billed(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.broken = {"p3.8xlarge"}
        await life.cloud.launch("i-1", OFFER)
        failed = await life.heard(InstanceFailed)
        assert "setup failed" in failed.message
        (vm,) = sky.vms
        assert failed.launched_at is not None
        assert failed.ended_at is not None
        assert vm.ended_at is not None
        assert failed.launched_at <= vm.made_at < vm.ended_at <= failed.ended_at

    play(tmp_path, story)


def test_a_spot_machine_that_vanishes_was_preempted_and_its_runs_are_lost(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=SPOT)
        await life.cloud.start(run_of("a", 1000))
        await life.heard(RunStarted)
        at = wall()
        sky.preempt()
        gone = await life.heard(InstanceGone)
        assert gone.preempted
        assert at <= gone.ended_at < at + 30
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        assert not life.of(InstanceUnreachable)

    play(tmp_path, story)


def test_an_on_demand_machine_that_vanishes_was_not_preempted(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.preempt()
        assert not (await life.heard(InstanceGone)).preempted

    play(tmp_path, story)


def test_a_machine_that_is_cut_off_is_unreachable_and_never_dead(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, offer=SPOT)
        await life.cloud.start(run_of("a", 100))
        await life.heard(RunStarted)
        sky.vms[0].plugged = False
        await life.heard(InstanceUnreachable)
        cut = len(life.events)
        await asyncio.sleep(300)
        assert not life.of(InstanceGone)
        assert not life.of(RunEnded)
        sky.vms[0].plugged = True
        while not any(isinstance(event, InstanceReachable) for event in life.events[cut:]):
            await asyncio.sleep(1)
        assert (await life.heard(RunEnded)).exit_code == 0
        assert len(life.of(InstanceUnreachable)) == 1

    play(tmp_path, story)


def test_a_restart_says_which_machines_answer_and_which_still_do_not(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].plugged = False
        await life.heard(InstanceUnreachable)
        async with Life(sky, life.home) as second:
            await second.heard(InstanceUnreachable)
            assert not second.of(InstanceReachable)
            assert not second.of(InstanceGone)
        sky.vms[0].plugged = True
        async with Life(sky, life.home) as third:
            await third.heard(InstanceReachable)
            assert not third.of(InstanceUnreachable)

    play(tmp_path, story)


def test_a_fenced_machine_is_gone_when_the_cloud_says_so_and_then_its_runs_are_lost(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 1000, checkpoint=True))
        await life.heard(RunStarted)
        sky.vms[0].plugged = False
        await life.heard(InstanceUnreachable)
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        assert not sky.alive()
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        kinds = [type(event) for event in life.events]
        assert kinds.index(InstanceGone) < kinds.index(RunEnded)

    play(tmp_path, story)


def test_terminating_is_not_terminated_until_the_cloud_no_longer_has_the_machine(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.lingers_s = 1.0
        await life.cloud.terminate("i-1")
        gone = await life.heard(InstanceGone)
        assert sky.calls["down"] == 2
        assert sky.vms[0].ended_at is not None
        assert sky.vms[0].ended_at <= gone.ended_at

    play(tmp_path, story)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.5, 1.0, 4.0, 6.0, 20.0, 34.0, 36.0])
def test_a_machine_given_back_while_it_is_made_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.heard(SiteSynced)
        await life.cloud.launch("i-1", OFFER)
        await asyncio.sleep(after_s)
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        assert not sky.alive()
        await asyncio.sleep(3 * BOOT_S)
        assert not sky.alive()
        assert not life.of(InstanceFailed)

    play(tmp_path, story)


def test_a_machine_that_never_was_is_gone_when_it_is_given_back(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.terminate("i-9")
        gone = await life.heard(InstanceGone)
        assert gone.launched_at == gone.ended_at
        await life.cloud.launch("i-9", OFFER)
        await asyncio.sleep(2 * BOOT_S)
        assert not sky.vms

    play(tmp_path, story)


def test_an_api_server_that_is_down_is_waited_for(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.server_up = False
        await life.cloud.launch("i-1", OFFER)
        await asyncio.sleep(100)
        assert not life.of(InstanceFailed)
        assert life.of(SiteSynced), "what is noted is known without SkyPilot"
        sky.server_up = True
        await life.heard(InstanceReady)
        assert len(sky.vms) == 1

    play(tmp_path, story)


def test_a_request_that_the_api_server_forgot_is_made_again(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        await asyncio.sleep(2)
        for request in sky.requests.values():
            request.done.cancel()
        sky.requests.clear()
        async with Life(sky, life.home) as second:
            await second.heard(InstanceReady)
        assert len(sky.vms) == 1

    play(tmp_path, story)


def test_renewing_puts_the_lease_off_without_asking_skypilot(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await asyncio.sleep(100)
        before = sky.calls_of_skypilot() - sky.calls["status"]
        await life.cloud.renew(["i-1", "i-unknown"])
        await asyncio.sleep(30)
        assert sky.vms[0].lease_until > wall() + 850
        assert sky.calls_of_skypilot() - sky.calls["status"] == before

    play(tmp_path, story)


def test_a_machine_whose_lease_passed_while_we_were_away_is_given_back(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        kept = life.home / "checkpoints" / "a"
        kept.mkdir(parents=True)
        (kept / "step").write_text("1")
        await ready(life)
        await life.cloud.start(run_of("a", 5000, checkpoint=True))
        await life.heard(RunStarted)
        sky.vms[0].lease_until = wall()
        next(iter((sky.root).rglob("a"))).joinpath("step").write_text("9")
        assert not (await life.heard(InstanceGone)).preempted
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        assert (life.home / "checkpoints" / "a" / "step").read_text() == "9"
        assert not sky.alive()

    play(tmp_path, story)


def test_every_machine_has_its_keeper_and_no_gpu_is_taken_by_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await asyncio.sleep(10)
        async with Life(sky, life.home) as second:
            await second.heard(InstanceReady)
            await asyncio.sleep(10)
        assert sky.vms[0].keepers == 1
        await life.cloud.start(run_of("a", 5, 0, 4))
        assert (await life.heard(RunEnded)).exit_code == 0

    play(tmp_path, story)


def test_quiet_machines_are_listed_once_a_minute_in_one_call(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        for number in range(5):
            await life.cloud.launch(f"i-{number}", OFFER)
        for number in range(5):
            await life.heard(InstanceReady, at(f"i-{number}"))
        before = dict(sky.calls)
        await asyncio.sleep(600)
        assert 0 < sky.calls["status"] - before["status"] <= 11
        assert sky.calls["sight"] - before["sight"] <= 5 * 11, "the cloud is asked by each one's id"
        assert all(
            sky.calls[name] == before.get(name, 0)
            for name in sky.calls
            if name not in ("status", "sight", "ssh")
        )

    play(tmp_path, story)


def test_machines_of_other_controllers_are_listed_as_theirs_and_can_be_ended_by_their_names(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        async with Life(sky, life.home / "other", controller="other") as other:
            await other.heard(SiteSynced)
            (orphan,) = await other.cloud.owned()
            assert orphan.id == Naming("starburst", "c").cluster("i-1")
            assert orphan.controller not in ("", "other")
            assert ReapRules("other", others=True).fate(orphan, set(), 1e9) is Fate.LEASED
            (ours,) = await life.cloud.owned()
            assert (ours.id, ours.phase, ours.offer_name) == ("i-1", InstancePhase.READY, OFFER.name)
            assert ReapRules("c", after_s=900.0).fate(ours, {"i-1"}, 0.0) is Fate.CLAIMED
            assert ReapRules("c").fate(ours, set(), 1e9) is Fate.UNCLAIMED
            await other.cloud.terminate(orphan.id)
            await other.heard(InstanceGone)
        assert not sky.alive()

    play(tmp_path, story)


def test_a_machine_of_an_intent_given_up_is_ended_when_it_turns_up_after_all(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].ended_at = wall()
        spec = next(iter(sky.clusters_known.values()))
        await life.heard(InstanceGone)
        await asyncio.sleep(BOOT_S)
        sky.begin(
            "sky.launch", spec.cluster, sky.do_launch(spec)
        )  # a call that was under way when we gave up
        await asyncio.sleep(2 * BOOT_S)
        assert [one.id for one in await life.cloud.owned()] == ["i-1"]
        await life.cloud.terminate("i-1")
        await asyncio.sleep(BOOT_S)
        assert not sky.alive()

    play(tmp_path, story)
