"""What goes wrong: stale reports, lost runs, machines that do not come or do not stay, nodes that leave."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.core.model.actions import LaunchInstance
from starburst.core.model.events import (
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    NodesChanged,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.domain.job import Phase
from starburst.policy.waiting import hours
from tests.builders import HOUR, Desk, job, launches, node, offer, returns, split_gang, starts, stops


def test_reports_of_an_earlier_attempt_are_ignored() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.started("a")
    desk.lost("a")
    assert desk["a"].attempt == 2
    desk.tell(RunStarted("a", 1), RunEnded("a", 1, RunEnd.EXITED, 0))
    assert (desk.phase("a"), desk["a"].started_at) == ("starting", None)


def test_reports_of_jobs_and_machines_nobody_knows_are_ignored() -> None:
    desk = Desk(4)
    assert not desk.tell(
        RunStarted("x", 1), RunEnded("x", 1, RunEnd.LOST), InstanceReady("i-9", 0), InstanceGone("i-9", 0, 0)
    )


def test_a_report_told_twice_counts_once() -> None:
    desk = Desk(4)
    desk.submit(job("a", 3))
    desk.started("a")
    desk.now = 10
    desk.started("a")
    assert desk["a"].started_at == 0
    end = desk.end_of("a")
    desk.tell(end)
    desk.tell(end)
    assert desk.free() == 4


def test_an_end_may_come_before_its_start_was_heard_of() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.ended("a")
    assert desk.phase("a") == "succeeded"


@pytest.mark.parametrize(("code", "phase"), [(0, "succeeded"), (3, "failed")])
def test_an_exit_code_is_a_result(code: int, phase: str) -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.started("a")
    assert not desk.ended("a", code=code)
    assert (desk.phase("a"), desk["a"].exit_code, desk["a"].attempt) == (phase, code, 1)


def test_a_run_that_cannot_be_started_is_not_tried_again() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    assert not desk.tell(RunEnded("a", 1, RunEnd.REFUSED, message="no such program: train"))
    assert (desk.phase("a"), desk["a"].message) == ("failed", "no such program: train")


def test_a_lost_run_starts_again_as_a_new_attempt() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.started("a")
    assert starts(desk.lost("a")) == ["a"]
    assert (desk["a"].attempt, desk["a"].losses) == (2, 1)
    assert "queues again" in desk.why("a", "lost")


def test_a_run_lost_too_often_has_failed() -> None:
    desk = Desk(4, max_losses=2)
    desk.submit(job("a"))
    desk.lost("a")
    desk.lost("a")
    assert not desk.lost("a")
    assert desk.phase("a") == "failed"
    assert desk["a"].message.startswith("its runs were lost 3 times, at last because ")
    assert desk.free() == 4


def test_a_run_whose_place_was_taken_away_is_no_loss() -> None:
    desk = Desk(4, max_losses=0)
    desk.submit(job("a"))
    desk.started("a")
    assert starts(desk.ended("a", RunEnd.DISPLACED)) == ["a"]
    assert (desk["a"].attempt, desk["a"].losses) == (2, 0)
    assert desk.why("a", "lost") == (
        "run 1 is gone without a result (its place was taken away); it queues again"
    )


def test_a_job_displaced_from_a_node_that_left_goes_on_waiting() -> None:
    desk = Desk(4, max_losses=0)
    desk.submit(job("a"))
    desk.started("a")
    desk.now = 0.25 * HOUR
    desk.tell(NodesChanged((node("n1", 0),)), desk.end_of("a", RunEnd.DISPLACED))
    assert (desk.phase("a"), desk["a"].deadline) == ("queued", HOUR)


def test_a_job_that_is_displaced_while_it_is_cancelled_is_cancelled() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.started("a")
    desk.cancel("a")
    assert not desk.ended("a", RunEnd.DISPLACED)
    assert (desk.phase("a"), desk.free()) == ("cancelled", 4)


def test_a_job_that_lost_its_run_waits_what_is_left_of_its_wait() -> None:
    desk = Desk(4, 4)
    desk.submit(job("a", 4, max_wait_s=HOUR), job("b", 4, cloud="never"))
    desk.started("a", "b")
    desk.now = 0.25 * HOUR
    desk.tell(NodesChanged((node("n1", 4),)))  # n0 is gone, and n1 taken by b
    desk.lost("a")
    assert (desk.phase("a"), desk["a"].deadline) == ("queued", HOUR)


def cloud_desk(*machines: int, **settings: Any) -> Desk:
    """A job "a" of the cloud, with a running task on a machine for each number of GPUs."""
    desk = Desk(**settings)
    desk.submit(job("a", gang=machines or (1,), cloud="only"))
    desk.offload("a")
    return desk


def test_a_preempted_machine_costs_the_job_a_run_but_not_its_patience() -> None:
    desk = cloud_desk(max_losses=0)
    assert launches(desk.gone("i-000001", preempted=True)) == ["small"]
    assert (desk.phase("a"), desk["a"].losses) == ("offloading", 0)
    assert desk.instances == ["i-000002"]


def test_a_machine_that_ends_by_itself_counts_as_a_loss() -> None:
    desk = cloud_desk(max_losses=0)
    desk.gone("i-000001")
    assert desk.phase("a") == "failed"


def test_a_preempted_job_that_may_use_the_cluster_tries_that_first() -> None:
    desk = Desk(4, waiting="no-wait")
    desk.submit(job("busy", 4), job("a"))
    desk.started("busy")
    desk.offload("a")
    desk.ended("busy")
    assert starts(desk.gone("i-000001", preempted=True)) == ["a"]
    assert desk.nodes_of("a") == ["n0"]


def test_a_job_that_left_at_once_leaves_at_once_again_when_its_run_is_lost() -> None:
    """It was never given a wait, and nothing else would ever send it off."""
    desk = Desk(1)
    desk.submit(job("large", 4))
    desk.offload("large")
    assert launches(desk.gone("i-000001", preempted=True)) == ["small"]
    assert desk.phase("large") == "offloading"


def test_a_job_that_no_longer_must_leave_when_its_run_is_lost_is_given_a_wait() -> None:
    desk = Desk(1)
    desk.submit(job("large", 4), job("b", 4, cloud="never"))
    desk.offload("large")
    desk.now = HOUR
    desk.tell(NodesChanged((node("n0", 4),)))  # b takes it
    desk.gone("i-000001", preempted=True)
    assert (desk.phase("large"), desk["large"].deadline) == ("queued", 2 * HOUR)


def test_a_lost_job_whose_wait_is_over_takes_an_offer_that_came_while_it_ran() -> None:
    desk = Desk(4, offers=[])
    desk.submit(job("busy", 4), job("a", 4))
    desk.started("busy")
    desk.wait(HOUR)
    desk.ended("busy")
    desk.started("a")
    desk.tell(OffersChanged((offer(),)))
    desk.tell(NodesChanged(()))
    assert launches(desk.lost("a")) == ["small"]


def test_a_gang_that_lost_a_machine_waits_for_its_others_to_end() -> None:
    desk = cloud_desk(4, 4)
    split_gang(desk, "a")
    assert stops(desk.gone("i-000001", preempted=True)) == ["a"]
    assert desk.phase("a") == "stopping"
    actions = desk.stopped("a")
    assert returns(actions) == ["i-000002"]
    assert actions[-1] == LaunchInstance("i-000003", "small", 2)
    assert desk["a"].losses == 0, "preemption is nobody's fault, for gangs too"


def test_a_gang_that_lost_all_its_machines_has_nothing_to_wait_for() -> None:
    desk = cloud_desk(4, 4)
    split_gang(desk, "a")
    desk.gone("i-000001", preempted=True)
    assert desk.gone("i-000002", preempted=True) == [LaunchInstance("i-000003", "small", 2)]
    assert desk["a"].losses == 0


def test_a_gang_on_its_way_out_may_lose_a_machine_too() -> None:
    desk = cloud_desk(4, 4)
    split_gang(desk, "a")
    desk.cancel("a")
    assert not desk.gone("i-000001", preempted=True)
    assert returns(desk.stopped("a")) == ["i-000002"]
    assert desk.phase("a") == "cancelled"


def test_a_machine_that_booted_and_came_to_nothing_is_on_the_bill() -> None:
    desk = Desk(offers=[offer("big", 4, 3.6), offer("small", 1, 7.2)])
    desk.submit(job("a", cloud="only"))
    desk.now = 100
    desk.tell(InstanceFailed("i-000001", "it never let anybody in", launched_at=50.0, ended_at=100.0))
    assert desk["a"].cloud_micro_usd == 50_000
    assert desk.why("i-000001", "launch-failed").endswith("; bill $0.05")


def test_a_gang_whose_machines_cannot_be_had_gets_others() -> None:
    desk = Desk(offers=[offer("small", 4, 1), offer("other", 4, 2)])
    desk.submit(job("a", gang=(4, 4), cloud="only"))
    assert desk.no_launch("i-000001") == [LaunchInstance("i-000002", "other", 2)]


def test_a_machine_that_comes_up_too_late_gets_no_job() -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only"))
    desk.cancel("a")
    assert not desk.ready("i-000001")
    desk.now = 60
    desk.gone("i-000001")
    assert desk["a"].cloud_micro_usd == 16_667, "it costs nevertheless"


def test_a_node_that_leaves_keeps_what_runs_there_but_takes_nothing_new() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.started("a")
    desk.tell(NodesChanged((node("n1", 4),)))
    desk.submit(job("b"))
    assert desk.nodes_of("b") == ["n1"]
    desk.ended("a")
    assert desk.phase("a") == "succeeded"
    assert [item.name for item in desk.scheduler.state.capacity.nodes] == ["n1"]


def test_a_node_that_leaves_may_hold_jobs_that_ask_for_nothing() -> None:
    desk = Desk(4, offload_cpu_only=False)
    desk.submit(job("nothing", 0), job("something", 1))
    desk.tell(NodesChanged(()))
    desk.ended("something")
    desk.ended("nothing")
    assert desk.scheduler.state.capacity.nodes == []


def test_a_node_that_comes_back_still_knows_what_runs_there() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.tell(NodesChanged(()))
    desk.tell(NodesChanged((node("n0", 4),)))
    assert desk.free() == 3


def test_a_cordoned_node_takes_nothing_new() -> None:
    desk = Desk(4)
    desk.tell(NodesChanged((node("n0", 4, schedulable=False), node("n1", 4))))
    desk.submit(job("a"))
    assert desk.nodes_of("a") == ["n1"]


def test_a_node_that_shrinks_below_its_runs_is_no_contradiction():
    desk = Desk(4)
    desk.submit(job("a", 4), job("b", 1, cloud="never"))
    desk.started("a")
    desk.tell(NodesChanged((node("n0", 2),)))
    desk.wait(60)
    desk.tell()
    desk.ended("a")
    assert desk["b"].phase is Phase.STARTING


@pytest.mark.parametrize(("told_s", "ran_s"), [(None, 600.0), (60.0, 60.0), (-5.0, 0.0), (9_999.0, 600.0)])
def test_a_job_ended_when_its_site_says_within_what_can_be(told_s: float | None, ran_s: float) -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    desk.now = 600.0
    desk.tell(RunEnded("a", 1, RunEnd.EXITED, 0, ended_at=told_s))
    assert desk["a"].ended_at == ran_s
    assert desk.why("a", "succeeded") == f"finished after {hours(ran_s)}"
