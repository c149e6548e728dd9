"""Patterns (loads of one instance): columns of the covering program, and the problem that prices them.

The pricing problem is a bounded knapsack over GPUs, CPUs and memory. One dynamic-programming table answers it
for all offers of a family. All values are integers, so the results are exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from starburst.policy.packing.classes import KINDS, NOWHERE, Bools, Classes, Floats, Ints
from starburst.policy.packing.throughput import NO_INTERFERENCE, Company, Throughput

#: Integers of 32 or 64 bits.
Cells = npt.NDArray[Any]
#: Largest value of 32 bits; 32-bit tables are filled twice as fast.
SMALL = 2**31 - 1
#: Enumeration is abandoned above this number of partial patterns per pattern allowed.
PARTIAL = 40
#: Least throughput, so that its logarithm is finite.
STANDSTILL = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Knapsack:
    """The J offers of one family, and the demand of each of I items on them."""

    #: Indices of the offers in the market, J.
    offers: Ints
    #: J × 3.
    capacity: Ints
    #: I × 3; 0 for items that no offer of the family holds.
    demand: Ints
    #: Most tasks of an item on one instance: as many as fit the largest offer and exist, I.
    most: Ints
    #: Resource amounts per step of the grid, 3, and number of steps, 3.
    unit: Ints
    box: Ints

    @property
    def exact(self) -> bool:
        """Whether the grid is exact: every demand is a whole number of steps."""
        return not np.any(self.demand[self.most > 0] % self.unit)

    def solve(self, worth: Ints, *, feasible: bool, prune: bool = True) -> Table:
        """Table of the largest value of patterns, where each task of item i is worth `worth[i]`.

        On an inexact grid, demands are rounded up if `feasible`, so that each pattern found fits, and
        otherwise down, so that the values are upper bounds. `prune` drops items that others can replace.
        """
        kept = np.flatnonzero((worth > 0) & (self.most > 0))
        if prune:
            kept = kept[self._needed(worth, kept)]
        steps = -(-self.demand[kept] // self.unit) if feasible else self.demand[kept] // self.unit
        dtype = np.int32 if self._limit(worth, kept) <= SMALL else np.int64
        stages: list[Cells] = [np.zeros(self.box + 1, dtype)]
        for i, step in zip(kept[::-1], steps[::-1], strict=True):
            stages.append(_add(stages[-1], step, int(worth[i]), int(self.most[i])))
        return Table(self, worth, kept, steps, tuple(reversed(stages)))

    def _needed(self, worth: Ints, kept: Ints) -> Ints:
        """Positions in `kept` of the items that a best pattern may need.

        An item is not needed if the other items that are worth at least as much and demand no more do not all
        fit beside it: in any pattern with the item one of them is then unused, and can replace it.
        """
        demand, value, most = self.demand[kept], worth[kept], self.most[kept]
        no_more = np.all(demand[:, None] <= demand[None, :], axis=2) & (value[:, None] >= value[None, :])
        first = np.arange(len(kept))[:, None] < np.arange(len(kept))[None, :]
        better = no_more & (first | ~no_more.T)
        together = np.einsum("ji,jr->ir", better * most[:, None], demand) + demand
        return np.flatnonzero(np.all(together <= self.capacity.max(axis=0, initial=0), axis=1))

    def _limit(self, worth: Ints, kept: Ints) -> int:
        """Upper bound on the value of any pattern, on any grid."""
        steps, value = self.demand[kept] // self.unit, worth[kept]
        limits = [int((value * self.most[kept]).sum())]
        for r in range(KINDS):
            uses = steps[:, r] > 0
            dense = float((value[uses] / steps[uses, r]).max(initial=0.0))
            free = int((value[~uses] * self.most[kept][~uses]).sum())
            limits.append(int(dense * float(self.box[r] + 1)) + 1 + free)
        return min(limits)


def knapsack(offers: Ints, capacity: Ints, demand: Ints, counts: Ints, *, cells: int) -> Knapsack:
    """The pricing problem of offers of one family, on a grid of at most about `cells` cells."""
    asked = demand[None, :, :]
    with np.errstate(divide="ignore"):
        fit = np.where(asked > 0, capacity[:, None, :] // np.maximum(asked, 1), np.iinfo(np.int64).max)
    most = np.minimum(fit.min(axis=2).max(axis=0, initial=0), counts)
    used = np.where(most[:, None] > 0, demand, 0)
    room = np.minimum(capacity.max(axis=0, initial=0), (used * most[:, None]).sum(axis=0))
    unit = np.maximum(np.gcd.reduce(used, axis=0, initial=0), 1)
    while np.prod(room // unit + 1.0) > cells and np.any(room // unit > 1):
        unit[np.argmax(room // unit)] *= 2
    return Knapsack(offers, capacity, used, most, unit, room // unit)


def _add(table: Cells, step: Ints, worth: int, most: int) -> Cells:
    """The table after adding up to `most` of one more item, in parcels of 1, 2, 4, … and the remainder."""
    new: Cells = table.copy()
    parcel = 1
    while most:
        parcel = min(parcel, most)
        shift = step * parcel
        if np.all(shift < new.shape):
            g, c, m = (int(s) for s in shift)
            into = new[g:, c:, m:]
            size = into.shape
            np.maximum(into, new[: size[0], : size[1], : size[2]] + new.dtype.type(worth * parcel), out=into)
        most -= parcel
        parcel *= 2
    return new


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The solved knapsack of one family."""

    of: Knapsack
    worth: Ints
    #: The items included, S of them, and their demands in steps, S × 3.
    kept: Ints
    steps: Ints
    #: Largest value of items s, s + 1, … of `kept` by remaining room; S + 1 tables.
    stages: tuple[Cells, ...]

    def best(self) -> Ints:
        """Largest value of a pattern on each offer, J."""
        value: Ints = self.stages[0][self._cell(self.of.capacity)].astype(np.int64)
        return value

    def pattern(self, j: int) -> Ints:
        """A pattern of the j-th offer with the largest value, I."""
        counts = np.zeros(len(self.worth), np.int64)
        left = np.minimum(self.of.capacity[j] // self.of.unit, self.of.box)
        for s, i in enumerate(self.kept):
            here, then = self.stages[s], self.stages[s + 1]
            value = int(here[tuple(left)])
            if not value:
                break
            taken = 0
            while int(then[tuple(left - taken * self.steps[s])]) + taken * int(self.worth[i]) != value:
                taken += 1
            counts[i] = taken
            left = left - taken * self.steps[s]
        return counts

    def within(self, j: int, least: int, most: int) -> Ints | None:
        """All maximal patterns of the j-th offer worth at least `least`, P × I.

        A maximal pattern leaves no room for another task. None if there are more than `most`. The table must
        have been solved with demands rounded down and without pruning.
        """
        order = np.concatenate([self.kept, np.setdiff1d(np.flatnonzero(self.of.most > 0), self.kept)])
        left = self.of.capacity[j][None, :].copy()
        value = np.zeros(1, np.int64)
        counts = np.zeros((1, len(self.worth)), np.int16)
        for s, i in enumerate(order):
            table = self.stages[min(s + 1, len(self.kept))]
            parts = []
            for taken in range(int(self.of.most[i]) + 1):
                then, worth = left - taken * self.of.demand[i], value + taken * self.worth[i]
                good = np.all(then >= 0, axis=1)
                good[good] = worth[good] + table[self._cell(then[good])] >= least
                more = counts[good].copy()
                more[:, i] = taken
                parts.append((then[good], worth[good], more))
                if sum(len(part[1]) for part in parts) > PARTIAL * most:
                    return None
            left, value, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        patterns: Ints = counts[self._full(left, counts)].astype(np.int64)
        return patterns if len(patterns) <= most else None

    def _full(self, left: Ints, counts: Cells) -> Ints:
        """Indices of patterns to which no further task of any item can be added."""
        full = np.ones(len(left), bool)
        for i in np.flatnonzero(self.of.most > 0):
            full &= (counts[:, i] >= self.of.most[i]) | np.any(left < self.of.demand[i], axis=1)
        return np.flatnonzero(full)

    def _cell(self, amounts: Ints) -> tuple[Ints, ...]:
        """Table indices of these amounts of room."""
        return tuple(np.minimum(amounts // self.of.unit, self.of.box).T)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Classes with tasks, I of them; without interference, classes of equal demand form one item."""

    classes: Classes
    #: The classes of each item; more than one only without interference.
    members: tuple[tuple[int, ...], ...]
    counts: Ints
    #: Demand, K × I × 3, `NOWHERE` where the item cannot run; and whether an offer holds one task, K × I.
    demand: Ints
    holds: Bools
    #: Micro-dollars per hour, I: reservation price, and price of a lost share of throughput.
    price: Ints
    job_price: Ints
    #: Throughput of the row's task beside one of the column's, I × I; None without interference.
    pair: Floats | None
    throughput: Throughput
    #: Identifies an item across calls.
    keys: tuple[Hashable, ...]
    recorded: dict[Company, dict[str, float]] = field(default_factory=dict)

    @property
    def rate(self) -> Ints:
        """Prices of the open offers, micro-dollars per hour."""
        return self.classes.market.rate[: self.classes.market.open]

    def costs(self, columns: Columns) -> Ints:
        """Rates plus the value of lost throughput (RP − TNRP of each task), micro-dollars per hour."""
        rates: Ints = self.rate[columns.offer]
        if self.pair is None or not len(columns):
            return rates
        log: Floats = np.log(np.maximum(self.pair, STANDSTILL))
        speed: Floats = np.exp(columns.matrix @ log.T - np.diag(log))
        for p in np.flatnonzero(columns.matrix.sum(axis=1) > 2):
            known = self._known(columns.matrix[p])
            for i in np.flatnonzero(columns.matrix[p]) if known else ():
                speed[p, i] = known.get(self.classes.workload[self.members[i][0]], speed[p, i])
        lost = columns.matrix * (1.0 - speed) * self.job_price
        return np.asarray(rates + np.rint(lost.sum(axis=1)), np.int64)

    def _known(self, pattern: Ints) -> dict[str, float]:
        """Throughputs recorded for exactly this set."""
        names = [self.classes.workload[self.members[i][0]] for i in np.flatnonzero(pattern)]
        times = [int(n) for n in pattern[pattern > 0]]
        company = tuple(sorted(n for n, t in zip(names, times, strict=True) for _ in range(t)))
        if company not in self.recorded:
            self.recorded[company] = dict(self.throughput.exact(company) or {})
        return self.recorded[company]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Patterns, P × I, and the offers they are on, P."""

    offer: Ints
    matrix: Ints

    def __len__(self) -> int:
        return len(self.offer)

    def __getitem__(self, rows: Ints) -> Columns:
        return Columns(self.offer[rows], self.matrix[rows])

    def __add__(self, other: Columns) -> Columns:
        return Columns(np.concatenate([self.offer, other.offer]), np.concatenate([self.matrix, other.matrix]))

    def distinct(self) -> Ints:
        """Indices of the non-empty rows without duplicates, in order."""
        rows = np.column_stack([self.offer, self.matrix])
        _, first = np.unique(rows, axis=0, return_index=True)
        first.sort()
        kept: Ints = first[self.matrix[first].any(axis=1)]
        return kept


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Columns of an earlier call, keyed by offer names and items, with which the next call starts."""

    offers: tuple[str, ...] = ()
    keys: tuple[Hashable, ...] = ()
    matrix: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    def columns(self, items: Items) -> Columns:
        """The columns whose offers are still open, limited to the current tasks."""
        at = {offer.name: k for k, offer in enumerate(items.classes.market.offers[: len(items.rate)])}
        offer = np.array([at.get(name, -1) for name in self.offers], np.int64)
        place = {key: r for r, key in enumerate(self.keys)}
        where = np.array([place.get(key, -1) for key in items.keys], np.int64)
        matrix = np.zeros((len(offer), len(items.keys)), np.int64)
        matrix[:, where >= 0] = self.matrix[:, where[where >= 0]]
        return _that_fit(items, Columns(offer, np.minimum(matrix, items.counts))[np.flatnonzero(offer >= 0)])

    @staticmethod
    def of(items: Items, columns: Columns, before: Pool, most: int) -> Pool:
        """These columns and, up to `most` in total, those of `before`."""
        order = {key: r for r, key in enumerate(dict.fromkeys((*items.keys, *before.keys)))}
        matrix = np.zeros((len(columns) + len(before.offers), len(order)), np.int64)
        matrix[: len(columns), [order[key] for key in items.keys]] = columns.matrix
        matrix[len(columns) :, [order[key] for key in before.keys]] = before.matrix
        names = [items.classes.market.offers[k].name for k in columns.offer]
        offers = [*names, *before.offers]
        seen: dict[tuple[str, bytes], int] = {}
        for p, (name, row) in enumerate(zip(offers, matrix, strict=True)):
            seen.setdefault((name, row.tobytes()), p)
        rows = list(seen.values())[:most]
        used = np.flatnonzero(matrix[rows].any(axis=0))
        listed = list(order)
        return Pool(tuple(offers[p] for p in rows), tuple(listed[r] for r in used), matrix[rows][:, used])


def items_of(classes: Classes, counts: Ints, throughput: Throughput = NO_INTERFERENCE) -> Items:
    """The items to be covered by open offers."""
    open_ = classes.market.open
    present = np.flatnonzero(counts > 0)
    interferes = bool(np.any(classes.pair[np.ix_(present, present)] != 1.0))
    groups: dict[Hashable, list[int]] = {}
    for c in present.tolist():
        ask = classes.members[c][0].ask
        weighs = (classes.workload[c], int(classes.job_price[c]))
        groups.setdefault((ask, weighs) if interferes else ask, []).append(c)
    first = np.array([members[0] for members in groups.values()], np.int64)
    return Items(
        classes=classes,
        members=tuple(tuple(members) for members in groups.values()),
        counts=np.array([counts[members].sum() for members in groups.values()], np.int64),
        demand=classes.demand[:open_, first],
        holds=classes.holds[:open_, first],
        price=classes.price[first],
        job_price=classes.job_price[first],
        pair=classes.pair[np.ix_(first, first)] if interferes else None,
        throughput=throughput,
        keys=tuple(groups),
    )


def knapsacks(items: Items, *, cells: int) -> list[Knapsack]:
    """One knapsack per family, or several where the demands differ between offers of a family."""
    market = items.classes.market
    families: dict[str, list[int]] = {}
    for k, offer in enumerate(market.offers[: market.open]):
        families.setdefault(offer.family, []).append(k)
    found = []
    for family in families.values():
        held = np.asarray(items.holds[family].any(axis=0), bool)
        alike: dict[bytes, list[int]] = {}
        for k in family:
            alike.setdefault(items.demand[k][held].tobytes(), []).append(k)
        for ks in alike.values():
            asked = np.where(held[:, None], items.demand[ks[0]], NOWHERE)
            sizes = market.capacity[ks]
            found.append(knapsack(np.array(ks, np.int64), sizes, asked, items.counts, cells=cells))
    return found


def alone(items: Items) -> Columns:
    """Each item as a pattern of one task on the cheapest offer that holds it."""
    homes = np.array([items.classes.home[members[0]] for members in items.members], np.int64)
    return Columns(homes, np.eye(len(items.counts), dtype=np.int64))


def cheapest(items: Items, matrix: Ints) -> Columns:
    """Patterns on the cheapest offers that hold them; patterns that no offer holds are dropped."""
    offer = np.full(len(matrix), -1, np.int64)
    for k in np.argsort(-items.rate, kind="stable"):
        there = np.all(matrix @ items.demand[k] <= items.classes.market.capacity[k], axis=1)
        offer[there] = k
    return Columns(offer, matrix)[np.flatnonzero(offer >= 0)]


def _that_fit(items: Items, columns: Columns) -> Columns:
    """Columns within capacity, without duplicates; an offer may have changed under the same name."""
    fits = np.zeros(len(columns), bool)
    for k in np.unique(columns.offer):
        there = np.flatnonzero(columns.offer == k)
        asked = columns.matrix[there] @ items.demand[k]
        fits[there] = np.all(asked <= items.classes.market.capacity[k], axis=1)
    left = columns[np.flatnonzero(fits)]
    return left[left.distinct()]


def stacked(parts: Iterable[Columns], size: int) -> Columns:
    """Concatenation without duplicates."""
    columns = Columns(np.zeros(0, np.int64), np.zeros((0, size), np.int64))
    for part in parts:
        columns = columns + part
    return columns[columns.distinct()]
