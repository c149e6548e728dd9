"""Where a user wants the machines of a job, and at what price: nothing else is rented, joined or moved to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.core.model.actions import LaunchInstance
from starburst.core.parts.fleet import Fleet
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.domain import machine_facts as facts
from starburst.domain.cloud import ANY_OFFER, Offer, OfferRules
from starburst.domain.constraints import Requirement
from starburst.domain.job import Job, Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.packers.none import NoPacking
from starburst.policy.packing.plan import Situation
from starburst.policy.packing.registry import PACKERS, packer
from starburst.store import codec
from tests.builders import HOUR, Desk, job, launches, offer, snapshot, starts
from tests.core.test_moving import PERIOD, saver

EAST = offer("east", 4, 3, cloud="aws", region="us-east-1", zones=(("us-east-1a", "east-a"),))
EAST_SPOT = offer("east-spot", 4, 1, cloud="aws", region="us-east-1", zone="us-east-1b", spot=True)
WEST = offer("west", 4, 2, cloud="aws", region="us-west-2")
GOOGLE = offer("google", 4, None, cloud="gcp", region="us-east-1")
ALL = (EAST, EAST_SPOT, WEST, GOOGLE)


def away(name: str = "a", gpus: int = 1, *, hours: float | None = None, **rules: Any) -> Job:
    return job(name, gpus, cloud="only", hours=hours, offer_rules=OfferRules(**rules))


@pytest.mark.parametrize(
    ("rules", "rented"),
    [
        ({}, "east-spot"),
        ({"spot": False}, "west"),
        ({"cloud": "aws", "region": "us-east-1", "spot": False}, "east"),
        ({"region": "us-west-2"}, "west"),
        ({"cloud": "gcp"}, "google"),
        ({"cloud": "gcp", "elsewhere": (("aws", "us-west-2", ""),)}, "west"),
        ({"cloud": "gcp", "elsewhere": (("", "", "us-east-1a"),)}, "east-a"),
        ({"region": "us-east-1", "zone": "us-east-1b"}, "east-spot"),
        ({"region": "us-east-1", "zone": "us-east-1a"}, "east-a"),
        ({"spot": False, "ceiling": Money.of(2)}, "west"),
        ({"requires": ((Requirement(facts.CAPACITY, "In", ("on-demand",)),),)}, "west"),
        ({"requires": ((Requirement(facts.ZONE, "In", ("us-east-1a",)),),)}, "east"),
        ({"requires": ((Requirement(facts.INSTANCE_TYPE, "In", ("x", "google")),),)}, "google"),
    ],
)
def test_what_is_rented_is_the_cheapest_that_the_user_allows(rules: dict[str, Any], rented: str) -> None:
    assert launches(Desk(offers=ALL).submit(away(**rules))) == [rented]


@pytest.mark.parametrize(
    ("rules", "lacks"),
    [
        ({"cloud": "azure"}, "no offer that holds it is in azure (starburst.io/infra)"),
        (
            {"cloud": "azure", "elsewhere": (("gcp", "", "z"),)},
            "no offer that holds it is in azure or gcp/*/z (starburst.io/infra)",
        ),
        (
            {"cloud": "aws", "zone": "us-west-2z"},
            "no offer that holds it is in aws/*/us-west-2z (starburst.io/infra)",
        ),
        (
            {"region": "us-west-2", "spot": True},
            "no offer in */us-west-2 that holds it is a spot machine (starburst.io/use-spot)",
        ),
        (
            {"zone": "us-east-1b", "spot": False},
            "every offer in */*/us-east-1b that holds it is a spot machine (starburst.io/use-spot)",
        ),
        (
            {"spot": False, "ceiling": Money.of("1.5")},
            "no offer that holds it and is no spot machine costs $1.50/h or less "
            "(starburst.io/max-hourly-cost); the cheapest costs $2.00/h",
        ),
        (
            {"cloud": "gcp", "ceiling": Money.of(100)},
            "no offer in gcp that holds it costs $100.00/h or less (starburst.io/max-hourly-cost); "
            "no price is known",
        ),
    ],
)
def test_who_asks_for_what_nobody_offers_hears_which_wish_it_was(rules: dict[str, Any], lacks: str) -> None:
    desk = Desk(offers=ALL)
    assert launches(desk.submit(away(**rules))) == []
    assert desk.why("a", "no-offer").endswith(f"it would leave for the cloud, but {lacks}")
    assert lacks in explain(desk.scheduler.state, desk["a"], str).sentence
    assert desk.scheduler.state.fleet.barred(desk["a"].job) == lacks


def test_where_the_size_is_what_lacks_the_wishes_are_not_blamed() -> None:
    desk = Desk(offers=ALL)
    desk.submit(away(gpus=8, region="us-west-2"))
    assert "no offer has 8 GPUs (the largest has 4)" in desk.why("a", "no-offer")
    assert desk.scheduler.state.fleet.barred(desk["a"].job) == ""


def test_a_job_that_may_stay_is_not_kept_from_the_cluster_by_its_wishes() -> None:
    desk = Desk(4, offers=ALL)
    assert starts(desk.submit(job("a", offer_rules=OfferRules(cloud="azure")))) == ["a"]


def test_nobody_joins_a_machine_that_its_user_does_not_want() -> None:
    desk = Desk(offers=[EAST, WEST], packer="eva")
    desk.submit(away("long", 1, hours=9, region="us-east-1"))
    desk.offload("long")
    assert launches(desk.submit(away("elsewhere", 1, hours=1, region="us-west-2"))) == ["west"]
    assert starts(desk.submit(away("there", 1, hours=1, cloud="aws", ceiling=Money.of(3)))) == ["there"]
    assert desk.nodes_of("there") == ["i-000001"]


def test_a_machine_of_some_zone_is_not_joined_by_who_must_be_in_one() -> None:
    desk = Desk(offers=[EAST], packer="eva")
    desk.submit(away("long", 1, hours=9))
    desk.offload("long")
    assert launches(desk.submit(away("a", 1, hours=1, zone="us-east-1a"))) == ["east-a"]


@pytest.mark.parametrize(("region", "moves"), [("us-east-1", []), ("", ["small"])])
def test_nobody_moves_to_a_machine_that_its_user_does_not_want(region: str, moves: list[str]) -> None:
    desk = Desk(offers=[EAST, offer("small", 1, 1, region="us-west-2")], **PERIOD)
    desk.submit(
        away("short", 3, hours=1, region="us-east-1"), saver("b", offer_rules=OfferRules(region=region))
    )
    desk.ready("i-000001")
    desk.started("short", "b")
    desk.now = HOUR
    desk.ended("short")
    assert launches(desk.actions) == moves


def test_an_offer_of_one_zone_is_found_again_by_its_name() -> None:
    fleet = Fleet(NoPacking())
    fleet.offers = {each.name: each for each in ALL}
    assert fleet.offer("east") is EAST
    assert fleet.offer("east-a") == EAST.in_zone("us-east-1a")
    assert fleet.offer("gone") is None


def test_wishes_survive_the_store_and_a_restart() -> None:
    desk = Desk(offers=[WEST])
    desk.submit(away(region="us-east-1"))
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert again.state.jobs["a"].job.offer_rules == OfferRules(region="us-east-1")
    read = codec.decode(Job, codec.encode(desk["a"].job))
    assert read == desk["a"].job
    assert codec.decode(Offer, codec.encode(EAST)) == EAST


@pytest.mark.parametrize("name", PACKERS)
@given(wishes=st.lists(st.sampled_from(["us-east-1", "us-west-2", "spot", "cheap", ""]), max_size=6))
def test_every_packer_keeps_to_the_wishes_of_each_task(name: str, wishes: list[str]) -> None:
    rules = {
        "spot": OfferRules(spot=True),
        "cheap": OfferRules(spot=False, ceiling=Money.of(2)),
        "": ANY_OFFER,
    }
    tasks = tuple(
        Task(str(n), 0, Resources.of(1, 1, 1), offer_rules=rules.get(wish, OfferRules(region=wish)))
        for n, wish in enumerate(wishes)
    )
    plan = packer(name).plan(Situation(tasks, ALL))
    assert not plan.unplaced
    assert sorted(task.job_id for launch in plan.launches for task in launch.tasks) == sorted(
        task.job_id for task in tasks
    )
    assert all(task.offer_rules.admits(launch.offer) for launch in plan.launches for task in launch.tasks)


def test_a_wish_for_the_price_holds_for_each_machine_of_a_gang() -> None:
    desk = Desk(offers=[offer("one", 1, 2)])
    gang = job("a", gang=(1, 1), cloud="only", offer_rules=OfferRules(ceiling=Money.of(2)))
    assert desk.submit(gang) == [LaunchInstance("i-000001", "one", 2)]
