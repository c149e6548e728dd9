"""Rates of workloads that run alone, by which their rates beside others are normalised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starburst.policy.packing.colocation import HALF_LIFE_S, faded

#: Largest number of remembered rates.
MAX_RATES = 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """Iterations per second, the weight of the observations, and the time of the last one, seconds."""

    per_s: float
    weight: float
    at: float


@dataclass(slots=True)
class Alone:
    """Rate (iterations per second) per key of tasks and hardware; weights of observations fade.

    A weight halves every half-life. Above MAX_RATES entries the one observed least recently is dropped.
    """

    _rates: dict[str, Rate] = field(default_factory=dict)

    def per_s(self, what: str) -> float | None:
        """Iterations per second; None if it was never observed alone."""
        rate = self._rates.get(what)
        return None if rate is None else rate.per_s

    def observe(self, what: str, per_s: float, *, now: float) -> None:
        """Record a rate observed while no other task ran on the instance."""
        old = self._rates.pop(what, None)
        mean, kept = per_s, 0.0
        if old is not None:
            mean, kept = faded(old.per_s, old.weight, per_s, age_s=now - old.at, half_life_s=HALF_LIFE_S)
        self._rates[what] = Rate(mean, kept + 1.0, now)
        while len(self._rates) > MAX_RATES:
            del self._rates[next(iter(self._rates))]

    def snapshot(self) -> list[list[Any]]:
        """All rates as plain data, for `restored`."""
        return [[what, rate.per_s, rate.weight, rate.at] for what, rate in self._rates.items()]

    @classmethod
    def restored(cls, snapshot: list[list[Any]]) -> Alone:
        """The rates of a `snapshot`."""
        return cls({what: Rate(*figures) for what, *figures in snapshot})
