"""Gangs in the cloud: one instance of several machines, launched, billed and ended as one."""

from __future__ import annotations

from starburst.core.model.actions import LaunchInstance, StartRun, StopRun, TerminateInstance
from starburst.core.model.events import InstanceFailed, InstanceGone
from starburst.domain.money import Money
from tests.builders import HOUR, Desk, job, offer

GANG = job("a", gang=(4, 4), cloud="only")


def desk_with_gang() -> Desk:
    """A desk whose gang has left for two machines."""
    desk = Desk(offers=(offer("small", 4, 1.0),))
    (launch,) = desk.submit(GANG)
    assert launch == LaunchInstance("i-000001", "small", 2)
    return desk


def test_a_gang_that_no_machine_holds_gets_several_as_one() -> None:
    desk = desk_with_gang()
    machine = desk.scheduler.state.fleet.instances["i-000001"]
    assert (machine.offer.title, machine.rate) == ("2 × small", Money.of(2))
    assert [(slot.where, slot.node) for slot in desk["a"].slots] == [("i-000001", 0), ("i-000001", 1)]
    assert desk.why("a", "offloaded").endswith("rents 2 × small at $2.00/h: no machine holds all 2 tasks")


def test_it_starts_when_they_are_up_and_pays_for_all() -> None:
    desk = desk_with_gang()
    (start,) = desk.ready("i-000001")
    assert isinstance(start, StartRun)
    assert [slot.node for slot in start.slots] == [0, 1]
    desk.started("a")
    desk.wait(HOUR)
    assert desk.ended("a") == [TerminateInstance("i-000001")]
    desk.tell(InstanceGone("i-000001", desk.now - HOUR, desk.now))
    assert desk["a"].cloud_micro_usd == Money.of(2).micro_usd


def test_when_they_are_taken_away_the_whole_gang_starts_anew() -> None:
    desk = desk_with_gang()
    desk.ready("i-000001")
    desk.started("a")
    actions = desk.tell(InstanceGone("i-000001", 0.0, desk.now, preempted=True))
    assert actions == [LaunchInstance("i-000002", "small", 2)]
    assert desk.phase("a") == "offloading"


def test_a_launch_that_fails_pauses_the_offer() -> None:
    desk = desk_with_gang()
    assert not desk.tell(InstanceFailed("i-000001", "sold out", sold_out=True))
    assert "small" in desk.scheduler.state.fleet.paused
    assert desk.phase("a") == "queued"


def test_a_cancelled_gang_is_stopped_as_one() -> None:
    desk = desk_with_gang()
    desk.ready("i-000001")
    desk.started("a")
    (stop,) = desk.cancel("a")
    assert isinstance(stop, StopRun)


def test_a_spread_gang_takes_distinct_nodes() -> None:
    desk = Desk(8, 8)
    desk.submit(job("a", gang=(1, 1), spread=True))
    assert sorted(desk.nodes_of("a")) == ["n0", "n1"]
    desk.submit(job("b", gang=(1, 1, 1), spread=True, cloud="never"))
    assert desk.phase("b") == "queued"
    desk.submit(job("c", gang=(1, 1, 1), cloud="never"))
    assert len(set(desk.nodes_of("c"))) == 1
