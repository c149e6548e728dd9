"""What may be spent: who leaves, who waits for money, what ends when it is spent, what a machine may cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from starburst.core.model.actions import StopRun
from starburst.core.model.events import InstanceReady, JobSubmitted, SiteSynced
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.domain.job import Phase, Site
from starburst.domain.money import Money
from starburst.policy.caps import Cap, named_twice
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, returns, snapshot, starts, stops
from tests.core.capped import DAY, MACHINE, cap, capped, cloud, reserved, spent, stands
from tests.core.test_moving import half_empty, saver

# --- who leaves ------------------------------------------------------------------------------------------


def test_who_leaves_has_its_expected_cost_set_aside_in_the_same_step() -> None:
    desk = capped(cap(30))
    assert launches(desk.submit(cloud("a"))) == ["m"]
    assert (spent(desk), reserved(desk)) == (0, 11)  # an hour, and a tenth to come up


def test_who_would_pass_the_cap_waits_with_a_reason_until_the_window_ends() -> None:
    desk = capped(cap(20))
    assert launches(desk.submit(cloud("a"), cloud("b"))) == ["m"]
    assert (desk.phase("b"), desk["b"].deadline) == ("queued", DAY)
    assert desk.why("b", "capped") == (
        "stays in the queue: it would leave for the cloud, but of the $20.00 per day of all jobs $9.00 was "
        "left, and it may cost up to $11.00 by the end of that day; the next day begins at "
        "1970-01-02 00:00 UTC"
    )
    assert explain(desk.scheduler.state, desk["b"], lambda at: f"{at:.0f}").sentence == (
        "waits for a machine in the cloud; it should leave for the cloud, but of the $20.00 per day of "
        "all jobs $9.00 was left, and it may cost up to $11.00 by the end of that day; the next day "
        "begins at 1970-01-02 00:00 UTC; would then cost about $10.00 on m"
    )


def test_a_cheaper_one_behind_it_may_leave() -> None:
    desk = capped(cap(20))
    desk.submit(cloud("a"), cloud("b"), cloud("c", hours=0.5))
    assert [desk.phase(name) for name in "abc"] == ["offloading", "queued", "offloading"]


def test_only_what_falls_into_the_window_counts() -> None:
    desk = capped(cap(3))
    desk.now = DAY - 12 * MINUTE
    assert launches(desk.submit(cloud("a"))) == ["m"]
    assert reserved(desk) == 2


def test_it_leaves_when_the_next_window_begins() -> None:
    desk = capped(cap(20))
    desk.submit(cloud("a"), cloud("b"))
    desk.offload("a")
    desk.now = HOUR
    desk.ended("a")
    desk.gone("i-000001")
    desk.submit(cloud("c", hours=9))
    assert launches(desk.wait(DAY)) == ["m"]


def test_it_leaves_as_soon_as_money_is_released() -> None:
    """a was believed to take an hour and takes a minute."""
    desk = capped(cap(12))
    desk.submit(cloud("a"), cloud("b"))
    desk.offload("a")
    desk.now = MINUTE
    assert launches(desk.ended("a")) == ["m"]
    assert desk.phase("b") == "offloading"


def test_a_launch_that_came_to_nothing_releases_its_money() -> None:
    """a may not have the other machine; b may, and then there is nothing left for a."""
    other = offer("other", 4, 10, ready_s=6 * MINUTE)
    desk = capped(cap(12), offers=[MACHINE, other])
    desk.submit(cloud("a"), cloud("b"))
    assert launches(desk.no_launch("i-000001")) == ["other"]
    assert (spent(desk), reserved(desk)) == (0, 11)


def test_nobody_is_told_twice_of_one_window() -> None:
    desk = capped(cap(12))
    desk.submit(cloud("a"), *(cloud(f"b{n}") for n in range(3)))
    desk.offload("a")
    desk.tell(JobSubmitted(cloud("c")))
    desk.wait(HOUR)
    assert len(desk.log("b0", "capped")) == 1


def test_caps_are_for_a_queue_or_a_user_or_both_and_all_of_them_hold() -> None:
    desk = capped(cap(100), cap(12, queue="q"), cap(12, user="ada"), cap(5, "hour", queue="q", user="ada"))
    desk.submit(cloud("a", queue="q"), cloud("b", queue="q"), cloud("c", user="ada"))
    assert [desk.phase(name) for name in "abc"] == ["offloading", "queued", "offloading"]
    desk.submit(cloud("d", user="ada", queue="q"), cloud("e", user="bob"))
    assert "the $12.00 per day of queue q" in desk.why("d", "capped")
    assert desk.phase("e") == "offloading"
    assert reserved(desk, "cap/day/user=ada") == 11


def test_a_job_that_may_wait_for_the_cluster_does_and_starts_there_when_there_is_room() -> None:
    desk = Desk(4, offers=[MACHINE], caps=(cap(5),))
    desk.submit(job("busy", 4))
    desk.started("busy")
    desk.submit(job("a", 4, hours=1))
    assert launches(desk.wait(HOUR)) == []
    assert "was left" in desk.why("a", "capped")
    assert starts(desk.ended("busy")) == ["a"]


def test_with_no_price_known_nothing_can_be_set_aside() -> None:
    desk = capped(cap(5), offers=[offer("dark", 4, None)])
    assert launches(desk.submit(cloud("a"))) == []
    assert "it would cost an unknown sum" in desk.why("a", "capped")


def test_an_unknown_price_counts_as_the_dearest_known_one() -> None:
    desk = capped(cap(90), offers=[offer("dark", 4, None), offer("known", 8, 80, ready_s=0.1)])
    desk.submit(cloud("a", hours=1))
    assert reserved(desk) >= 80


def test_a_cap_of_nothing_is_no_cloud() -> None:
    desk = capped(cap(0))
    assert launches(desk.submit(cloud("a"))) == []
    assert not desk.log("cap/day")


def test_a_phase_that_is_not_the_queue_is_not_kept_by_a_cap() -> None:
    desk = capped(cap(5))
    desk.submit(cloud("a"))
    desk.cancel("a")
    assert desk["a"].phase is Phase.CANCELLED
    desk.wait(DAY)
    assert not desk.instances


def test_caps_on_the_same_spending_are_found() -> None:
    assert named_twice([cap(1), cap(1, "hour"), cap(1, user="a")]) is None
    assert named_twice([cap(1, user="a"), cap(2, user="a", then="finish")]) == "cap/day/user=a"


# --- warnings and ends ----------------------------------------------------------------------------------


def test_people_are_warned_once_a_window_exactly_when_so_much_is_spent() -> None:
    desk = capped(cap(10, warn_at=0.5))
    desk.submit(cloud("a", hours=0.9))
    desk.offload("a")
    desk.wait(0.9 * HOUR)
    (warned,) = desk.log("cap/day", "cap-warned")
    assert warned.at == pytest.approx(0.5 * HOUR, abs=0.01)
    assert warned.reason == "$5.00 is spent of the $10.00 per day of all jobs"


def overrun(then: str, *, checkpoint: bool = False, **settings: Any) -> Desk:
    """a was believed to take half an hour, and $10 a day last for one."""
    desk = capped(cap(10, then=then), **settings)
    desk.submit(cloud("a", hours=0.5, checkpoint=checkpoint))
    desk.offload("a")
    return desk


def test_stop_tells_runs_to_end_exactly_when_the_cap_is_reached() -> None:
    desk = overrun("stop")
    assert not desk.wait(HOUR - 1)
    assert desk.wait(1.01) == [StopRun("a", 1, Site.CLOUD, 30.0)]
    assert desk.log("cap/day", "cap-reached")[0].at == pytest.approx(HOUR, abs=0.01)
    assert desk.why("a", "stopping") == (
        "told to stop, has 30 s to save its work: the $10.00 per day of all jobs is spent"
    )
    assert "what may be spent on it is spent" in explain(desk.scheduler.state, desk["a"], str).sentence
    desk.now += 30
    assert returns(desk.stopped("a")) == ["i-000001"]
    assert (desk.phase("a"), desk["a"].deadline, desk["a"].losses) == ("queued", DAY, 0)


def test_who_was_stopped_goes_on_in_the_next_window_with_what_it_saved() -> None:
    desk = overrun("stop", checkpoint=True)
    desk.wait(HOUR + 1)
    desk.stopped("a")
    desk.gone("i-000001")
    assert launches(desk.wait(DAY - HOUR)) == ["m"]
    assert desk["a"].saved_s == pytest.approx(HOUR, abs=2)
    assert (desk.phase("a"), len(desk.log("cap/day", "cap-reached"))) == ("offloading", 1)


def test_return_fetches_who_loses_nothing_by_it_and_lets_the_others_end() -> None:
    assert stops(overrun("return", checkpoint=True).wait(HOUR + 1)) == ["a"]
    assert stops(overrun("return").wait(HOUR + 1)) == []


def test_finish_lets_all_end_and_nobody_leave() -> None:
    desk = overrun("finish", checkpoint=True)
    assert stops(desk.wait(2 * HOUR)) == []
    assert launches(desk.submit(cloud("b", hours=0.01))) == []
    assert desk.log("cap/day", "cap-reached")[0].reason == (
        "$10.00 is spent of the $10.00 per day of all jobs: running jobs may end, and nothing more is rented"
    )


def test_a_stopped_job_that_may_use_the_cluster_runs_there_as_soon_as_there_is_room() -> None:
    desk = Desk(4, offers=[MACHINE], caps=(cap(10),))
    desk.submit(job("busy", 4))
    desk.started("busy")
    desk.submit(job("a", 4, hours=0.5))
    desk.wait(HOUR)
    desk.offload("a")
    desk.wait(HOUR + 1)
    desk.stopped("a")
    assert starts(desk.ended("busy")) == ["a"]


def test_machines_that_still_come_up_are_given_back_too() -> None:
    desk = capped(cap(10))
    desk.submit(cloud("a", hours=0.5), cloud("b", hours=0.05))
    desk.offload("a")
    assert desk.phase("b") == "offloading"
    done = desk.wait(0.51 * HOUR)
    assert returns(done) == ["i-000002"]
    assert desk["b"].deadline == DAY


@pytest.mark.parametrize("then", ["stop", "return"])
def test_a_machine_that_costs_nothing_is_no_caps_matter(then: str) -> None:
    desk = capped(cap(5, then=then), offers=(MACHINE, offer("free", 2, 0, ready_s=MINUTE)))
    desk.submit(cloud("paid", hours=0.1))
    desk.offload("paid")
    desk.wait(0.5 * HOUR + 1)
    assert (desk.phase("paid"), stands(desk).is_reached) == (
        "stopping" if then == "stop" else "running",
        True,
    )
    assert launches(desk.submit(job("a", 2, cloud="only", checkpoint=True))) == ["free"]
    assert desk.wait(HOUR / 100) == []
    desk.offload("a")
    desk.wait(HOUR)
    assert desk.phase("a") == "running"


def test_only_the_jobs_of_the_user_whose_cap_is_reached_leave_a_shared_machine() -> None:
    desk = capped(cap(12, user="ada"), packer="eva")
    ada = job("a", 2, hours=1, cloud="only", user="ada")
    bob = job("b", 2, hours=9, cloud="only", user="bob")
    desk.submit(ada, bob)
    desk.ready("i-000001")
    desk.started("a", "b")
    assert stops(desk.wait(2.4 * HOUR - 1)) == []
    assert stops(desk.wait(2)) == ["a"]
    assert returns(desk.stopped("a")) == []
    assert desk.phase("b") == "running"


@pytest.mark.parametrize(("limit", "moves"), [(1000.0, True), (11.0, False)])
def test_nobody_moves_while_there_is_no_money_for_it(limit: float, moves: bool) -> None:
    """Left alone on the machine bob's job comes to $28 by estimates; moved it would come to less, one day."""
    caps = (cap(1000.0, "month"), cap(limit, user="bob", then="finish"))
    desk = half_empty(saver("b", user="bob"), caps=caps)
    assert bool(desk.log("b", "moving")) is moves


# --- restarts -------------------------------------------------------------------------------------------


def test_all_of_it_survives_a_restart() -> None:
    desk = capped(cap(25, warn_at=0.1))
    desk.submit(cloud("a"), cloud("gone"), cloud("b"))
    desk.offload("a")
    desk.offload("gone")
    desk.wait(0.5 * HOUR)
    desk.ended("gone")
    desk.gone("i-000002")
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert stands(again) == stands(desk)
    assert again.state.capped == desk.scheduler.state.capped
    assert again.next_wakeup() == desk.scheduler.next_wakeup()
    validate(again.state)


@pytest.mark.parametrize("caps", [(), (cap(40),)])
def test_who_waits_for_a_cap_that_was_raised_or_removed_leaves_after_a_restart(
    caps: tuple[Cap, ...],
) -> None:
    desk = capped(cap(20))
    desk.submit(cloud("a"), cloud("b"))
    again = restore(replace(desk.scheduler.state.settings, caps=caps), snapshot(desk.scheduler))
    again.rest()
    assert launches(again.handle(SiteSynced(Site.CLUSTER, frozenset()), HOUR / 2)) == ["m"]
    assert not again.state.capped
    validate(again.state)


def test_a_cap_holds_before_the_cluster_has_synced() -> None:
    desk = overrun("stop")
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    again.rest()
    assert again.next_wakeup() == pytest.approx(0.8 * HOUR, abs=1)
    again.handle(SiteSynced(Site.CLOUD, frozenset({("a", 1)}), frozenset({"i-000001"})), 0.8 * HOUR)
    assert again.next_wakeup() == pytest.approx(HOUR, abs=1)
    assert stops(again.handle((), HOUR)) == ["a"]


# --- the price of one machine ---------------------------------------------------------------------------


def test_no_machine_above_the_ceiling_or_of_unknown_price_is_rented() -> None:
    dear, dark = offer("dear", 8, 20), offer("dark", 8, None)
    desk = capped(offers=[MACHINE, dear, dark], max_rate=Money.of(15))
    assert launches(desk.submit(cloud("a"), job("b", 8, cloud="only"))) == ["m"]
    assert desk.why("b", "no-offer").endswith(
        "no offer that holds it is known to cost $15.00/h or less (cloud.max_usd_per_hour)"
    )


def test_a_machine_that_turns_out_to_cost_more_than_one_may_is_given_back() -> None:
    desk = capped(max_rate=Money.of(11))
    desk.submit(cloud("a"))
    assert returns(desk.tell(InstanceReady("i-000001", 0.0, Money.of(12)))) == ["i-000001"]
    assert "it costs $12.00/h, more than cloud.max_usd_per_hour, $11.00" in desk.why(
        "i-000001", "launch-failed"
    )
    assert launches(desk.wait(300)) == ["m"], "after the offer's pause"


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_what_runs_on_a_machine_that_is_known_too_late_to_cost_more_than_one_may_goes_on_elsewhere(
    phase: str,
) -> None:
    """SkyPilot did not answer when the machine came up."""
    other = offer("other", 4, 10.5)
    desk = capped(offers=[MACHINE, other], max_rate=Money.of(11))
    desk.submit(cloud("a", grace_s=120.0))
    desk.ready("i-000001")
    if phase == "running":
        desk.started("a")
    desk.wait(600)
    told = desk.tell(InstanceReady("i-000001", 0.0, Money.of(40)))
    assert [(action.job_id, action.grace_s) for action in told if isinstance(action, StopRun)] == [
        ("a", 120.0)
    ]
    assert "is too dear" in explain(desk.scheduler.state, desk["a"], str).sentence
    assert "it costs $40.00/h, more than cloud.max_usd_per_hour, $11.00" in desk.why("i-000001", "unfit")
    assert desk.tell(InstanceReady("i-000001", 0.0, Money.of(40))) == [], "it is told again"
    told = desk.stopped("a")
    assert (returns(told), launches(told)) == (["i-000001"], ["other"])
    assert desk["a"].losses == 0
    desk.gone("i-000001")
    assert "cost too much" in desk.why("i-000001", "gone")


def test_a_ceiling_that_was_lowered_or_a_machine_below_it_stops_nobody() -> None:
    desk = capped(max_rate=Money.of(11))
    desk.submit(cloud("a"))
    desk.offload("a")
    assert desk.tell(InstanceReady("i-000001", 0.0, Money.of("10.9"))) == []
    lower = replace(desk.scheduler.state.settings, max_rate=Money.of(5))
    again = restore(lower, snapshot(desk.scheduler))
    assert again.handle(InstanceReady("i-000001", 0.0, Money.of("10.9")), desk.now) == []
    assert again.state.jobs["a"].phase is Phase.RUNNING


def test_nobody_joins_a_machine_that_is_known_too_late_to_cost_more_than_one_may() -> None:
    desk = Desk(offers=[offer("m", 4, 10)], max_rate=Money.of(11), packer="eva", pack_period_s=0.0)
    desk.submit(job("a", 2, cloud="only", hours=9))
    desk.offload("a")
    desk.tell(InstanceReady("i-000001", 0.0, Money.of(40)))
    desk.submit(job("b", 2, cloud="only", hours=9))
    assert (desk.nodes_of("b"), desk.phase("b")) == ([], "queued"), "its offer is paused"


def test_who_pauses_on_a_machine_that_is_too_dear_leaves_it_at_once() -> None:
    desk = capped(max_rate=Money.of(11))
    desk.submit(cloud("a", retries=3))
    desk.offload("a")
    desk.wait(MINUTE)
    desk.ended("a", code=1)
    assert desk.phase("a") == "offloading"
    assert returns(desk.tell(InstanceReady("i-000001", 0.0, Money.of(40)))) == ["i-000001"]
    assert desk.phase("a") == "queued"
