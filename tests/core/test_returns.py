"""Coming home from the cloud: once, past T_max, and never into room that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.core.model.events import NodesChanged, RunEnd, RunEnded
from starburst.core.views.explain import explain
from starburst.domain.job import Site
from starburst.policy.backoff import pause_s
from starburst.policy.refusals import FORGET_S, IN_A_ROW
from tests.builders import HOUR, MINUTE, Desk, job, launches, node, starts, stops


def away(hours: float | None = 2, *, gpus: int = 1, **settings: Any) -> Desk:
    """ "busy" has the cluster's one GPU, "a" runs in the cloud since time 0; T_max is 15 min."""
    told = {"waiting": "no-wait", "returns": "if-it-pays", "t_max_s": 15 * MINUTE, **settings}
    desk = Desk(gpus, **told)
    desk.submit(job("busy", gpus), job("a", gpus, hours=hours))
    desk.started("busy")
    desk.offload("a")
    return desk


def test_before_t_max_it_stays_even_with_room() -> None:
    desk = away()
    desk.ended("busy")
    assert not desk.wait(15 * MINUTE - 1)
    assert stops(desk.wait(1)) == ["a"]


def test_past_t_max_it_comes_as_soon_as_there_is_room() -> None:
    desk = away()
    assert not desk.wait(20 * MINUTE)
    assert stops(desk.ended("busy")) == ["a"]
    assert desk.why("a", "returning") == (
        "comes home after 20 min in the cloud: about 1.67 h still to run, 20 min of work to repeat; "
        "n0 is held for it"
    )


def test_the_slot_is_held_until_the_cloud_run_is_gone_and_then_used() -> None:
    desk = away()
    desk.ended("busy")
    desk.wait(15 * MINUTE)
    assert (desk.phase("a"), desk.free()) == ("stopping", 0)
    desk.submit(job("b", max_wait_s=HOUR))
    assert desk.phase("b") == "queued", "the slot is not b's"
    assert starts(desk.stopped("a")) == ["a"]
    assert (desk["a"].site, desk["a"].attempt, desk["a"].reserved) == (Site.CLUSTER, 2, ())


def test_if_the_node_held_for_it_leaves_meanwhile_it_queues_again() -> None:
    desk = away()
    desk.ended("busy")
    desk.wait(15 * MINUTE)
    desk.tell(NodesChanged((node("n1", 1),)))
    assert starts(desk.stopped("a")) == ["a"]
    assert desk.nodes_of("a") == ["n1"]


def test_a_job_that_is_back_in_the_cloud_after_its_return_stays() -> None:
    desk = away(waiting="star", factor=0.5 * HOUR, returns="t-max")
    desk.wait(15 * MINUTE)
    desk.stopped("a")
    desk.wait(0.5 * HOUR)
    desk.offload("a")
    assert not desk.wait(10 * HOUR)
    assert desk.phase("a") == "running"


def test_a_return_that_would_repeat_more_than_it_saves_does_not_happen() -> None:
    desk = away(hours=0.4)
    desk.ended("busy")
    desk.wait(HOUR)
    assert desk.phase("a") == "running"
    assert desk.why("a", "stays-away") == (
        "stays in the cloud: coming home would repeat 15 min of work to save 9 min of rent"
    )
    assert len(desk.log("a", "stays-away")) == 1


def test_star_waits_beta_r_from_the_moment_it_is_back() -> None:
    """The published code counts from the arrival instead and so cuts the second wait by T_max."""
    desk = away(gpus=2, waiting="star", factor=0.5 * HOUR, returns="t-max")
    assert stops(desk.wait(15 * MINUTE)) == ["a"]
    desk.now += MINUTE
    desk.stopped("a")
    assert (desk.phase("a"), desk["a"].deadline) == ("queued", desk.now + 2 * 0.5 * HOUR)
    assert not launches(desk.wait(HOUR - 1))
    assert launches(desk.wait(1)) == ["small"]


def test_star_takes_room_that_comes_up_in_its_second_wait() -> None:
    desk = away(waiting="star", factor=0.5 * HOUR, returns="t-max")
    desk.wait(15 * MINUTE)
    desk.stopped("a")
    assert starts(desk.ended("busy")) == ["a"]
    assert desk.nodes_of("a") == ["n0"]


@pytest.mark.parametrize("extra", [{"cloud": "only"}, {"gpus": 0, "cpus": 1}, {"gpus": 2}])
def test_what_belongs_in_the_cloud_is_not_looked_at(extra: dict[str, Any]) -> None:
    desk = Desk(1, returns="t-max", t_max_s=60)
    desk.submit(job("a", **extra))
    desk.offload("a")
    assert desk["a"].look_at is None


def test_a_run_that_exits_while_it_is_told_to_come_home_is_done() -> None:
    desk = away()
    desk.ended("busy")
    desk.wait(15 * MINUTE)
    desk.ended("a", RunEnd.EXITED, 0)
    assert (desk.phase("a"), desk.free()) == ("succeeded", 1)


def test_a_machine_preempted_on_the_way_home_is_the_end_it_was_told_to_make() -> None:
    desk = away()
    desk.ended("busy")
    desk.wait(15 * MINUTE)
    assert starts(desk.gone("i-000001", preempted=True)) == ["a"]
    assert (desk["a"].site, desk["a"].losses) == (Site.CLUSTER, 0)


def test_those_past_t_max_longest_come_first() -> None:
    desk = Desk(1, waiting="no-wait", returns="if-it-pays", t_max_s=60)
    desk.submit(job("busy"), job("a", hours=9), job("b", hours=9))
    desk.started("busy")
    desk.offload("b")
    desk.now = 10
    desk.offload("a")
    desk.wait(100)
    assert stops(desk.ended("busy")) == ["b"]


def test_a_job_that_came_home_to_a_full_queue_leaves_once() -> None:
    """It takes its old place, and the queue still remembers that it left from there."""
    desk = away(waiting="star", factor=HOUR, returns="t-max", queue_limit=1)
    desk.submit(job("first", max_wait_s=HOUR, cloud="never"), job("second", max_wait_s=HOUR))
    assert [desk.phase(name) for name in ("a", "first", "second")] == ["running", "queued", "offloading"]
    desk.offload("second")
    desk.wait(15 * MINUTE)
    desk.tell(desk.end_of("a", RunEnd.STOPPED), desk.end_of("second", RunEnd.STOPPED))
    assert launches(desk.actions) == ["small", "small"]


def test_what_a_checkpointing_job_did_in_the_cloud_counts_after_its_return() -> None:
    desk = Desk(1, waiting="no-wait", returns="if-it-pays", t_max_s=15 * MINUTE)
    desk.submit(job("busy", 1, hours=9), job("a", 1, hours=2, checkpoint=True))
    desk.started("busy")
    desk.offload("a")
    desk.wait(30 * MINUTE)
    desk.ended("busy")
    desk.stopped("a")
    desk.started("a")
    desk.wait(90 * MINUTE)
    assert [end - desk.now for end, _ in desk.scheduler.state.expected_ends()] == [0.0]
    desk.ended("a", RunEnd.EXITED, 0)
    (ended,) = desk.log("a", "succeeded")
    assert ended.numbers["runtime_s"] == 2 * HOUR
    assert desk.scheduler.state.load.runtime_sum_s == 2 * HOUR + 30 * MINUTE, "a's and busy's"


def test_a_cluster_whose_refusals_are_long_past_takes_runs_home_though_no_start_has_opened_it() -> None:
    desk = Desk(4, returns="if-it-pays", t_max_s=160.0)
    desk.submit(job("big", 4), job("x", 4, hours=9, checkpoint=True, max_wait_s=0.0))
    desk.offload("x")
    for number in range(1, IN_A_ROW + 1):
        desk.tell(RunEnded("big", number, RunEnd.NOT_STARTED, message="no webhook", outage=True))
        desk.wait(pause_s(number) if number < IN_A_ROW else 0.0)
    desk.cancel("big")
    closed_at = desk.now
    assert not stops(desk.wait(FORGET_S - 1))
    assert explain(desk.scheduler.state, desk["x"], str).sentence.endswith(
        "comes home as soon as the cluster starts jobs again and there is room for 4 GPUs on the cluster"
    )
    assert stops(desk.wait(1)) == ["x"]
    assert desk.now == closed_at + FORGET_S
