"""A machine is gone when its cloud says so, whatever SkyPilot lists; in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.app.daemon.reaper import ReapRules
from starburst.clouds.sky.access.ports import ClusterState, Presence
from starburst.clouds.sky.machines.liveness import Liveness, liveness_of
from starburst.core.model.events import (
    InstanceGone,
    InstanceReady,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.domain.cloud import InstancePhase
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, SPOT, Life, at, play, ready, reaper_of, run_of

#: Virtual seconds in which everything quiet has been looked at.
QUIET_S = 130.0


def lose_state(sky: FakeSky) -> None:
    sky.lose_state()


def lose_tags(sky: FakeSky) -> None:
    for vm in sky.vms:
        vm.tagged = False
    sky.statuses(refresh=list(sky.clusters_known))  # somebody's `sky status --refresh`


LOSSES = pytest.mark.parametrize("lose", [lose_state, lose_tags])


def begun(sky: FakeSky) -> int:
    return sum(task.begun for vm in sky.vms for task in vm.tasks.values())


@LOSSES
@pytest.mark.parametrize("cloud_up", [True, False])
def test_a_machine_that_skypilot_forgets_keeps_its_jobs_and_is_ended_when_it_is_given_back(
    tmp_path: Path, lose: Callable[[FakeSky], None], cloud_up: bool
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 300))
        await life.heard(RunStarted)
        sky.cloud_up = cloud_up
        lose(sky)
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code, begun(sky)) == (RunEnd.EXITED, 0, 1)
        assert not life.of(InstanceGone)
        assert not life.of(InstanceUnreachable)
        (machine,) = await life.cloud.owned()
        assert (machine.id, machine.phase, machine.offer_name) == ("i-1", InstancePhase.READY, OFFER.name)
        sky.cloud_up = True
        await life.cloud.terminate("i-1")
        gone = await life.heard(InstanceGone)
        (vm,) = sky.vms
        assert vm.ended_at is not None
        assert (gone.launched_at, gone.ended_at) == (vm.made_at, vm.ended_at), "the cloud's own bill"

    play(tmp_path, story)


def test_all_machines_missing_at_once_end_nothing_and_start_nothing_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        for number in (1, 2, 3):
            await ready(life, f"i-{number}", SPOT)
            await life.cloud.start(run_of(f"j{number}", 400, 0, 1, f"i-{number}"))
        launches = sky.calls["launch"]
        sky.lose_state()
        for number in (1, 2, 3):
            assert (await life.heard(RunEnded, lambda end, n=number: end.job_id == f"j{n}")).exit_code == 0
        assert (len(sky.alive()), begun(sky), sky.calls["launch"]) == (3, 3, launches)
        assert sky.calls["end"] == sky.calls["down"] == 0
        assert all(machine.entry.forgotten for machine in life.cloud.machines.values())

    play(tmp_path, story)
    assert capsys.readouterr().out.count("skypilot-forgot-machine") == 3


def test_machines_that_went_with_skypilots_state_are_gone_for_their_cloud_says_so(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life, "i-1", SPOT)
        await ready(life, "i-2")
        await life.cloud.start(run_of("a", 1000))
        sky.lose_state()
        sky.preempt()
        since = wall()
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        assert wall() - since < 30
        for machine, preempted in (("i-1", True), ("i-2", False)):
            gone = await life.heard(InstanceGone, lambda gone, id_=machine: gone.instance_id == id_)
            assert (gone.preempted, gone.ended_at) == (preempted, since)

    play(tmp_path, story)


def test_a_forgotten_machine_whose_cloud_takes_no_order_is_told_to_shut_itself_down(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.lose_state()
        sky.takes_orders = False
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        assert sky.calls["end"] >= 1
        assert not sky.alive(), "it ends when it shuts itself down, as its cloud was told when it came up"

    play(tmp_path, story)


def test_silence_and_no_listing_are_no_end_until_the_switch_must_have_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.app.virtual.LIMIT_S", 10_000.0)

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 5000))
        await life.heard(RunStarted)
        (vm,) = sky.vms
        sky.cloud_up, vm.plugged = False, False
        sky.lose_state()
        since = wall()
        await life.heard(InstanceUnreachable)
        assert wall() - since < 60
        await life.cloud.terminate("i-1")  # its grace is over
        gone = await life.heard(InstanceGone)
        vm.settle(wall())
        assert vm.tasks["a/1/0"].exit is not None
        assert vm.stopped_at is not None
        assert vm.stopped_at <= gone.ended_at
        assert wall() - since > 900

    play(tmp_path, story, lease_s=900.0)


def test_where_the_cloud_cannot_be_asked_skypilots_word_that_it_took_a_machine_down_is_enough(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        assert life.cloud.machines["i-1"].entry.at is None, "these credentials do not see it"
        await life.cloud.terminate("i-1")
        since = wall()
        await life.heard(InstanceGone)
        assert not sky.alive()
        assert wall() - since < 60

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_sees=False)
        async with Life(sky, tmp_path / "home") as life:
            await story(life, sky)

    run(main())


def test_credentials_that_do_not_see_a_machine_prove_nothing(tmp_path: Path) -> None:
    """As those of another account: they were given to the scheduler after the machine came up."""

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 200))
        sky.cloud_sees = False
        sky.lose_state()
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceGone)

    play(tmp_path, story)


@pytest.mark.parametrize("server_up", [True, False], ids=["SkyPilot forgets it", "SkyPilot is away"])
def test_a_machine_that_was_taken_before_its_cloud_described_it_is_preempted_once_its_cloud_answers(
    tmp_path: Path, server_up: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.cloud_up = False
        await ready(life, "i-1", SPOT)
        await life.cloud.start(run_of("a", 1000))
        await life.heard(RunStarted)
        (vm,) = sky.vms
        sky.preempt()
        sky.server_up = server_up
        if server_up:
            assert (await life.heard(InstanceUnreachable)).unsure, "nobody has said that it runs"
        else:
            await asyncio.sleep(60)
        sky.cloud_up = True
        since = wall()
        gone = await life.heard(InstanceGone)
        assert wall() - since < 60
        assert (gone.preempted, gone.launched_at, gone.ended_at) == (True, vm.made_at, vm.ended_at)

    play(tmp_path, story)
    assert "it lives and goes on" not in capsys.readouterr().out


def test_a_machine_that_answers_outlives_what_else_its_cloud_finds_of_its_launch(tmp_path: Path) -> None:
    """It was not described at its login, and its cloud finds only the instance that was given up for it."""

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.vms:
            await asyncio.sleep(0.5)
        (first,) = sky.vms
        sky.vms.append(replace(first, id="second", labels=()))
        first.ended_at, first.made_at = wall(), wall() - 1.0
        sky.cloud_up = False
        await life.heard(InstanceReady)
        sky.lose_state()
        sky.cloud_up = True
        await life.cloud.start(run_of("a", 200))
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceGone)

    play(tmp_path, story)


def test_a_machine_is_attended_to_after_a_restart_though_skypilot_is_dead(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 300))
        await life.heard(RunStarted)
        sky.server_up = False
        sky.vms[0].lease_until = wall() + 100
        async with Life(sky, life.home) as second:
            reaper = reaper_of(second.cloud, "i-1", rules=ReapRules("c"))
            rounds = asyncio.create_task(reaper.rounds(20.0))
            assert ("a", 1) in (await second.heard(SiteSynced)).known
            assert (await second.heard(RunEnded)).exit_code == 0
            rounds.cancel()
            with suppress(asyncio.CancelledError):
                await rounds

    play(tmp_path, story)


def test_a_machine_that_somebody_stops_is_ended_and_its_runs_are_dead_within_a_minute(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 1000))
        await life.heard(RunStarted)
        stopped_at = wall()
        sky.stop(sky.vms[0])
        assert (await life.heard(RunEnded)).end is RunEnd.LOST
        assert wall() - stopped_at < 60
        assert not sky.alive(), "its disk is not left, either"
        assert [one.why for one in life.of(InstanceUnreachable)] == ["it was stopped, and is ended now"]

    play(tmp_path, story)


def test_a_stopped_machine_is_known_by_skypilots_listing_where_the_cloud_cannot_be_asked(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_sees=False, cloud_searches=False)
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            await life.cloud.start(run_of("a", 1000))
            await life.heard(RunStarted)
            sky.stop(sky.vms[0])
            since = wall()
            assert (await life.heard(RunEnded)).end is RunEnd.LOST
            assert wall() - since < 90
            assert not sky.alive()

    run(main())


def test_only_machines_of_ours_are_refreshed_and_the_suspected_ones_first(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_sees=False)
        sky.strange("somebodys")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life, "i-1")
            await ready(life, "i-2")
            names = {life.cloud.machines[id_].cluster for id_ in ("i-1", "i-2")}
            await asyncio.sleep(QUIET_S)
            assert {name for call in sky.refreshed for name in call} == names
            sky.refreshed.clear()
            sky.vms[-1].plugged = False
            while not sky.refreshed:
                await asyncio.sleep(0.5)
            assert [name[-3:] for name in sky.refreshed[0]] == ["i-2"]

    run(main())


def test_a_machine_that_is_cut_off_is_known_to_run_though_skypilots_listing_takes_minutes(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.refresh_s = 400.0
        sky.vms[0].plugged = False
        since = wall()
        await life.heard(InstanceUnreachable)
        assert wall() - since < 60

    play(tmp_path, story)


@pytest.mark.parametrize("ready_again", [True, False])
def test_a_machine_comes_back_to_skypilots_books_when_it_is_listed_again(
    tmp_path: Path, ready_again: bool
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        entry = life.cloud.machines["i-1"].entry
        known = dict(sky.clusters_known)
        sky.lose_state()
        await asyncio.sleep(QUIET_S)
        assert entry.forgotten
        if ready_again:
            async with Life(sky, life.home) as second:
                await second.heard(InstanceReady, at("i-1"))
                assert second.cloud.machines["i-1"].entry.forgotten, "it is noted"
        sky.clusters_known.update(known)
        await asyncio.sleep(QUIET_S)
        assert not entry.forgotten

    play(tmp_path, story)


def test_nothing_is_gone_without_a_word_that_counts() -> None:
    """Every combination of what can be known."""
    words = itertools.product([None, *Presence], [None, *ClusterState], [False, True], [False, True])
    for presence, listed, answers, over in words:
        told = liveness_of(presence, listed, answers=answers, surely_over=over)
        if answers and presence is not Presence.ENDED:
            assert told in (Liveness.LIVES, Liveness.STOPPED)
        if told is Liveness.GONE:
            by_id = presence in (Presence.ENDED, Presence.ABSENT)
            assert by_id or (presence is None and listed is None and over)
        if presence is Presence.RUNNING:
            assert told is Liveness.LIVES
        if listed is None and presence is None and not answers and not over:
            assert told is Liveness.UNKNOWN
