"""Money is counted in whole micro-dollars."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.domain.money import Money


@pytest.mark.parametrize(
    ("dollars", "micro"),
    [
        ("12.24", 12_240_000),
        (3, 3_000_000),
        (0.1, 100_000),
        (Decimal("0.0000005"), 1),  # half a micro-dollar goes up
        (Decimal("0.00000049"), 0),
        ("-1.5", -1_500_000),
    ],
)
def test_dollars_become_the_nearest_micro_dollar(dollars: Any, micro: int) -> None:
    assert Money.of(dollars) == Money(micro)


@pytest.mark.parametrize("nonsense", ["", "twelve", "nan", "inf", float("nan"), float("inf")])
def test_what_is_not_an_amount_is_refused_by_name(nonsense: Any) -> None:
    with pytest.raises(ValueError, match="is not an amount of dollars"):
        Money.of(nonsense)


def test_adding_taking_away_and_multiplying_are_exact() -> None:
    assert Money.of("0.1") + Money.of("0.2") == Money.of("0.3")
    assert Money.of("1") - Money.of("0.000001") == Money(999_999)
    assert Money.of("0.1") * 30 == Money.of("3")


def test_amounts_compare_by_value() -> None:
    assert max(Money.of(2), Money.of(10), Money.of(9)) == Money.of(10)


def test_a_rate_is_billed_by_the_second() -> None:
    assert Money.of("3.6").for_seconds(1) == Money.of("0.001")
    assert Money.of("12.24").for_seconds(5400) == Money.of("18.36")
    assert Money.of("1").for_seconds(0) == Money()


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Money(), "$0.00"),
        (Money.of("18.36"), "$18.36"),
        (Money.of("1234.5"), "$1234.50"),
        (Money.of("0.005"), "$0.0050"),
        (Money.of("0.01"), "$0.01"),
        (Money.of("2.345"), "$2.35"),
        (Money.of("-2.5"), "-$2.50"),
    ],
)
def test_people_see_cents_or_of_small_change_a_hundredth_of_a_cent(amount: Money, text: str) -> None:
    assert str(amount) == text


@given(st.integers(-(10**15), 10**15))
def test_dollars_lose_nothing(micro: int) -> None:
    assert Money.of(Money(micro).dollars) == Money(micro)
