"""A job leaves at once where its run costs nothing: on a machine that others need for longer anyway."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.core.views.restoring import restore
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from tests.builders import HOUR, Desk, job, offer, snapshot, starts

BIG, SMALL = offer("big", 4, 3), offer("small", 1, 1)


def desk_with(rented: int = 2, **settings: Any) -> Desk:
    """A full node of two GPUs, and a machine of four of which a job holds some for two hours."""
    desk = Desk(
        2, **{"offers": [BIG, SMALL], "packer": "eva", "waiting": "constant", "factor": HOUR, **settings}
    )
    desk.submit(job("busy", 2, hours=9), job("there", rented, cloud="only", hours=2))
    desk.started("busy")
    return desk


def test_a_queued_job_joins_long_before_its_wait_is_over() -> None:
    desk = desk_with()
    desk.offload("there")
    desk.now = 60
    assert starts(desk.submit(job("a", hours=1))) == ["a"]
    assert desk.nodes_of("a") == ["i-000001"]
    assert desk.why("a", "offloaded") == (
        "leaves for the cloud: its run adds nothing to the bill of a machine that is there, though it would "
        "cost $1.00 by itself, and could wait 1 h more; joins i-000001 (big at $3.00/h), which there needs "
        "for longer anyway"
    )


def test_a_queued_job_joins_where_that_adds_less_than_half_of_what_it_costs_alone() -> None:
    desk = desk_with()
    desk.offload("there")
    desk.submit(job("a", hours=2.25), job("b", hours=2.75))
    assert (desk.phase("a"), desk.phase("b")) == ("starting", "queued")
    assert desk.why("a", "offloaded") == (
        "leaves for the cloud: its run adds $0.75 to the bill of a machine that is there, though it would "
        "cost $2.25 by itself, and could wait 1 h more; joins i-000001 (big at $3.00/h), which there needs "
        "too: 15 min more of it cost $0.75, less than a machine of its own"
    )


def test_room_on_the_cluster_comes_first() -> None:
    desk = desk_with()
    desk.offload("there")
    desk.ended("busy")
    desk.submit(job("a", hours=1))
    assert desk.nodes_of("a") == ["n0"]


@pytest.mark.parametrize(
    "waits",
    [
        {"hours": 3},  # the machine would be needed for longer
        {"gpus": 2, "hours": 1},  # one is left
        {"hours": 1, "cloud": "never"},
        {"hours": 1, "max_wait_s": HOUR},  # its user has said how long
    ],
)
def test_others_wait_on(waits: dict[str, Any]) -> None:
    desk = desk_with(3)
    desk.offload("there")
    desk.submit(job("a", **waits))
    assert (desk.phase("a"), desk["a"].slots) == ("queued", ())


@pytest.mark.parametrize("settings", [{"waiting": "infinite"}, {"packer": "none"}], ids=str)
def test_nobody_joins_who_may_not_leave_or_share(settings: dict[str, Any]) -> None:
    desk = desk_with(1, **settings)
    desk.offload("there")
    desk.submit(job("a", hours=1))
    assert desk.phase("a") == "queued"


def test_room_that_comes_up_later_goes_to_the_first_in_the_queue_that_fits() -> None:
    desk = desk_with(2)
    desk.submit(job("full", 2, cloud="only", hours=1.5))
    desk.offload("there")
    desk.started("full")
    desk.submit(job("a", hours=1), job("b", hours=0.5), job("long", hours=8))
    assert [desk.phase(name) for name in ("a", "b", "long")] == ["queued"] * 3
    desk.now = HOUR / 2
    assert starts(desk.ended("full")) == ["a", "b"]
    assert desk.phase("long") == "queued"


def test_a_machine_that_is_still_coming_up_is_joined_and_the_job_starts_with_it() -> None:
    desk = desk_with()
    desk.submit(job("a", hours=1))
    assert (desk.phase("a"), desk.nodes_of("a")) == ("offloading", ["i-000001"])
    assert starts(desk.ready("i-000001")) == ["there", "a"]


def test_if_that_machine_does_not_come_up_the_job_has_the_rest_of_its_wait() -> None:
    desk = desk_with(offers=[BIG])
    desk.now = 60
    desk.submit(job("a", hours=1))
    assert desk.phase("a") == "offloading"
    desk.no_launch("i-000001")
    assert (desk.phase("a"), desk["a"].deadline, desk["a"].obstacle) == ("queued", HOUR + 60, None)
    desk.ended("busy")
    assert desk.nodes_of("a") == ["n0"]


def test_a_cap_that_could_not_pay_for_it_keeps_it_in_the_queue_with_its_wait() -> None:
    desk = desk_with(caps=(Cap(Money.of(0.5), "day", user="ada"),))
    desk.offload("there")
    desk.submit(job("a", hours=1, user="ada"))
    assert (desk.phase("a"), desk["a"].deadline) == ("queued", HOUR)


def test_a_restart_sees_the_same_room() -> None:
    desk = desk_with()
    desk.offload("there")
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert not again.state.fleet.spare.unseen
    assert again.handle((), 1.0) == []
