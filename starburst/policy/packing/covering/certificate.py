"""Dual prices of tasks and a lower bound on cost: the relaxed covering program, by column generation.

The bound is Farley's, computed in integers, so that no floating-point tolerance can invalidate it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

import highspy
import numpy as np

from starburst.domain.money import MICRO
from starburst.policy.packing.classes import Floats, Ints
from starburst.policy.packing.covering.candidates import Candidates, Slowdown, grow
from starburst.policy.packing.covering.patterns import Columns, Items, Table, knapsacks, stacked

#: Prices of tasks are integers in 1/FINENESS of a micro-dollar, rounded down.
FINENESS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Dual price per task of each item, in 1/FINENESS of a micro-dollar per hour."""

    duals: Ints
    #: The same minus the least loss of a task beside others: its value in a pattern of several tasks.
    worth: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """The optimum of the relaxation, in fractions of instances."""

    columns: Columns
    #: Cost of each column, micro-dollars per hour; fractional number of instances.
    costs: Ints
    times: Floats
    #: Dual price per task of each item, micro-dollars per hour.
    duals: Floats
    #: The prices that prove the bound, and the bound: no plan costs less; micro-dollars per hour.
    prices: Prices
    bound: int


class ShareProgram:
    """The linear program that covers the items at least cost with fractions of instances."""

    def __init__(self, counts: Ints) -> None:
        self._solver = solver()
        size, none = len(counts), np.zeros(0, np.int32)
        most = np.full(size, highspy.kHighsInf)
        self._solver.addRows(size, counts.astype(float), most, 0, none, none, np.zeros(0))

    def add(self, columns: Columns, costs: Ints) -> None:
        """Add columns, with their costs in micro-dollars per hour."""
        size = len(columns)
        starts, rows, values = sparse(columns)
        most = np.full(size, highspy.kHighsInf)
        self._solver.addCols(size, costs / MICRO, np.zeros(size), most, len(values), starts, rows, values)

    def solve(self) -> tuple[Floats, Floats]:
        """Dual prices, micro-dollars per hour, and the fraction at which each column is used."""
        self._solver.run()
        found = self._solver.getSolution()
        duals = np.maximum(np.array(found.row_dual), 0.0) * MICRO
        return duals, np.array(found.col_value)


def solver() -> highspy.Highs:
    """A HiGHS solver without output, deterministic."""
    made = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", 0)):
        made.setOptionValue(option, value)
    return made


def sparse(columns: Columns) -> tuple[Ints, Ints, Floats]:
    """The matrix in compressed form, column by column: starts, row indices and values."""
    at, rows = np.nonzero(columns.matrix)
    starts = np.searchsorted(at, np.arange(len(columns)))
    return starts.astype(np.int32), rows.astype(np.int32), columns.matrix[at, rows].astype(float)


class Bound:
    """The relaxation with lost throughput replaced by a lower bound on it, which a table can price exactly.

    Without interference this is the relaxation itself.
    """

    def __init__(self, items: Items, *, cells: int, rough_cells: int) -> None:
        self._items = items
        self._fine = knapsacks(items, cells=cells)
        rough = knapsacks(items, cells=rough_cells)
        self._rough = (
            rough if any(np.any(r.box != f.box) for r, f in zip(rough, self._fine, strict=True)) else []
        )
        self._exact = all(k.exact for k in self._fine)
        self._loss = least_losses(items)
        self.least = 0
        self.prices = prices(items, np.zeros(len(items.counts)), self._loss)
        #: Duals of the last call of `prove`.
        self.proved: Floats | None = None

    def costs(self, columns: Columns) -> Ints:
        """Lower bound on the cost of each column."""
        lost = np.where(columns.matrix.sum(axis=1) > 1, columns.matrix @ self._loss, 0)
        costs: Ints = self._items.rate[columns.offer] + lost
        return costs

    def better(self, duals: Floats) -> Columns:
        """Columns that lower the relaxation's cost; none once the tables find no paying pattern."""
        worth = prices(self._items, duals, self._loss).worth
        found = _paying(self._items, [k.solve(worth, feasible=True) for k in self._rough])
        if len(found):
            return found
        tables = self.prove(duals)
        if not self._exact:
            tables = [k.solve(worth, feasible=True) for k in self._fine]
        return _paying(self._items, tables)

    def prove(self, duals: Floats) -> list[Table]:
        """Raise the bound if these duals prove a higher one; returns the solved tables."""
        priced = prices(self._items, duals, self._loss)
        tables = [k.solve(priced.worth, feasible=False) for k in self._fine]
        bound = lower_bound(self._items, priced, tables)
        if bound > self.least or self.proved is None:
            self.least, self.prices = bound, priced
        self.proved = duals
        return tables


def relax(items: Items, columns: Columns, *, cells: int, rough_cells: int, rounds: int) -> Relaxed:
    """Solve the relaxation in at most `rounds` rounds; the bound is valid whenever it stops."""
    bound = Bound(items, cells=cells, rough_cells=rough_cells)
    relaxed = _columns_made(items, columns, bound.costs, bound.better, rounds)
    if bound.proved is not relaxed[3]:
        bound.prove(relaxed[3])
    if items.pair is not None:
        relaxed = _columns_made(items, relaxed[0], items.costs, _Growing(items).better, rounds)
    columns, costs, times, duals = relaxed
    return Relaxed(columns, costs, times, duals, bound.prices, bound.least)


def _columns_made(
    items: Items,
    columns: Columns,
    cost_of: Callable[[Columns], Ints],
    better: Callable[[Floats], Columns],
    rounds: int,
) -> tuple[Columns, Ints, Floats, Floats]:
    """Column generation; returns columns, costs, the fractions at which they are used, and duals."""
    program = ShareProgram(items.counts)
    costs = cost_of(columns)
    program.add(columns, costs)
    duals, times = program.solve()
    for _ in range(rounds):
        found = better(duals)
        if not len(found):
            break
        priced = cost_of(found)
        columns, costs = columns + found, np.concatenate([costs, priced])
        program.add(found, priced)
        duals, times = program.solve()
    return columns, costs, times, duals


def _paying(items: Items, tables: Sequence[Table]) -> Columns:
    """The best pattern of each offer, where its value exceeds the offer's rate."""
    found = []
    for table in tables:
        for j, (k, value) in enumerate(zip(table.of.offers, table.best(), strict=True)):
            if int(value) > (int(items.rate[k]) + 1) * FINENESS:
                found.append(Columns(np.array([k]), table.pattern(j)[None, :]))
    return stacked(found, len(items.counts))


def least_losses(items: Items) -> Ints:
    """Lower bound on the loss of tasks beside others: Σ u_i over the tasks of an instance of several, I.

    Of m tasks, task i keeps at most the mean of the throughputs that it has beside each other task alone;
    this holds for products of pairs, and is assumed of recorded sets. If u_i + u_j is at most the loss of i
    and j beside each other, for all pairs, then m tasks lose at least Σ_{i<j} (u_i + u_j) / (m − 1) = Σ u_i.
    A linear program finds the best u. Micro-dollars per hour.
    """
    size = len(items.counts)
    if items.pair is None:
        return np.zeros(size, np.int64)
    slower = (1.0 - np.minimum(items.pair, 1.0)) * items.job_price[:, None]
    together = slower + slower.T
    alike = np.where(items.counts > 1, np.diag(slower), float(items.job_price.max()))
    a, b = np.triu_indices(size, 1)
    program, none = solver(), np.zeros(0, np.int32)
    program.addCols(size, -items.counts.astype(float), np.zeros(size), alike, 0, none, none, np.zeros(0))
    starts, rows = 2 * np.arange(len(a), dtype=np.int32), np.column_stack([a, b]).ravel().astype(np.int32)
    least = np.full(len(a), -highspy.kHighsInf)
    program.addRows(len(a), least, together[a, b], 2 * len(a), starts, rows, np.ones(2 * len(a)))
    program.run()
    # One micro-dollar is subtracted to cover the solver's tolerance.
    lost = np.floor(np.array(program.getSolution().col_value)) - 1
    return np.asarray(np.maximum(lost, 0), np.int64)


def prices(items: Items, duals: Floats, loss: Ints) -> Prices:
    """Integer prices from the duals of a relaxation and the least losses.

    Prices are limited to the reservation price, so that a task alone is never worth more than its instance
    costs.
    """
    whole = np.minimum(np.floor(duals * FINENESS).astype(np.int64), items.price * FINENESS)
    return Prices(whole, np.maximum(whole - loss * FINENESS, 0))


def lower_bound(items: Items, prices: Prices, tables: Sequence[Table]) -> int:
    """Lower bound on the cost of any plan, micro-dollars per hour (Farley's bound).

    The prices are feasible for the dual of the covering program if no pattern is worth more than its offer's
    rate. Otherwise all prices are scaled down by the worst ratio, which makes them feasible. Tables must be
    solved with demands rounded down.
    """
    total = _total(items, prices.duals)
    over = _most_overpriced(items, tables)
    bound = total * over[0] // over[1] if over else total
    return rounded_up(items, -(-bound // FINENESS))


def feasible(items: Items, duals: Ints, cells: int) -> tuple[int, list[Table]]:
    """Scale the duals down until no pattern is worth more than its offer's rate: their bound and tables.

    Valid only without interference; in 1/FINENESS of a micro-dollar, the bound not rounded.
    """
    found = knapsacks(items, cells=cells)
    while True:
        tables = [k.solve(duals, feasible=False, prune=False) for k in found]
        over = _most_overpriced(items, tables)
        if over is None:
            return _total(items, duals), tables
        duals = duals * over[0] // over[1]


def _total(items: Items, duals: Ints) -> int:
    return sum(int(n) * int(p) for n, p in zip(items.counts, duals, strict=True))


def _most_overpriced(items: Items, tables: Sequence[Table]) -> tuple[int, int] | None:
    """Rate and value of the pattern with the largest ratio of value to rate; None if no ratio exceeds 1."""
    worst: tuple[int, int] | None = None
    for table in tables:
        for k, value in zip(table.of.offers, table.best(), strict=True):
            rate, worth = int(items.rate[k]) * FINENESS, int(value)
            if worth > rate and (worst is None or worth * worst[0] > worst[1] * rate):
                worst = rate, worth
    return worst


def rounded_up(items: Items, bound: int) -> int:
    """The bound rounded up to the next possible cost."""
    step = unit(items)
    return -(-bound // step) * step


def unit(items: Items) -> int:
    """Greatest common divisor of all rates, micro-dollars per hour; 1 if costs include lost throughput."""
    return max(gcd(*(int(rate) for rate in items.rate)), 1) if items.pair is None else 1


class _Growing:
    """Finds columns under interference: patterns grown task by task, with all intermediate stages."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._classes = items.classes
        self._first = np.array([members[0] for members in items.members], np.int64)
        self._slowdown = Slowdown(items.classes)
        offers, seeds = np.nonzero(items.holds)
        load = np.zeros((len(seeds), len(items.classes)), np.int64)
        load[np.arange(len(seeds)), self._first[seeds]] = 1
        self._start = Candidates(offers, np.full(len(seeds), -1), load)

    def better(self, duals: Floats) -> Columns:
        """Columns that lower the relaxation's cost."""
        value = np.full(len(self._classes), -np.inf)
        value[self._first] = duals
        values = np.broadcast_to(value, self._start.load.shape).copy()
        found = []
        for by_size in (False, True):
            made = grow(self._classes, self._slowdown, self._start, values, delay_price=1.0, by_size=by_size)
            load = np.minimum(made.load[:, self._first], self._items.counts)
            found.append(Columns(made.offer, load))
        grown = stacked(found, len(duals))
        pays = grown.matrix @ duals - self._items.costs(grown)
        best = np.argsort(-pays, kind="stable")[: 4 * len(duals)]
        return grown[best[pays[best] > 1.0]]
