"""The books of the rented machines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.core.parts.fleet import Fleet
from starburst.core.parts.join_search import Leaver
from starburst.domain.money import Money
from starburst.policy.cost_allocation import Use
from starburst.policy.packing.packers.none import NoPacking
from tests.builders import job, offer


@given(st.integers(0, 10**9), st.integers(1, 9), st.floats(0, 1e6))
def test_a_shared_bill_is_split_to_the_last_micro_dollar(rate: int, sharers: int, seconds: float) -> None:
    fleet = Fleet(NoPacking())
    fleet.offers = {"small": offer("small", dollars=rate / 1e6)}
    (machine,) = fleet.pack([Leaver(job("j0"), 60.0)], {}, 0.0).launched.values()
    machine.billed_to = [f"j{n}" for n in range(sharers)]
    machine.uses = [Use(name, 0.25, 0.0) for name in machine.billed_to]
    machine.launched_at, machine.ended_at = 0.0, seconds
    shares = fleet.settle(machine)
    assert sum(shares.values()) == fleet.settled.micro_usd == machine.micro_usd
    assert max(shares.values()) - min(shares.values()) <= 1
    assert fleet.instances == {}


def test_prices_are_found_once_for_each_list_of_offers_that_a_step_asks_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While an offer is paused, a job that waits is priced with all, with those that remain, and again."""
    fleet, found = Fleet(NoPacking()), []
    price = fleet._price
    monkeypatch.setattr(fleet, "_price", lambda *asked: [found.append(1), price(*asked)][1])
    fleet.offers = {o.name: o for o in (offer("a", dollars=3), offer("b", dollars=7))}
    fleet.paused = {"a": 300.0}
    for number in range(50):
        for offers in (fleet.available(0.0), fleet.permitted()):
            fleet.price(job(f"j{number}"), offers)
    assert len(found) == 2


def test_an_unknown_price_counts_as_the_dearest_known_one() -> None:
    fleet = Fleet(NoPacking())
    unknown = offer("unknown", dollars=None)
    fleet.offers = {o.name: o for o in (unknown, offer("a", dollars=3), offer("b", dollars=7))}
    assert fleet.rate(unknown) == Money.of(7)
