"""A proven lower bound of the cloud bill at a sum of delays, by ascent of the dual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.bound.dual import Starts, starts_count
from sim.bound.problem import BurstProblem
from sim.trace import Floats

#: Intervals of the first grid; each finer grid has four times as many.
COARSE, FINER = 256, 4
FINEST = 65_536
#: Steps on each grid.
STEPS = 120
#: Length of the first step, how fast steps shorten, and how much of the last direction a step keeps.
FIRST_STEP, DECAY_STEPS, MOMENTUM = 0.5, 10, 0.8
#: Most starts that are looked at in one step; finer grids are left out, which only lowers the bound.
MOST_STARTS = 1_500_000
#: λ may fall by this factor before the starts are collected anew.
SLACK = 1.3
#: Against rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class LowerBound:
    """Prices, and the bound that they prove."""

    #: GPU-hours per hour of delay.
    delay_price: float
    edges: Floats
    #: A row per resource of the problem.
    prices: Floats
    #: The dual's value without λ·D, GPU-hours.
    value: float

    def at(self, delay_h: float) -> float:
        """GPU-hours that every schedule is charged whose delays sum to at most this many hours."""
        proven = self.value - self.delay_price * delay_h
        return max(0.0, proven - ROUNDING * abs(self.value))


def lower_bound(problem: BurstProblem, delay_h: float) -> LowerBound:
    """The best bound found for schedules whose delays sum to at most `delay_h` hours."""
    work = problem.demand @ problem.duration_h
    if not work.all() or not problem.cost.sum():
        return LowerBound(1.0, np.array([0.0, 1.0]), np.zeros((len(work), 1)), 0.0)
    ascent = _Ascent(problem, max(delay_h, 1e-9 * problem.duration_h.sum()), problem.cost.sum() / work)
    intervals = COARSE
    most = min(FINEST, max(COARSE, FINER * FINER * len(problem)))
    while intervals <= most and ascent.climb(intervals):
        intervals *= FINER
    return ascent.best


class _Ascent:
    """Projected subgradient steps; a price rises where jobs want more than there is."""

    def __init__(self, problem: BurstProblem, delay_h: float, unit: Floats) -> None:
        """`unit`: GPU-hours charged per resource-hour on average, the scale of prices."""
        self._problem, self._delay_h, self._unit = problem, delay_h, unit
        ends = problem.arrival_h + problem.duration_h
        last = max(float(np.quantile(ends, 0.999)), float(problem.arrival_h[-1]))
        self._span = float(problem.arrival_h[0]), last + 1e-6
        self._delay_price = 0.2 * problem.cost.sum() / delay_h
        self._prices = np.zeros((len(unit), 1))
        self._level = 0
        self.best = LowerBound(self._delay_price, np.array(self._span), self._prices, 0.0)

    def climb(self, intervals: int) -> bool:
        """Steps on a grid of this many intervals; False if a finer grid is of no use."""
        edges = np.linspace(*self._span, intervals + 1)
        self._prices = np.repeat(self._prices, intervals // self._prices.shape[1], axis=1)
        starts: Starts | None = None
        dearer, longer = np.zeros_like(self._prices), 0.0
        for step in range(STEPS):
            if starts is None or not 1 <= self._delay_price / starts.delay_price <= SLACK**2:
                if starts_count(self._problem, edges, self._delay_price / SLACK) > MOST_STARTS:
                    return False
                starts = Starts(self._problem, edges, self._delay_price / SLACK)
            point = starts.dual(self._delay_price, self._prices)
            found = LowerBound(self._delay_price, edges, self._prices, point.value)
            if found.at(self._delay_h) > self.best.at(self._delay_h):
                self.best = found
            over = point.excess / np.outer(self._problem.capacity, np.diff(edges))
            late = np.log(max(point.delay_h, 1e-9 * self._delay_h) / self._delay_h)
            dearer = MOMENTUM * dearer + (1 - MOMENTUM) * np.clip(over, -1, 1)
            longer = MOMENTUM * longer + (1 - MOMENTUM) * float(np.clip(late, -1, 1))
            size = FIRST_STEP / (1 + step / DECAY_STEPS) / (1 + self._level)
            self._prices = np.maximum(0.0, self._prices + size * self._unit[:, None] * dearer)
            self._delay_price *= float(np.exp(np.clip(size / 2 * longer, -0.2, 0.2)))
        self._prices, self._delay_price = self._resumed(intervals)
        self._level += 1
        return self._level == 1 or self.best.at(self._delay_h) > 0

    def _resumed(self, intervals: int) -> tuple[Floats, float]:
        """Where the next grid begins: at the best prices, if they are of this grid."""
        if self.best.prices.shape[1] == intervals:
            return self.best.prices, self.best.delay_price
        return self._prices, self._delay_price
