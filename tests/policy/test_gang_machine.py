"""Which machines a gang gets: one that holds all its tasks, or several of one kind, whichever costs less."""

from __future__ import annotations

import pytest

from starburst.domain.cloud import Offer, OfferRules
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.gangs import assign, gang_machine
from tests.builders import offer

SMALL, BIG = offer("small", 1, 3.0), offer("big", 8, 25.0)


def tasks(*gpus: int, **more: object) -> list[Task]:
    return [Task("a", rank, Resources.of(n, 1, 1), **more) for rank, n in enumerate(gpus)]  # type: ignore[arg-type]


def chosen(
    *gpus: int, offers: tuple[Offer, ...] = (BIG, SMALL), spread: bool = False
) -> tuple[str, tuple[int, ...]]:
    found = gang_machine(tasks(*gpus), offers, spread=spread)
    assert not isinstance(found, str), found
    return found.offer.title, found.nodes


def test_a_small_gang_goes_onto_one_machine_when_that_costs_no_more() -> None:
    two = offer("two", 2, 6.0)
    assert chosen(1, 1, offers=(SMALL, two)) == ("two", (0, 0))
    found = gang_machine(tasks(1, 1), (SMALL, two))
    assert not isinstance(found, str)
    assert found.why == "it holds all 2 tasks, and 2 × small at $6.00/h would not cost less"


def test_it_goes_onto_several_when_they_cost_less() -> None:
    assert chosen(1, 1, 1) == ("3 × small", (0, 1, 2))
    found = gang_machine(tasks(1, 1, 1), (BIG, SMALL))
    assert not isinstance(found, str)
    assert found.offer.price_per_hour == Money.of(9)
    assert found.why == "cheaper than big at $25.00/h, which holds all 3 tasks"


def test_a_gang_that_no_machine_holds_gets_several_of_one_kind() -> None:
    assert chosen(8, 8) == ("2 × big", (0, 1))
    assert chosen(4, 4, 4) == ("2 × big", (0, 0, 1))
    found = gang_machine(tasks(8, 8), (BIG, SMALL))
    assert not isinstance(found, str)
    assert found.why == "no machine holds all 2 tasks"


def test_unequal_tasks_are_packed_largest_first() -> None:
    assert chosen(2, 6, 8) == ("2 × big", (1, 1, 0))


def test_spread_tasks_have_a_machine_each() -> None:
    assert chosen(4, 4, spread=True) == ("2 × big", (0, 1))


def test_what_is_lacking_is_said() -> None:
    assert gang_machine(tasks(16, 1), (BIG,)) == "no offer has 16 GPUs (the largest has 8)"
    kinds = [
        Task("a", 0, Resources.of(1, 1, 1, "V100")),
        Task("a", 1, Resources.of(1, 1, 1, "A100")),
    ]
    v100, a100 = offer("v", 1, gpu_type="V100"), offer("a", 1, gpu_type="A100")
    told = "no offer holds each of its tasks, and the machines of a gang are of one kind"
    assert gang_machine(kinds, (v100, a100)) == told


def test_a_rule_on_offers_holds_for_each_machine() -> None:
    cheap = OfferRules(ceiling=Money.of(5))
    found = gang_machine(tasks(1, 1, offer_rules=cheap), (BIG, SMALL))
    assert not isinstance(found, str)
    assert found.offer.title == "2 × small"


def test_an_unknown_price_counts_as_the_dearest() -> None:
    unknown = offer("unknown", 8, None)
    assert chosen(4, 4, offers=(unknown, BIG)) == ("big", (0, 0))
    assert chosen(4, 4, 4, offers=(unknown,)) == ("2 × unknown", (0, 0, 1))


@pytest.mark.parametrize("size", [1, 5, 64])
def test_equal_tasks_stand_in_order_and_fit(size: int) -> None:
    nodes = assign(tasks(*[3] * size), BIG)
    assert nodes == tuple(rank // 2 for rank in range(size))
