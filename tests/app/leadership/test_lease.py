"""Who leads, leads alone, and who dies is followed in time: rules of the lease in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anyio import move_on_after

from starburst.app.leadership.election import HANG_S
from starburst.app.leadership.lease import TERMS, LeaseTerms, LeaseWatch
from starburst.store.leader import LeaderRecord
from tests.app.leadership.world import Process, world

#: The promise: an hour of seconds is no second late.
TAKEOVER_S = 15.0
#: Of clocks, in seconds per second.
RATES = (0.85, 1.0, 1.2)


def record(
    epoch: int = 1, beat: int = 1, holder: str = "ada", home: str = "", *, renews: bool = True
) -> LeaderRecord:
    return LeaderRecord(holder, "", home, renews, epoch, beat, drain=0, age_s=0.0)


class TestWatch:
    def test_a_new_store_and_a_lead_that_was_given_back_are_free(self) -> None:
        watch = LeaseWatch(TERMS)
        watch.observe(None, 5.0)
        assert watch.may_take(5.0, "", locked=False)
        watch.observe(record(holder=""), 6.0)
        assert watch.may_take(6.0, "", locked=False)

    def test_a_row_has_to_stand_still_for_the_whole_lease(self) -> None:
        watch = LeaseWatch(TERMS)
        watch.observe(record(beat=1), 100.0)
        watch.observe(record(beat=2), 105.0)
        watch.observe(record(beat=2), 110.0)
        assert not watch.may_take(105.0 + TERMS.duration_s, "", locked=True)
        assert watch.may_take(105.1 + TERMS.duration_s, "", locked=False)
        assert watch.renewed

    def test_the_same_lock_of_a_home_shows_at_once_that_its_holder_is_gone(self) -> None:
        watch = LeaseWatch(TERMS)
        watch.observe(record(home="kernel:1:2"), 0.0)
        assert watch.may_take(0.0, "kernel:1:2", locked=True)
        assert not watch.may_take(0.0, "kernel:1:3", locked=True), "another home"
        assert not watch.may_take(0.0, "", locked=True), "a lock that proves nothing"

    def test_one_that_never_renews_is_followed_when_its_home_is_free_and_not_before(self) -> None:
        watch = LeaseWatch(TERMS)
        watch.observe(record(renews=False, home="kernel:1:2"), 0.0)
        assert not watch.may_take(1e9, "", locked=False)
        assert watch.may_take(0.0, "kernel-after-a-restart:1:2", locked=True)


def test_terms_that_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="must hold"):
        LeaseTerms(duration_s=6.0, deadline_s=6.0)
    with pytest.raises(ValueError, match="must hold"):
        LeaseTerms(renew_s=3.0)


@pytest.mark.parametrize("seed", range(40))
def test_never_are_two_certain_whatever_their_clocks_stops_and_networks_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks at rates between .85 and 1.2, calls of up to 3 s each way, stops of up to 40 s, and cuts."""
    with world(seed, monkeypatch, slow_s=3.0 * (seed % 4) / 3) as it:
        for name in "abc":
            Process(it, name, it.draw.choice(RATES))
        for _ in range(80):
            it.go_on(it.now + it.draw.uniform(0, 12))
            leading = [process for process in it.processes if process.election.certain()]
            victim = it.draw.choice(leading * 6 + it.processes)
            what = it.draw.choice(["stop", "cut", "mend", "kill", "nothing"])
            if what == "stop":
                victim.due = it.now + it.draw.uniform(0, 40)
            elif what == "cut":
                it.cut.add(victim.name)
            elif what == "mend":
                it.cut.clear()
            elif what == "kill" or victim.election.lost:
                victim.die()
                it.cut.discard(victim.name)
                Process(it, f"{victim.name}'", it.draw.choice(RATES))
            for lost in [process for process in it.processes if process.election.lost]:
                lost.die()
                Process(it, lost.name, it.draw.choice(RATES))
        assert len(it.taken) > 2, "the lead has changed hands"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_a_leader_that_is_gone_is_followed_in_time(
    seed: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(seed, monkeypatch, slow_s=0.2) as it:
        for name in "ab":
            Process(it, name)
        it.go_on(30 + it.draw.uniform(0, 3))
        first = next(process for process in it.processes if process.election.certain())
        gone_at, before = it.now, len(it.taken)
        if how == "killed":
            first.die()
        elif how == "stopped":
            first.due = it.now + 300
        else:
            it.cut.add(first.name)
        it.go_on(it.now + TAKEOVER_S)
        assert len(it.taken) == before + 1
        at, who = it.taken[-1]
        assert who != first.name
        assert TERMS.duration_s - TERMS.renew_s - 1 < at - gone_at < TAKEOVER_S - 2
        it.cut.clear()
        it.go_on(it.now + 400)
        if how != "killed":
            assert first.election.lost, "it has noticed"
        assert len(it.taken) == before + 1, "and there is no second change"


def test_a_store_that_is_away_for_all_stops_the_leader_and_makes_none_lose_the_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with world(1, monkeypatch) as it:
        one = Process(it, "one")
        it.go_on(1)
        other = Process(it, "other")
        it.go_on(20)
        it.cut = {"one", "other"}
        it.go_on(27)
        assert not one.election.certain()
        it.cut.clear()
        it.go_on(29)
        assert one.election.certain()
        assert not one.election.lost
        assert not other.election.epoch


def test_the_leader_of_a_home_is_followed_at_once_when_its_lock_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(1, monkeypatch) as it:
        first = Process(it, "first", home=tmp_path)
        it.go_on(1)
        second = Process(it, "second", home=tmp_path)
        it.go_on(10)
        assert first.election.certain()
        assert it.row is not None
        assert it.row.home
        first.die()
        first.election._held.close()
        it.go_on(10 + 2 * TERMS.look_s)
        assert second.election.certain()


def test_a_leader_whose_loop_hangs_gives_up_and_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(1, monkeypatch) as it:
        hung = Process(it, "hung")
        it.go_on(1)
        other = Process(it, "other")

        async def looked_once() -> None:
            with move_on_after(0):
                await hung.election.over()

        asyncio.run(looked_once())
        it.go_on(HANG_S)
        assert hung.election.certain()
        it.go_on(HANG_S + TAKEOVER_S)
        assert "hung for 60 s" in hung.election.lost
        assert other.election.certain()


def test_the_row_names_the_lock_of_the_home_only_while_its_leader_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stopped leader still holds the lock: its end proves nothing about the one that leads by then."""
    with world(1, monkeypatch) as it:
        stopped = Process(it, "stopped", home=tmp_path)
        it.go_on(1)
        second = Process(it, "second", home=tmp_path)
        it.go_on(10)
        assert it.row is not None
        assert it.row.home == stopped.election._held.key != ""
        stopped.due = it.now + 300
        it.go_on(it.now + TAKEOVER_S)
        assert second.election.certain()
        assert it.row.home == "", "it leads without the lock"
        stopped.die()
        stopped.election._held.close()
        it.go_on(it.now + 2 * TERMS.renew_s)
        assert it.row.home == second.election._held.key != "", "it has taken the lock that was free"
        third = Process(it, "third", home=tmp_path)
        it.go_on(it.now + 60)
        assert second.election.certain()
        assert not third.election.epoch
