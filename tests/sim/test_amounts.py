"""Figures of reports as texts: no negative zero, no 7e-05 h."""

from __future__ import annotations

import pytest

from sim.reports.amounts import dollars, percent, span


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0.0, "0 s"),
        (7.02e-05, "0.25 s"),
        (0.0011, "3.96 s"),
        (0.03, "1.8 min"),
        (1.5834, "1.583 h"),
        (19.25, "19.25 h"),
    ],
)
def test_short_durations_are_told_in_seconds_or_minutes(hours: float, text: str) -> None:
    assert span(hours) == text


def test_a_percentage_has_no_negative_zero() -> None:
    assert [percent(-0.01), percent(18.66), percent(-3.0)] == ["0.0 %", "18.7 %", "-3.0 %"]
    assert [percent(-0.01, signed=True), percent(1.84, signed=True)] == ["+0.0 %", "+1.8 %"]


def test_small_amounts_have_cents() -> None:
    assert [dollars(0.0), dollars(0.0123), dollars(-0.001), dollars(9.5)] == ["$0", "$0.01", "$0.00", "$9.50"]
    assert dollars(4386.2) == "$4,386"
