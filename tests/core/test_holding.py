"""Held: no deadline runs, no room is taken, and nobody but who releases it changes that."""

from __future__ import annotations

import pytest

from starburst.core.model.actions import StopRun
from starburst.core.model.events import (
    CancelRequested,
    HoldRequested,
    JobSubmitted,
    ReleaseRequested,
    RunEnd,
)
from starburst.core.views.explain import explain, foretell
from starburst.core.views.restoring import restore
from starburst.domain.job import Site
from tests.builders import HOUR, MINUTE, Desk, job, launches, returns, snapshot, starts


def clock(at: float) -> str:
    return f"{at:g}"


def sentence(desk: Desk, name: str) -> str:
    return explain(desk.scheduler.state, desk[name], clock).sentence


def test_submitted_held_it_neither_starts_nor_leaves() -> None:
    desk = Desk(4)
    desk.submit(job("a", hold=True), job("cpu", 0, hold=True), job("only", cloud="only", hold=True))
    assert not desk.wait(100 * HOUR)
    assert [desk.phase(name) for name in ("a", "cpu", "only")] == ["held"] * 3
    assert desk.free() == 4
    assert starts(desk.release("a")) == ["a"]
    assert launches(desk.release("only")) == ["small"]


def test_its_wait_begins_when_it_is_released() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a", hold=True))
    desk.wait(5 * HOUR)
    desk.release("a")
    assert desk["a"].deadline == 6 * HOUR
    assert desk.why("a", "released") == "released after 5 h: its wait begins now"
    assert launches(desk.wait(HOUR)) == ["small"]


def test_held_in_the_queue_it_is_passed_and_its_deadline_stands_still() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a"), job("b"))
    desk.hold("a")
    assert (desk.phase("a"), desk["a"].deadline) == ("held", float("inf"))
    assert starts(desk.ended("busy")) == ["b"]
    assert not desk.wait(9 * HOUR)
    desk.ended("b")
    assert starts(desk.release("a")) == ["a"]


def test_held_while_it_waits_for_an_offer_it_is_not_offered_one() -> None:
    desk = Desk(offers=[])
    desk.submit(job("a", cloud="only"), job("b"))
    desk.hold("a", "b")
    assert desk.phase("a") == desk.phase("b") == "held"
    desk.release("a")
    assert desk.phase("a") == "queued"


@pytest.mark.parametrize("running", [False, True])
def test_what_has_a_place_is_not_held_and_the_log_says_so(running: bool) -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    if running:
        desk.started("a")
    assert not desk.hold("a")
    phase = "running" if running else "starting"
    assert desk.phase("a") == phase
    assert desk.why("a", "not-held") == f"could not be held any more: it was {phase} when that was asked for"


def test_holding_twice_and_releasing_what_is_not_held_change_nothing() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a"))
    desk.release("a", "nobody")
    assert desk["a"].deadline == HOUR
    desk.hold("a", "a")
    desk.wait(MINUTE)
    desk.hold("a")
    assert len(desk.log("a", "held")) == 1


def test_of_all_that_is_asked_at_one_instant_the_last_counts() -> None:
    desk = Desk(1)
    desk.tell(JobSubmitted(job("a")), HoldRequested("a"), ReleaseRequested("a"), HoldRequested("a"))
    assert desk.phase("a") == "held"
    desk.tell(ReleaseRequested("a"), CancelRequested("a"))
    assert desk.phase("a") == "cancelled"


def test_it_can_be_cancelled() -> None:
    desk = Desk(1)
    desk.submit(job("a", hold=True))
    assert not desk.cancel("a")
    assert desk.phase("a") == "cancelled"
    assert not desk.scheduler.state.jobs


def test_explain_says_who_can_release_it() -> None:
    desk = Desk(1)
    desk.submit(job("a", hold=True, queue="papers"))
    told = (
        "is held: it neither waits nor leaves until it is released: starburst release a, by whoever may "
        "submit to queue papers; since 0"
    )
    assert sentence(desk, "a") == told
    assert foretell(desk.scheduler, [job("b", hold=True)], clock)[0].phase == "held"


@pytest.mark.parametrize("more", [{}, {"order": "vqs"}, {"budget_mode": "calibrated"}, {"hopeless": "leave"}])
def test_a_restart_finds_it_held(more: dict[str, str]) -> None:
    desk = Desk(1, **more)
    desk.submit(job("busy", hours=0.5), job("a"), job("b", hold=True))
    desk.started("busy")
    desk.hold("a")
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert [again.state.jobs[name].phase.value for name in "ab"] == ["held", "held"]
    assert again.next_wakeup() == float("inf")
    again.handle(ReleaseRequested("a"), 0.0)
    assert again.state.jobs["a"].phase.value in ("queued", "offloading")


def test_a_run_that_is_suspended_at_its_site_is_held_without_a_loss_and_begins_anew_when_released() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b"))
    desk.started("a")
    assert starts(desk.ended("a", RunEnd.SUSPENDED)) == ["b"], "others have its place"
    assert (desk.phase("a"), desk["a"].losses, desk.free()) == ("held", 0, 0)
    assert desk.why("a", "suspended") == "run 1 was ended, as its user suspended it"
    assert "is held" in sentence(desk, "a")
    assert not desk.wait(100 * HOUR)
    desk.release("a")
    assert starts(desk.ended("b")) == ["a"]


def test_one_that_is_suspended_while_it_is_being_cancelled_is_cancelled() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    desk.cancel("a")
    desk.ended("a", RunEnd.SUSPENDED)
    assert desk.phase("a") == "cancelled"


SUSPENDED = HoldRequested("a", stops="its user suspended its Job")


@pytest.mark.parametrize("how", [RunEnd.STOPPED, RunEnd.LOST])
def test_one_that_is_suspended_in_the_cloud_is_stopped_with_its_grace_and_held_without_a_loss(
    how: RunEnd,
) -> None:
    desk = Desk(1)
    desk.submit(job("a", cloud="only", grace_s=20.0))
    desk.offload("a")
    (stop,) = desk.tell(SUSPENDED)
    assert stop == StopRun("a", 1, Site.CLOUD, 20.0)
    assert sentence(desk, "a").startswith("is being stopped on i-000001: its user suspended it")
    assert not desk.tell(SUSPENDED), "it is known"
    assert returns(desk.ended("a", how)) == ["i-000001"]
    assert (desk.phase("a"), desk["a"].losses) == ("held", 0)
    assert desk.why("a", "suspended") == "run 1 was ended, as its user suspended it"
    assert not desk.wait(HOUR)
    assert launches(desk.release("a")) == ["small"]


def test_one_that_is_suspended_on_its_way_to_the_cloud_gives_its_machine_back() -> None:
    desk = Desk(1)
    desk.submit(job("a", cloud="only"))
    assert returns(desk.tell(SUSPENDED)) == ["i-000001"]
    assert desk.phase("a") == "held"


def test_one_that_ends_before_the_suspension_takes_effect_has_ended() -> None:
    desk = Desk(1)
    desk.submit(job("a", cloud="only"))
    desk.offload("a")
    desk.tell(SUSPENDED)
    desk.ended("a")
    assert desk.phase("a") == "succeeded"


def test_on_the_cluster_it_is_the_site_that_ends_the_run_of_a_suspended_job() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    assert not desk.tell(SUSPENDED)
    assert desk.phase("a") == "running"
