"""Hours, percentages and dollars as texts, with as many digits as say something."""

from __future__ import annotations

from starburst.policy.waiting import hours

HOUR_S = 3600.0
#: Hours below which a duration is told in minutes or seconds.
SHORT_H = 0.05
#: Dollars below which cents count.
FEW_USD = 10


def span(hours_: float, digits: int = 4) -> str:
    """A duration in hours, if short in minutes or seconds: "1.583 h", "4 s"."""
    return f"{hours_:.{digits}g} h" if hours_ >= SHORT_H else hours(hours_ * HOUR_S)


def percent(value: float, *, signed: bool = False) -> str:
    """A percentage with one decimal and no negative zero: "18.7 %", "+1.8 %"."""
    told = round(value, 1) + 0.0  # -0.0 + 0.0 is 0.0
    return f"{told:+.1f} %" if signed else f"{told:.1f} %"


def dollars(value: float) -> str:
    """Dollars, of small amounts with cents: "$4,386", "$0.12"."""
    return f"${value:,.0f}" if abs(value) >= FEW_USD or not value else f"${round(value, 2) + 0.0:,.2f}"
