"""Instances of least cost for given tasks, with a lower bound that limits the distance to the optimum.

A covering program with one column per pattern (an offer and a number of tasks of each class). Columns are
generated on demand: Gilmore and Gomory's method for cutting stock, extended to several resources and offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np

from starburst.policy.packing.classes import Classes, Ints
from starburst.policy.packing.covering.certificate import (
    FINENESS,
    Relaxed,
    feasible,
    relax,
    rounded_up,
    solver,
    sparse,
    unit,
)
from starburst.policy.packing.covering.patterns import (
    Columns,
    Items,
    Pool,
    alone,
    cheapest,
    items_of,
    stacked,
)
from starburst.policy.packing.throughput import NO_INTERFERENCE, Throughput

#: Offer index, tasks of each class on one instance, and number of such instances.
Pattern = tuple[int, Ints, int]
FEASIBLE = highspy.SolutionStatus.kSolutionStatusFeasible
#: Relative safety margin for the floating-point bound of the search.
SAFE = 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the work for a plan. None of them is a time, so results are reproducible."""

    #: Cells of the tables that prove the bound, and of those that only search for patterns.
    cells: int = 2**19
    rough_cells: int = 2**14
    #: Rounds of column generation.
    rounds: int = 200
    #: Nodes of branch and bound over the generated columns; 0 only rounds the relaxation.
    nodes: int = 300
    #: Most columns enumerated to prove an optimum (0: no attempt), and nodes of the search among them.
    columns: int = 4000
    proof_nodes: int = 5000
    #: Relative gap to the bound at which the search stops.
    gap: float = 0.0
    #: Columns kept for the next call.
    pool: int = 600


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """A plan in classes, with a lower bound."""

    #: Each task is in exactly one instance.
    patterns: tuple[Pattern, ...]
    #: Rent of the instances, and value of the throughput lost in them; micro-dollars per hour.
    cost_micro: int
    loss_micro: int
    #: Lower bound on the sum of both.
    bound_micro: int
    pool: Pool

    @property
    def optimal(self) -> bool:
        """Whether the plan is proven optimal."""
        return self.cost_micro + self.loss_micro <= self.bound_micro

    @property
    def gap(self) -> float:
        """Largest possible saving of a better plan, as a share of cost plus loss."""
        total = self.cost_micro + self.loss_micro
        return (total - self.bound_micro) / total if total else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Whole:
    """Columns with integer multiplicities; tasks may be covered more than once."""

    columns: Columns
    times: Ints
    #: Micro-dollars per hour.
    cost: int


def cover(
    classes: Classes,
    counts: Ints,
    *,
    throughput: Throughput = NO_INTERFERENCE,
    start: Sequence[Pattern] = (),
    pool: Pool | None = None,
    limits: Limits | None = None,
) -> Cover:
    """Instances for `counts` tasks of each class, at the least cost plus loss found.

    `start` is a known plan, and the result is never worse; `pool` comes from an earlier result.
    """
    pool, limits = pool or Pool(), limits or Limits()
    items = items_of(classes, counts, throughput)
    if not len(items.counts):
        return Cover((), 0, 0, 0, pool)
    known = _known(items, start)
    first = stacked([alone(items), known.columns, pool.columns(items)], len(items.counts))
    relaxed = relax(items, first, cells=limits.cells, rough_cells=limits.rough_cells, rounds=limits.rounds)
    found, bound = _search(items, relaxed, limits)
    answers = [_trimmed(items, found), *([known] if start else [])]
    best = min(answers, key=lambda answer: answer.cost)
    rent = int(items.rate[best.columns.offer] @ best.times)
    kept = _useful(relaxed, limits.pool // 2)
    return Cover(
        patterns=_by_class(items, best, counts),
        cost_micro=rent,
        loss_micro=best.cost - rent,
        bound_micro=min(bound, best.cost),
        pool=Pool.of(items, kept + best.columns, pool, limits.pool),
    )


def _search(items: Items, relaxed: Relaxed, limits: Limits) -> tuple[_Whole, int]:
    """An integer solution and a bound: over the generated columns, then over all that can improve it."""
    found = _rounded(items, relaxed)
    bound = relaxed.bound
    if found.cost - bound <= limits.gap * found.cost or not limits.nodes:
        return found, bound
    found, _ = _branched(items, relaxed.columns, found, bound, limits)
    near = found.cost - bound <= limits.gap * found.cost
    if near or items.pair is not None or not limits.columns:
        return found, bound
    listed = _all_within(items, relaxed, found.cost - unit(items), limits)
    if listed is None:
        return found, bound
    thorough = replace(limits, nodes=limits.proof_nodes)
    found, least = _branched(items, listed, found, bound, thorough)
    return found, min(max(bound, least), found.cost)


def _rounded(items: Items, relaxed: Relaxed) -> _Whole:
    """The relaxed solution rounded down; the rest is covered greedily by dual value per cost."""
    times = np.floor(relaxed.times + 1e-6).astype(np.int64)
    columns, matrix = relaxed.columns, relaxed.columns.matrix
    left = np.maximum(items.counts - times @ matrix, 0)
    duals = np.maximum(relaxed.duals, 1.0)
    while left.any():
        worth = np.minimum(matrix, left) @ duals / np.maximum(relaxed.costs, 1)
        p = int(np.argmax(worth))
        some = matrix[p] > 0
        more = max(int((left[some] // matrix[p][some]).min()), 1)
        times[p] += more
        left = np.maximum(left - more * matrix[p], 0)
    used = np.flatnonzero(times)
    return _Whole(columns[used], times[used], int(relaxed.costs @ times))


def _branched(
    items: Items, columns: Columns, start: _Whole, bound: int, limits: Limits
) -> tuple[_Whole, int]:
    """The best choice of these columns found by branch and bound, and a lower bound over these columns.

    The search is limited by nodes, not by time.
    """
    columns = stacked([start.columns, columns], len(items.counts))
    costs = items.costs(columns)
    search, step = solver(), unit(items)
    starts, rows, values = sparse(columns)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(columns), len(items.counts)
    model.col_cost_ = costs / step
    model.col_lower_ = np.zeros(len(columns))
    model.col_upper_ = np.full(len(columns), float(items.counts.max()))
    model.row_lower_ = items.counts.astype(float)
    model.row_upper_ = np.full(len(items.counts), highspy.kHighsInf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.append(starts, len(values))
    model.a_matrix_.index_, model.a_matrix_.value_ = rows, values
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(columns)
    search.passModel(model)
    for option, value in (
        ("mip_max_nodes", limits.nodes),
        ("mip_rel_gap", limits.gap),
        ("mip_abs_gap", 0.5),
        ("objective_target", (bound / step + 0.5) * (1 + limits.gap)),
    ):
        search.setOptionValue(option, value)
    search.run()
    info = search.getInfo()
    least = bound
    if np.isfinite(info.mip_dual_bound):
        least = rounded_up(items, int(np.floor(info.mip_dual_bound * step * (1 - SAFE))))
    if info.primal_solution_status == FEASIBLE:
        times = np.rint(np.array(search.getSolution().col_value)).astype(np.int64)
        cost = int(costs @ times)
        if np.all(times @ columns.matrix >= items.counts) and cost < start.cost:
            used = np.flatnonzero(times)
            return _Whole(columns[used], times[used], cost), least
    return start, least


def _all_within(items: Items, relaxed: Relaxed, most: int, limits: Limits) -> Columns | None:
    """All columns that a plan of cost at most `most` could use; None if there are too many.

    With dual-feasible prices, a plan costs at least their bound plus the reduced costs of its columns; a
    column whose reduced cost exceeds the difference is in no such plan.
    """
    total, tables = feasible(items, relaxed.prices.duals, limits.cells)
    spare = most * FINENESS - total
    found, room = [], limits.columns
    for table in tables:
        for j, k in enumerate(table.of.offers):
            patterns = table.within(j, int(items.rate[k]) * FINENESS - spare, room)
            if patterns is None:
                return None
            room -= len(patterns)
            found.append(Columns(np.full(len(patterns), k, np.int64), patterns))
    return stacked(found, len(items.counts))


def _known(items: Items, start: Sequence[Pattern]) -> _Whole:
    """A known plan as columns of items."""
    first = np.zeros((len(items.members), len(items.classes)), np.int64)
    for i, members in enumerate(items.members):
        first[i, list(members)] = 1
    matrix = np.array([load for _, load, _ in start], np.int64).reshape(len(start), len(items.classes))
    columns = Columns(np.array([k for k, _, _ in start], np.int64), matrix @ first.T)
    times = np.array([n for _, _, n in start], np.int64)
    return _Whole(columns, times, int(items.costs(columns) @ times))


def _trimmed(items: Items, answer: _Whole) -> _Whole:
    """Remove double coverage, then put each load on the cheapest offer that holds it."""
    matrix, times = answer.columns.matrix, answer.times
    parts = [(row.copy(), int(n)) for row, n in zip(matrix, times, strict=True)]
    for i in np.flatnonzero(times @ matrix > items.counts):
        parts = _without(parts, int(i), int(sum(row[i] * n for row, n in parts) - items.counts[i]))
    parts = [(row, n) for row, n in parts if row.any()]
    columns = cheapest(items, np.array([row for row, _ in parts], np.int64))
    counts = np.array([n for _, n in parts], np.int64)
    return _Whole(columns, counts, int(items.costs(columns) @ counts))


def _without(parts: list[tuple[Ints, int]], i: int, surplus: int) -> list[tuple[Ints, int]]:
    """Remove `surplus` tasks of an item, first from the instances with the fewest tasks."""
    kept = []
    for row, n in sorted(parts, key=lambda part: int(part[0].sum())):
        whole = min(surplus // int(row[i]), n) if row[i] else 0
        part = min(surplus - whole * int(row[i]), int(row[i])) if whole < n else 0
        surplus -= whole * int(row[i]) + part
        for less, times in ((int(row[i]), whole), (part, 1 if part else 0), (0, n - whole - (part > 0))):
            if times:
                left = row.copy()
                left[i] -= less
                kept.append((left, times))
    return kept


def _useful(relaxed: Relaxed, most: int) -> Columns:
    """The columns of least reduced cost."""
    reduced = relaxed.costs - relaxed.columns.matrix @ relaxed.duals
    return relaxed.columns[np.sort(np.argsort(reduced, kind="stable")[:most])]


def _by_class(items: Items, answer: _Whole, counts: Ints) -> tuple[Pattern, ...]:
    """Divide the tasks of each item among its classes, one class after the other."""
    offers = np.repeat(answer.columns.offer, answer.times)
    rows = np.repeat(answer.columns.matrix, answer.times, axis=0)
    ends = rows.cumsum(axis=0)
    loads = np.zeros((len(rows), len(counts)), np.int64)
    for i, members in enumerate(items.members):
        begin = 0
        for c in members:
            end = begin + int(counts[c])
            first = np.maximum(ends[:, i] - rows[:, i], begin)
            loads[:, c] = np.maximum(np.minimum(ends[:, i], end) - first, 0)
            begin = end
    alike, times = np.unique(np.column_stack([offers, loads]), axis=0, return_counts=True)
    return tuple((int(row[0]), row[1:], int(n)) for row, n in zip(alike, times, strict=True))
