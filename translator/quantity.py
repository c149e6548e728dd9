"""Kubernetes quantities: "500m" CPUs, "1.5Gi" of memory, as exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}

#: Kubernetes keeps quantities in 64 bits.
LARGEST = 2**63 - 1

_QUANTITY = re.compile(
    r"\+?(?P<number>[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)


def quantity(value: str | int | float) -> Fraction:
    """The value of a quantity in its base unit (CPUs, bytes, GPUs).

    Raises:
        ValueError: `value` is not a quantity, is negative, or exceeds 64 bits.
    """
    text = "" if isinstance(value, bool) else str(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(_mend(text))
    scale = FACTORS[match["suffix"] or ""] * Fraction(10) ** int(match["exponent"] or 0)
    amount = Fraction(match["number"]) * scale
    if amount > LARGEST:
        raise ValueError("the quantity is too large; it must be below 2^63")
    return amount


def _mend(text: str) -> str:
    if text.startswith("-") and _QUANTITY.fullmatch(text[1:]):
        return "a quantity cannot be negative"
    number, suffix = text[:-2], text[-2:]
    if suffix in {"KB", "MB", "GB", "TB", "kB"} and _QUANTITY.fullmatch(number):
        unit = suffix[0].upper()
        return f"not a Kubernetes quantity; write {number}{unit}i or {number}{unit.replace('K', 'k')}"
    if text.endswith("K") and _QUANTITY.fullmatch(text[:-1]):
        return f"not a Kubernetes quantity; write {text}i or {text[:-1]}k"
    return "not a Kubernetes quantity; write a number such as 2, 500m, 1.5Gi or 2G"
