"""Running cloud jobs move between machines when that pays; at any time one copy of each is alive."""

from __future__ import annotations

from typing import Any

import pytest

from sim.world import World
from starburst.core.model.events import InstanceReady, RunEnd, SiteSynced
from starburst.core.scheduler import Scheduler
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Facts, facts
from starburst.core.views.validate import validate
from starburst.domain.job import Job, Site
from starburst.policy.packing.plan import Memory
from starburst.store import codec
from tests.builders import (
    HOUR,
    MINUTE,
    Desk,
    arrival,
    job,
    launches,
    offer,
    returns,
    snapshot,
    starts,
    stops,
    world,
)

BIG, SMALL = offer("big", 4, 3), offer("small", 1, 1)
PERIOD = {"packer": "eva", "pack_period_s": 10 * MINUTE}


def saver(name: str, gpus: int = 1, hours: float = 10, **more: Any) -> Job:
    """A cloud job that saves its progress."""
    return job(name, gpus, hours=hours, checkpoint=True, cloud="only", **more)


def half_empty(stays: Job | None = None, **settings: Any) -> Desk:
    """At 1 h "a" leaves "b" alone on a machine of $3.00/h, where one of $1.00/h would do."""
    desk = Desk(offers=[BIG, SMALL], **{**PERIOD, **settings})
    desk.submit(job("a", 3, cloud="only", hours=1), stays or saver("b"))
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.now = HOUR
    desk.ended("a")
    return desk


def on_its_way(**settings: Any) -> Desk:
    """ "b" has been told to stop: the small machine is up."""
    desk = half_empty(**settings)
    desk.now += MINUTE
    desk.ready("i-000002")
    return desk


def two_halves(**settings: Any) -> Desk:
    """At 1 h "b" and "d" each have a quarter of a machine that is empty otherwise."""
    desk = Desk(**{"offers": [BIG], **PERIOD, **settings})
    for long, short in (("b", "a"), ("d", "c")):
        desk.submit(saver(long, 1), job(short, 3, cloud="only", hours=1))
        desk.ready(desk.nodes_of(long)[0])
        desk.started(long, short)
    desk.now = HOUR
    desk.tell(desk.end_of("a"), desk.end_of("c"))
    return desk


def test_a_job_that_is_left_alone_on_a_large_machine_moves_to_a_small_one() -> None:
    desk = half_empty()
    assert launches(desk.actions) == ["small"]
    assert desk.phase("b") == "running", "it runs on until its machine is up"
    desk.now += MINUTE
    assert stops(desk.ready("i-000002")) == ["b"]
    assert starts(desk.stopped("b")) == ["b"]
    assert returns(desk.actions) == ["i-000001"]
    assert (desk.nodes_of("b"), desk["b"].attempt, desk["b"].losses, desk["b"].moves) == (
        ["i-000002"],
        2,
        0,
        1,
    )
    assert desk.why("b", "moving") == (
        "moves from i-000001 to i-000002: less rent by about $18.00 until the jobs there are done ($2.00/h "
        "less when they have moved), at a cost of $0.12"
    ), "of that $0.05 for the three minutes in which the small machine is thought to come up"
    assert desk.why("i-000002", "launched") == "rented small at $1.00/h for b"


@pytest.mark.parametrize(("packer", "dollars"), [("eva", 3), ("stratus", 3), ("optimal", 90)])
def test_two_half_empty_machines_become_one(packer: str, dollars: float) -> None:
    desk = two_halves(packer=packer, offers=[offer("big", 4, dollars, cpus=0)])
    if packer == "stratus":  # it clears what was little used for half an hour
        assert not desk.actions
        desk.wait(30 * MINUTE)
    (mover,) = stops(desk.actions)
    assert not launches(desk.actions)
    assert starts(desk.stopped(mover)) == [mover]
    assert len(returns(desk.actions)) == 1
    assert desk.nodes_of("b") == desk.nodes_of("d")


@pytest.mark.parametrize(
    "settings", [{"pack_period_s": 0.0}, {"packer": "none"}, {"move_min_run_s": 20 * HOUR}]
)
def test_without_a_period_or_a_packer_nothing_moves(settings: dict[str, Any]) -> None:
    desk = half_empty(**settings)
    assert not desk.wait(2 * HOUR)
    assert not desk["b"].moving


@pytest.mark.parametrize("stays", [job("b", hours=10, cloud="only"), saver("b", hours=1.02)])
def test_who_cannot_save_its_work_or_is_nearly_done_stays(stays: Job) -> None:
    desk = half_empty(stays)
    assert not desk.actions
    assert not desk.wait(MINUTE)


def test_nothing_wakes_the_scheduler_while_nothing_may_move() -> None:
    assert half_empty(job("b", hours=10, cloud="only")).scheduler.next_wakeup() == float("inf")
    desk = Desk(offers=[BIG], **PERIOD)
    desk.submit(saver("b"))
    desk.offload("b")
    assert desk.scheduler.next_wakeup() == 10 * MINUTE
    desk.wait(10 * MINUTE)
    assert desk.scheduler.next_wakeup() == 20 * MINUTE
    desk.ended("b")
    assert desk.scheduler.next_wakeup() == float("inf")


def test_a_machine_with_one_job_that_may_not_move_stays_as_it_is() -> None:
    desk = Desk(offers=[BIG, SMALL], **PERIOD)
    desk.submit(job("a", 2, cloud="only", hours=1), saver("b"), job("x", cloud="only", hours=20))
    desk.ready("i-000001")
    desk.started("a", "b", "x")
    desk.now = HOUR
    assert not desk.ended("a")


def test_such_a_machine_takes_in_who_would_be_alone_elsewhere() -> None:
    desk = Desk(offers=[BIG, SMALL], **PERIOD)
    desk.submit(job("a", 3, cloud="only", hours=1), saver("b"))
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.submit(job("x", 3, cloud="only", hours=20))
    desk.ready("i-000002")
    desk.started("x")
    desk.now = HOUR
    assert stops(desk.ended("a")) == ["b"]
    assert starts(desk.stopped("b")) == ["b"]
    assert desk.nodes_of("b") == ["i-000002"]


def test_a_job_that_has_just_started_is_left_alone_first() -> None:
    desk = on_its_way()
    desk.stopped("b")
    desk.gone("i-000001")
    desk.started("b")
    assert desk.scheduler.next_wakeup() == desk.now + 10 * MINUTE


def test_what_is_held_for_a_mover_nobody_else_gets() -> None:
    desk = two_halves()
    (mover,) = stops(desk.actions)
    assert launches(desk.submit(job("e", 3, cloud="only", hours=0.1))) == ["big"]
    assert starts(desk.stopped(mover)) == [mover]


def test_nobody_joins_a_machine_that_is_about_to_be_left() -> None:
    desk = half_empty()
    assert launches(desk.submit(job("e", 1, cloud="only", hours=0.1))) == ["small"]


def test_if_its_machine_does_not_come_it_stays_where_it_is() -> None:
    desk = half_empty()
    assert not desk.no_launch("i-000002")
    assert (desk.phase("b"), desk["b"].moving, desk.nodes_of("b")) == ("running", (), ["i-000001"])
    assert desk.why("b", "unmoved") == "does not move after all: i-000002 could not be rented"


def test_an_unreachable_target_is_given_up() -> None:
    desk = half_empty()
    assert returns(desk.cut_off("i-000002")) == ["i-000002"]
    assert desk.phase("b") == "running"


def test_a_job_that_nobody_gets_through_to_does_not_move() -> None:
    desk = half_empty()
    assert returns(desk.cut_off("i-000001")) == ["i-000002"]
    assert not desk["b"].moving


def test_if_the_target_is_lost_when_it_has_been_stopped_it_leaves_anew_and_that_is_no_loss() -> None:
    desk = on_its_way()
    assert not desk.gone("i-000002", preempted=True)
    assert launches(desk.stopped("b")) == ["small"]
    assert desk["b"].losses == 0
    assert "stopped to move, and what it was to move to is lost" in desk.why("b", "offloaded")


def test_a_source_preempted_on_the_way_is_the_end_it_was_told_to_make() -> None:
    desk = on_its_way()
    assert starts(desk.gone("i-000001", preempted=True)) == ["b"]
    assert (desk.nodes_of("b"), desk["b"].losses) == (["i-000002"], 0)


def test_a_source_preempted_before_that_loses_the_run_and_releases_the_target() -> None:
    desk = half_empty()
    actions = desk.gone("i-000001", preempted=True)
    assert returns(actions) == ["i-000002"]
    assert launches(actions) == ["small"]


def test_who_is_cancelled_before_or_during_a_move_leaves_nothing_behind() -> None:
    desk = half_empty()
    assert returns(desk.cancel("b")) == ["i-000002"]
    assert returns(desk.stopped("b")) == ["i-000001"]
    desk = on_its_way()
    assert returns(desk.cancel("b")) == ["i-000002"]
    assert returns(desk.stopped("b")) == ["i-000001"]
    assert desk.phase("b") == "cancelled"


def test_who_is_done_before_it_moves_needs_no_other_machine() -> None:
    for desk in (half_empty(), on_its_way()):
        assert returns(desk.ended("b")) == ["i-000002", "i-000001"]
        assert desk.phase("b") == "succeeded"


def test_a_run_that_is_lost_before_it_moves_counts_as_lost() -> None:
    desk = half_empty()
    desk.lost("b")
    assert (desk["b"].losses, desk["b"].moving) == (1, ())


def away(**settings: Any) -> Desk:
    """ "b" may come home: the cluster has a node, which "busy" has for now."""
    desk = Desk(
        1, offers=[BIG, SMALL], **{**PERIOD, "waiting": "no-wait", "returns": "if-it-pays", **settings}
    )
    desk.submit(job("busy"), job("a", 3, hours=1), job("b", hours=10, checkpoint=True))
    desk.started("busy")
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.now = HOUR
    return desk


def test_coming_home_goes_before_moving() -> None:
    desk = away(t_max_s=HOUR + MINUTE)
    assert launches(desk.ended("a")) == ["small"]
    desk.ended("busy")
    assert stops(desk.wait(MINUTE)) == ["b"]
    assert (desk["b"].stop_why, desk["b"].moving) == ("return", ())
    assert desk.why("i-000002", "terminating")


def test_who_waits_for_room_to_come_home_does_not_move() -> None:
    desk = away(t_max_s=MINUTE)
    desk.wait(0)
    assert not desk.ended("a")


def test_a_move_does_not_put_off_the_look_at_coming_home() -> None:
    desk = away(t_max_s=2 * HOUR)
    desk.ended("a")
    desk.now += MINUTE
    desk.ready("i-000002")
    desk.stopped("b")
    desk.started("b")
    assert desk["b"].look_at == 2 * HOUR


def test_a_gang_on_several_machines_keeps_them_to_itself_and_stays() -> None:
    desk = Desk(offers=[BIG, SMALL], **PERIOD)
    desk.submit(saver("g", gang=(4, 4)), saver("a", 1))
    assert len(desk.instances) == 2
    desk.offload("g")
    desk.offload("a")
    before = desk.nodes_of("g")
    desk.wait(4 * HOUR)
    assert desk.nodes_of("g") == before
    assert not set(before) & set(desk.nodes_of("a"))


def test_each_pays_for_what_it_held_of_both_machines() -> None:
    desk = on_its_way()
    desk.now += MINUTE
    desk.stopped("b")
    desk.gone("i-000001")
    desk.started("b")
    desk.now = 10 * HOUR
    desk.ended("b")
    desk.gone("i-000002")
    whole = round(3e6 * (HOUR + 2 * MINUTE) / HOUR) + round(1e6 * (9 * HOUR - MINUTE) / HOUR)
    assert desk["a"].cloud_micro_usd + desk["b"].cloud_micro_usd == whole
    assert desk["b"].open_bills == 0


def test_what_ran_before_the_move_still_counts_as_run() -> None:
    desk = on_its_way()
    desk.stopped("b")
    desk.started("b")
    desk.now += 9 * HOUR
    desk.ended("b")
    assert desk.log("b", "succeeded")[0].numbers["runtime_s"] == 10 * HOUR + MINUTE


def test_the_budget_is_charged_with_the_delay_of_a_move() -> None:
    moved, not_moved = on_its_way(budget_mode="calibrated"), half_empty(budget_mode="calibrated")
    not_moved.now += MINUTE
    not_moved.lost("b")
    moved.stopped("b")
    before, after = (desk.scheduler.state.meter.account.spent_percent for desk in (not_moved, moved))
    assert after > before


def said(desk: Desk) -> str:
    """What a user is told of "b"."""
    return explain(desk.scheduler.state, desk["b"], lambda at: f"{at / HOUR:g}h").sentence


def test_a_user_is_told_of_a_move() -> None:
    assert said(half_empty()).endswith("; moves to i-000002 (small) as soon as all of that is up")
    desk = on_its_way()
    assert said(desk) == "is being stopped on i-000001: it moves to i-000002; it has 30 s to save its work"
    desk.gone("i-000002")
    assert "what it was to move to is lost" in said(desk)


def reborn(desk: Desk) -> Scheduler:
    """The scheduler after a crash, from what the store gives back."""
    kept = snapshot(desk.scheduler)
    kept.facts.memory = codec.decode(Facts, codec.encode(facts(desk.scheduler.state))).memory
    again = restore(desk.scheduler.state.settings, kept)
    validate(again.state)
    return again


def test_a_restart_at_any_stage_goes_on_with_the_move() -> None:
    desk = half_empty()
    again = reborn(desk)
    runs, machines = frozenset({("b", 1)}), frozenset({"i-000001", "i-000002"})
    again.handle(SiteSynced(Site.CLOUD, runs, machines), desk.now)
    assert stops(again.handle(InstanceReady("i-000002", desk.now), desk.now)) == ["b"]
    desk = on_its_way()
    again = reborn(desk)
    again.handle(SiteSynced(Site.CLOUD, runs, machines), desk.now)
    assert starts(again.handle(desk.end_of("b", RunEnd.STOPPED), desk.now)) == ["b"]
    validate(again.state)


def test_after_a_restart_nobody_moves_to_a_machine_that_does_not_exist() -> None:
    again = reborn(half_empty())
    again.handle(SiteSynced(Site.CLOUD, frozenset({("b", 1)}), frozenset({"i-000001"})), HOUR + 1)
    assert (again.state.jobs["b"].phase.value, again.state.jobs["b"].moving) == ("running", ())
    again = reborn(on_its_way())
    actions = again.handle(SiteSynced(Site.CLOUD, frozenset(), frozenset({"i-000001"})), 2 * HOUR)
    assert launches(actions) == ["small"]
    assert not starts(actions)
    validate(again.state)


def test_a_restart_remembers_when_the_packer_was_last_asked_and_what_it_said() -> None:
    desk = half_empty()
    again = reborn(desk)
    assert again.state.next_round == desk.scheduler.state.next_round == desk.now + 10 * MINUTE
    assert again.state.fleet.memory == desk.scheduler.state.fleet.memory != Memory()


def simulated(**settings: Any) -> tuple[list[Any], World]:
    """Forty jobs of mixed lengths, all in the cloud."""
    log: list[Any] = []
    told = {"waiting": "no-wait", "returns": "never", "packer": "eva", **settings}
    it = world(offers=[BIG, SMALL], on_step=lambda now, changes: log.extend(changes.decisions), **told)
    for n in range(40):
        hours = (0.5, 1, 3, 8)[n % 4]
        item = saver(f"j{n}", 1 + n % 3, hours)
        it.submit([arrival(item, at=7 * MINUTE * (n // 4), takes=hours * HOUR)])
    it.run()
    return log, it


def test_the_same_jobs_move_in_the_same_way_each_time_and_it_saves_rent() -> None:
    log, moved = simulated(pack_period_s=5 * MINUTE)
    assert log == simulated(pack_period_s=5 * MINUTE)[0]
    kinds = [decision.kind for decision in log]
    assert kinds.count("moving") > 3
    assert kinds.count("succeeded") == 40
    assert not {"lost", "failed", "unmoved"} & set(kinds)
    assert moved.scheduler.state.fleet.settled < simulated()[1].scheduler.state.fleet.settled
