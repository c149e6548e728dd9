"""Kubernetes quantities."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translator.quantity import FACTORS, LARGEST, quantity

amounts = st.integers(min_value=0, max_value=10**6)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (1, 1),
        (0, 0),
        (1.5, Fraction(3, 2)),
        (0.1, Fraction(1, 10)),
        ("1", 1),
        ("+2", 2),
        (".5", Fraction(1, 2)),
        ("2.", 2),
        ("500m", Fraction(1, 2)),
        ("250u", Fraction(1, 4000)),
        ("7n", Fraction(7, 10**9)),
        ("3k", 3000),
        ("2G", 2 * 10**9),
        ("1.5Gi", 3 * 2**29),
        ("1Ki", 1024),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("5e-1", Fraction(1, 2)),
    ],
)
def test_reads_what_kubernetes_reads(text: str | float, amount: Fraction | int) -> None:
    assert quantity(text) == amount


@given(amounts, st.sampled_from(sorted(FACTORS.keys() - {"P", "E", "Pi", "Ei"})))
def test_a_suffix_multiplies(number: int, suffix: str) -> None:
    assert quantity(f"{number}{suffix}") == number * FACTORS[suffix]


@given(amounts, st.integers(min_value=-12, max_value=12), st.sampled_from("eE"))
def test_an_exponent_multiplies(number: int, exponent: int, e: str) -> None:
    assert quantity(f"{number}{e}{exponent}") == number * Fraction(10) ** exponent


@given(st.decimals(min_value=0, max_value=10**9, places=6))
def test_decimals_are_exact(number: object) -> None:
    assert quantity(f"{number:f}") == Fraction(f"{number:f}")


@given(st.floats(min_value=0, max_value=1e15))
def test_a_yaml_float_is_what_it_shows(number: float) -> None:
    assert quantity(number) == Fraction(repr(number))


@given(st.text(max_size=20) | st.text("0123456789.eEnumkKMGTPi+-", max_size=12))
def test_any_text_is_an_amount_or_refused(text: str) -> None:
    try:
        amount = quantity(text)
    except ValueError:
        return
    assert 0 <= amount <= LARGEST


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1", "a quantity cannot be negative"),
        (-0.5, "a quantity cannot be negative"),
        ("9Ei", "the quantity is too large; it must be below 2^63"),
        ("1e999", "the quantity is too large; it must be below 2^63"),
        ("16GB", "not a Kubernetes quantity; write 16Gi or 16G"),
        ("4KB", "not a Kubernetes quantity; write 4Ki or 4k"),
        ("4K", "not a Kubernetes quantity; write 4Ki or 4k"),
        *(
            (text, "not a Kubernetes quantity; write a number such as 2, 500m, 1.5Gi or 2G")
            for text in (
                "",
                "NaN",
                "inf",
                float("nan"),
                float("inf"),
                "1 Gi",
                "Gi",
                "1e",
                "0x10",
                "٣",
                "1_0",
                True,
            )
        ),
        ("9" * 400, "not a Kubernetes quantity; write a number such as 2, 500m, 1.5Gi or 2G"),
    ],
)
def test_refuses_what_is_no_amount(text: str | float, message: str) -> None:
    with pytest.raises(ValueError) as bad:  # noqa: PT011 - the message is compared below
        quantity(text)
    assert str(bad.value) == message
