"""Durations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translator.duration import UNITS, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1.5h", 5400),
        ("2d", 172800),
        ("1h30m", 5400),
        ("0", 0),
        (0, 0),
        ("0.0", 0),
    ],
)
def test_reads_durations(text: str | float, expected: float) -> None:
    assert seconds(text) == expected


@given(st.integers(min_value=0, max_value=10**6), st.sampled_from(sorted(UNITS)))
def test_a_unit_multiplies(number: int, unit: str) -> None:
    assert seconds(f"{number}{unit}") == number * UNITS[unit]


@given(st.lists(st.tuples(st.integers(0, 1000), st.sampled_from("smhd")), min_size=1, max_size=4))
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    together = "".join(f"{number}{unit}" for number, unit in parts)
    assert seconds(together) == sum(seconds(f"{number}{unit}") for number, unit in parts)


@given(st.text(max_size=20) | st.text("0123456789.smhd-+e ", max_size=12))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        found = seconds(text)
    except ValueError:
        return
    assert 0 <= found < math.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("90", "a duration needs a unit; write 90s, 90m, 90h or 90d"),
        (90, "a duration needs a unit; write 90s, 90m, 90h or 90d"),
        ("-15m", "a duration cannot be negative; write 0 or a time such as 15m"),
        (-1, "a duration cannot be negative; write 0 or a time such as 15m"),
        ("9" * 400 + "s", "the duration is too long"),
        *(
            (text, "not a duration; write a number and a unit, such as 90s, 15m, 1.5h or 2d")
            for text in ("", "nan", "inf", "soon", "15 m", "15M", "2w", "1,5h", True, float("inf"))
        ),
    ],
)
def test_refuses_what_is_no_duration(text: str | float, message: str) -> None:
    with pytest.raises(ValueError) as bad:  # noqa: PT011 - the message is compared below
        seconds(text)
    assert str(bad.value) == message
