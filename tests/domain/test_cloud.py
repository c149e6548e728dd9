"""Offers in the order they are worth asking for."""

from __future__ import annotations

from tests.builders import offer


def test_offers_rank_by_price_then_name_and_an_unknown_price_is_the_dearest() -> None:
    offers = [offer("x", dollars=None), offer("c", dollars=2), offer("b", dollars=2), offer("a", dollars=9)]
    assert [o.name for o in sorted(offers, key=lambda o: o.rank)] == ["b", "c", "a", "x"]


def test_an_offer_for_free_is_still_a_known_price() -> None:
    offers = [offer("free", dollars=0), offer("unknown", dollars=None)]
    assert min(offers, key=lambda o: o.rank).name == "free"
