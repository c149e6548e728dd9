"""How fast workloads go with machines to themselves: what their throughput beside others is measured by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starburst.policy.packing.colocation import HALF_LIFE_S, faded

#: Rates that are remembered.
MAX_RATES = 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """Iterations a second, the weight of what was observed, and when that was last, seconds."""

    per_s: float
    weight: float
    at: float


@dataclass(slots=True)
class Alone:
    """Iterations/s by what runs on what. An older observation weighs half after every half-life; of too many
    rates the one least recently observed goes."""

    _rates: dict[str, Rate] = field(default_factory=dict)

    def per_s(self, what: str) -> float | None:
        """Iterations a second; None if it was never seen alone."""
        rate = self._rates.get(what)
        return None if rate is None else rate.per_s

    def observe(self, what: str, per_s: float, *, now: float) -> None:
        """It ran at this rate with nobody beside it."""
        old = self._rates.pop(what, None)
        mean, kept = per_s, 0.0
        if old is not None:
            mean, kept = faded(old.per_s, old.weight, per_s, age_s=now - old.at, half_life_s=HALF_LIFE_S)
        self._rates[what] = Rate(mean, kept + 1.0, now)
        while len(self._rates) > MAX_RATES:
            del self._rates[next(iter(self._rates))]

    def snapshot(self) -> list[list[Any]]:
        """All of it as plain data, for `restored`."""
        return [[what, rate.per_s, rate.weight, rate.at] for what, rate in self._rates.items()]

    @classmethod
    def restored(cls, snapshot: list[list[Any]]) -> Alone:
        """What `snapshot` was taken of."""
        return cls({what: Rate(*figures) for what, *figures in snapshot})
