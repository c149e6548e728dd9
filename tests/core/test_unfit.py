"""A machine that answers and takes no work: nobody joins it, what runs there goes on, its bill is bounded."""

from __future__ import annotations

from starburst.core.model.events import InstanceUnfit, RunEnd, RunEnded
from starburst.core.views.restoring import restore
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, returns, snapshot, starts

BIG, OTHER = offer("big", 4, 1), offer("other", 4, 2)
UNFIT = InstanceUnfit("i-000001", "Connection refused")


def desk_with(*names: str) -> Desk:
    """Jobs that one machine was rented for; those of them that are told run there."""
    desk = Desk(offers=[BIG, OTHER], packer="eva", unreachable_s=10 * MINUTE, offer_pause_s=HOUR)
    desk.submit(*(job(name, cloud="only", hours=9) for name in names))
    desk.ready("i-000001")
    return desk


def test_no_job_joins_it_and_its_offer_is_left_alone() -> None:
    desk = desk_with("a")
    desk.started("a")
    assert launches(desk.submit(job("joins", cloud="only", hours=1))) == []
    desk.tell(UNFIT)
    assert launches(desk.submit(job("b", cloud="only", hours=1))) == ["other"]


def test_what_has_not_begun_there_starts_elsewhere_and_the_log_says_why() -> None:
    desk = desk_with("a", "b")
    desk.started("a")
    desk.tell(UNFIT)
    why = "i-000001 takes no work: Connection refused"
    told = desk.tell(RunEnded("b", 1, RunEnd.NOT_STARTED, message=why))
    assert launches([*told, *desk.wait(10 * MINUTE)]) == ["other"]
    assert "takes no work (Connection refused)" in desk.why("i-000001", "unfit")
    assert any(one.subject == "b" and why in one.reason for one in desk.scheduler.log)
    assert starts(desk.ready("i-000002")) == ["b"]


def test_what_runs_there_goes_on_to_its_end_and_then_it_is_given_back() -> None:
    desk = desk_with("a")
    desk.started("a")
    desk.tell(UNFIT)
    assert desk.wait(5 * HOUR) == []
    assert returns(desk.ended("a")) == ["i-000001"]
    assert desk.phase("a") == "succeeded"


def test_it_is_ended_after_the_grace_if_nothing_runs_there_though_jobs_are_for_it() -> None:
    desk = desk_with("a")
    desk.tell(UNFIT)
    assert desk.wait(10 * MINUTE - 1) == []
    assert returns(desk.wait(1)) == ["i-000001"]
    assert "took no work for 10 min" in desk.why("i-000001", "fenced")
    assert launches(desk.gone("i-000001")) == ["other"]
    assert "ended, for it took no work" in desk.why("i-000001", "gone")


def test_a_restart_forgets_none_of_it() -> None:
    desk = desk_with("a")
    desk.tell(UNFIT)
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert again.next_wakeup() == 10 * MINUTE
    assert returns(again.handle((), 10 * MINUTE)) == ["i-000001"]


def test_it_is_told_once_and_a_machine_that_is_given_back_is_told_nothing() -> None:
    desk = desk_with("a")
    desk.tell(UNFIT)
    desk.tell(UNFIT)
    desk.gone("i-000001")
    desk.tell(UNFIT)
    assert sum(decision.kind == "unfit" for decision in desk.scheduler.log) == 1
