"""A cancel in every phase: nothing is left behind, and no run is forgotten before it is gone."""

from __future__ import annotations

import pytest

from starburst.core.model.events import OffersChanged, RunEnd
from tests.builders import Desk, job, launches, offer, returns, starts, stops


def test_queued_it_just_goes() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a"))
    assert not desk.cancel("a")
    assert desk.phase("a") == "cancelled"
    assert not desk.ended("busy")


def test_queued_for_the_cloud_only_it_just_goes() -> None:
    desk = Desk(offers=[])
    desk.submit(job("a", cloud="only"))
    desk.cancel("a")
    assert desk.phase("a") == "cancelled"
    assert not desk.tell(OffersChanged((offer(),)))


def test_offloading_its_machine_is_given_back() -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only"))
    assert returns(desk.cancel("a")) == ["i-000001"]
    assert desk.phase("a") == "cancelled"


@pytest.mark.parametrize("running", [False, True], ids=["starting", "running"])
def test_alive_on_the_cluster_it_is_stopped_and_holds_its_room_until_it_is_gone(running: bool) -> None:
    desk = Desk(4)
    desk.submit(job("a", grace_s=20))
    if running:
        desk.started("a")
    (stop,) = desk.cancel("a")
    assert (stop.job_id, stop.attempt, stop.grace_s) == ("a", 1, 20)
    assert (desk.phase("a"), desk.free()) == ("stopping", 3)
    desk.stopped("a")
    assert (desk.phase("a"), desk.free()) == ("cancelled", 4)


@pytest.mark.parametrize("running", [False, True], ids=["starting", "running"])
def test_alive_in_the_cloud_its_machine_is_given_back_once_it_is_gone(running: bool) -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only"))
    desk.ready("i-000001")
    if running:
        desk.started("a")
    assert stops(desk.cancel("a")) == ["a"]
    assert returns(desk.stopped("a")) == ["i-000001"]
    assert desk.phase("a") == "cancelled"


def test_told_to_stop_already_it_is_not_told_again() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.cancel("a")
    assert not desk.cancel("a")


@pytest.mark.parametrize(
    ("end", "phase"),
    [(RunEnd.STOPPED, "cancelled"), (RunEnd.LOST, "cancelled"), (RunEnd.EXITED, "succeeded")],
)
def test_being_stopped_it_may_end_in_other_ways(end: RunEnd, phase: str) -> None:
    """A result that was reached before the stop counts."""
    desk = Desk(4)
    desk.submit(job("a"))
    desk.cancel("a")
    desk.ended("a", end)
    assert desk.phase("a") == phase


def test_over_it_is_over() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.ended("a")
    assert not desk.cancel("a")
    assert desk.phase("a") == "succeeded"


def test_a_job_nobody_knows_cannot_be_cancelled() -> None:
    assert not Desk(4).cancel("a")


def on_its_way_home() -> Desk:
    """ "a" runs in the cloud and is being stopped to come home to n0, where its slot is held."""
    desk = Desk(1, waiting="no-wait", returns="if-it-pays", t_max_s=60)
    desk.submit(job("busy"), job("a", hours=1))
    desk.started("busy")
    desk.offload("a")
    desk.wait(60)
    assert stops(desk.ended("busy")) == ["a"]
    assert desk.free() == 0
    return desk


def test_on_its_way_home_its_reservation_is_freed_at_once() -> None:
    desk = on_its_way_home()
    desk.cancel("a")
    assert desk.free() == 1
    assert starts(desk.submit(job("b"))) == ["b"]
    desk.stopped("a")
    assert desk.phase("a") == "cancelled"


def test_what_waits_takes_the_freed_reservation() -> None:
    desk = on_its_way_home()
    desk.submit(job("b", max_wait_s=600))
    assert starts(desk.cancel("a")) == ["b"]
    assert not launches(desk.actions)
