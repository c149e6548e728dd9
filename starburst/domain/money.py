"""Money as integer micro-dollars, so that sums of bills are exact."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

MICRO = 1_000_000


@dataclass(frozen=True, slots=True, order=True)
class Money:
    """An amount of US dollars in integer micro-dollars."""

    micro_usd: int = 0

    @classmethod
    def of(cls, dollars: str | int | float | Decimal) -> Money:
        """An amount given in dollars, rounded half up to a micro-dollar.

        Raises:
            ValueError: `dollars` is not a finite number.
        """
        try:
            amount = Decimal(str(dollars)) * MICRO
            return cls(int(amount.to_integral_value(ROUND_HALF_UP)))
        except (InvalidOperation, OverflowError, ValueError):
            raise ValueError(f"{dollars!r} is not an amount of dollars") from None

    def for_seconds(self, seconds: float) -> Money:
        """Cost of `seconds` at this rate per hour, rounded to the nearest micro-dollar."""
        return Money(round(self.micro_usd * seconds / 3600))

    @property
    def dollars(self) -> Decimal:
        """The amount in dollars, exact."""
        return Decimal(self.micro_usd) / MICRO

    def __add__(self, other: Money) -> Money:
        return Money(self.micro_usd + other.micro_usd)

    def __sub__(self, other: Money) -> Money:
        return Money(self.micro_usd - other.micro_usd)

    def __mul__(self, times: int) -> Money:
        return Money(self.micro_usd * times)

    def __str__(self) -> str:
        """Dollars with two decimals; below a cent with four."""
        small = 0 < abs(self.micro_usd) < 10_000
        amount = abs(self.dollars).quantize(Decimal("0.0001" if small else "0.01"), ROUND_HALF_UP)
        return f"{'-' if self.micro_usd < 0 else ''}${amount}"
