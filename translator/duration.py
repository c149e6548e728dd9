"""Durations as people write them: 90s, 15m, 1.5h, 2d."""

from __future__ import annotations

import math
import re

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def seconds(value: str | int | float) -> float:
    """A duration in seconds; parts add up ("1h30m"), and a bare 0 needs no unit.

    Raises:
        ValueError: `value` is not a duration, is negative, or has no unit.
    """
    text = "" if isinstance(value, bool) else str(value).strip()
    if _DURATION.fullmatch(text):
        total = math.fsum(float(number) * UNITS[unit] for number, unit in _PART.findall(text))
        if math.isinf(total):
            raise ValueError("the duration is too long")
        return total
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number == 0:
        return 0.0
    if text.startswith("-"):
        raise ValueError("a duration cannot be negative; write 0 or a time such as 15m")
    if math.isfinite(number):
        raise ValueError(f"a duration needs a unit; write {text}s, {text}m, {text}h or {text}d")
    raise ValueError("not a duration; write a number and a unit, such as 90s, 15m, 1.5h or 2d")
