"""The Lagrangian dual of the problem: prices of GPUs over time and of delay, and what each job does at them.

With prices p(τ) ≥ 0 of an hour of each resource at time τ, and λ ≥ 0 of an hour of delay, in GPU-hours
of the cloud, the bill of every schedule whose delays sum to D is at least

    Σ min( cost + λ·extra,  min over s ≥ arrival of λ·(s − arrival) + demand·∫ p over [s, s + duration] )
      − capacity·∫ p − λ·D,

since its jobs pay no less than that for what they use, and use no more than the capacity. This holds for all
prices, good or bad. p is constant between edges, so a job's best start is its arrival, an edge, or a duration
before an edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sim.bound.problem import BurstProblem
from sim.trace import Bools, Floats, Ints


class DualPoint(NamedTuple):
    """The dual at certain prices."""

    #: The bound without its last term, GPU-hours.
    value: float
    #: Sum of the delays that jobs choose, hours.
    delay_h: float
    #: Resource-hours that jobs use between edges above what the cluster has; a row per resource.
    excess: Floats
    #: What each job pays on the cluster, from when it would run there, and whether it does.
    price: Floats
    start_h: Floats
    stays: Bools


class Starts:
    """All starts that can be best for some job at delay price `delay_price`, for jobs one after the other."""

    def __init__(self, problem: BurstProblem, edges: Floats, delay_price: float) -> None:
        self._problem, self._edges, self.delay_price = problem, edges, delay_price
        jobs = np.arange(len(problem))
        starts, owners = [problem.arrival_h], [jobs]
        for shift_h, first, count in _windows(problem, edges, delay_price):
            owner = np.repeat(jobs, count)
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            starts.append(edges[np.repeat(first, count) + within] - shift_h[owner])
            owners.append(owner)
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        self._owner, self._start_h = owner[order], np.concatenate(starts)[order]
        self._first = np.searchsorted(self._owner, jobs)
        self._begin = _place(edges, self._start_h)
        self._end = _place(edges, self._start_h + problem.duration_h[self._owner])
        self._delay_h = self._start_h - problem.arrival_h[self._owner]
        self._demand = problem.demand[:, self._owner]

    def dual(self, delay_price: float, prices: Floats) -> DualPoint:
        """The dual at these prices of resource-hours between edges; λ not below the constructor's."""
        assert delay_price >= self.delay_price
        problem, edges = self._problem, self._edges
        spent = np.column_stack((prices * np.diff(edges), np.zeros(len(prices))))
        paid = np.cumsum(spent, axis=1) - spent
        pays = delay_price * self._delay_h
        for demand, at, rise in zip(self._demand, paid, spent, strict=True):
            pays += demand * (_at(at, rise, self._end) - _at(at, rise, self._begin))
        best = np.minimum.reduceat(pays, self._first)
        chosen = self._start_h[self._argmin(pays, best)]
        cloud = problem.cost + delay_price * problem.extra_h
        stays = best <= cloud
        delay_h = np.where(stays, chosen - problem.arrival_h, problem.extra_h)
        return DualPoint(
            value=float(np.minimum(best, cloud).sum() - problem.capacity @ paid[:, -1]),
            delay_h=float(delay_h.sum()),
            excess=self._used(chosen, stays) - np.outer(problem.capacity, np.diff(edges)),
            price=best,
            start_h=chosen,
            stays=stays,
        )

    def _argmin(self, pays: Floats, best: Floats) -> Ints:
        """The first best start of each job, by its place among all starts."""
        tied = np.flatnonzero(pays == best[self._owner])
        return tied[np.searchsorted(self._owner[tied], np.arange(len(self._problem)))]

    def _used(self, start_h: Floats, stays: Bools) -> Floats:
        """Resource-hours used between edges."""
        begin, end = start_h[stays], (start_h + self._problem.duration_h)[stays]
        rows = [
            np.diff(_ramps(self._edges, begin, demand) - _ramps(self._edges, end, demand))
            for demand in self._problem.demand[:, stays]
        ]
        return np.array(rows).reshape(-1, len(self._edges) - 1)


def starts_count(problem: BurstProblem, edges: Floats, delay_price: float) -> int:
    """How many starts `Starts` would hold."""
    return len(problem) + sum(int(count.sum()) for _, _, count in _windows(problem, edges, delay_price))


def _windows(problem: BurstProblem, edges: Floats, delay_price: float) -> Iterator[tuple[Floats, Ints, Ints]]:
    """Per job the edges from its arrival, or its first end, on, until waiting costs more than the cloud."""
    window_h = problem.cost / delay_price + problem.extra_h
    for shift_h in (np.zeros(len(problem)), problem.duration_h):
        begin = problem.arrival_h + shift_h
        first = np.searchsorted(edges, begin, side="right")
        yield shift_h, first, np.searchsorted(edges, begin + window_h, side="right") - first


def _place(edges: Floats, at: Floats) -> tuple[Ints, Floats]:
    """The interval that each time is in, and how far into it, 0 to 1; beyond the edges: at the nearest."""
    interval = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(edges) - 2)
    return interval, np.clip((at - edges[interval]) / (edges[interval + 1] - edges[interval]), 0.0, 1.0)


def _at(paid: Floats, spent: Floats, place: tuple[Ints, Floats]) -> Floats:
    interval, into = place
    return paid[interval] + into * spent[interval]


def _ramps(edges: Floats, begin: Floats, demand: Floats) -> Floats:
    """Σ demand · hours since begin, of what began, at each edge."""
    interval = np.searchsorted(edges, begin, side="left")
    size = len(edges) + 1
    rate = np.cumsum(np.bincount(interval, demand, size))[:-1]
    moment = np.cumsum(np.bincount(interval, demand * begin, size))[:-1]
    return edges * rate - moment
