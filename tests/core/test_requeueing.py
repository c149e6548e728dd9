"""A requeue: the run is stopped, and its job waits anew, in its old place of the queue."""

from __future__ import annotations

import pytest

from starburst.core.model.events import NodesChanged, RunEnd
from starburst.core.views.explain import explain
from tests.builders import HOUR, Desk, job, launches, node, returns, starts, stops


@pytest.mark.parametrize("running", [False, True], ids=["starting", "running"])
def test_on_the_cluster_it_is_stopped_with_its_grace_and_waits_anew(running: bool) -> None:
    desk = Desk(1)
    desk.submit(job("a", grace_s=20), job("b"))
    if running:
        desk.started("a")
    desk.wait(HOUR / 2)
    (stop,) = desk.requeue("a")
    assert (stop.job_id, stop.attempt, stop.grace_s) == ("a", 1, 20)
    assert "its user has it queued again" in explain(desk.scheduler.state, desk["a"], str).sentence
    desk.tell(NodesChanged((node(gpus=1, schedulable=False),)))
    assert not desk.stopped("a")
    assert (desk.phase("a"), desk["a"].losses, desk["a"].deadline) == ("queued", 0, 1.5 * HOUR)
    assert starts(desk.tell(NodesChanged((node(gpus=1),)))) == ["a"]  # it keeps its place in the queue
    assert desk["a"].attempt == 2


def test_in_the_cloud_its_machine_is_given_back_and_it_leaves_again_when_it_would_on_submission() -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only"))
    desk.ready("i-000001")
    desk.started("a")
    assert stops(desk.requeue("a")) == ["a"]
    then = desk.stopped("a")
    assert (returns(then), launches(then)) == (["i-000001"], ["small"])


def test_what_a_checkpointing_job_had_done_is_not_done_again() -> None:
    desk = Desk(1)
    desk.submit(job("a", checkpoint=True))
    desk.started("a")
    desk.wait(HOUR)
    desk.requeue("a")
    assert starts(desk.stopped("a")) == ["a"]
    assert desk["a"].saved_s == HOUR


def test_what_does_not_run_stays_as_it_is() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a"))
    assert not desk.requeue("a")
    assert desk.why("a", "not-requeued") == "could not be queued again: it was queued when that was asked for"
    desk.started("busy")
    desk.cancel("busy")
    assert not desk.requeue("busy")
    desk.stopped("busy")
    assert desk.phase("busy") == "cancelled"
    assert not desk.requeue("busy")


def test_a_run_that_ends_by_itself_meanwhile_is_over() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    desk.requeue("a")
    desk.ended("a")
    assert desk.phase("a") == "succeeded"


def test_a_cancel_comes_before_it() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    desk.requeue("a")
    desk.cancel("a")
    desk.stopped("a")
    assert desk.phase("a") == "cancelled"


def test_its_site_may_take_the_place_first() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    desk.requeue("a")
    assert starts(desk.ended("a", RunEnd.DISPLACED, None)) == ["a"]
