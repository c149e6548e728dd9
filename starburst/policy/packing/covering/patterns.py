"""Patterns: what one instance holds. Columns of the packing program, and the problem that prices them.

The pricing problem is a bounded knapsack over GPUs, CPUs and memory. One table, filled step by step, answers
for every offer of a family at once. All values are integers, so what the table says is exact.
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
#: Values that 32 bits hold; tables of them are filled twice as fast.
SMALL = 2**31 - 1
#: So many patterns that are not yet full are looked at for one that is.
PARTIAL = 40
#: Throughput so low that its logarithm is still a number.
STANDSTILL = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Knapsack:
    """The offers of one family, J of them, and what each of I items asks for there."""

    #: Where the offers stand in the market, J.
    offers: Ints
    #: J × 3.
    capacity: Ints
    #: I × 3; of items that no offer of the family holds it says nothing.
    demand: Ints
    #: How many of an item may share an instance: as many as fit the roomiest offer, and as there are, I.
    most: Ints
    #: Amounts that one step of the grid stands for, 3, and steps of the grid, 3.
    unit: Ints
    box: Ints

    @property
    def exact(self) -> bool:
        """Whether the grid loses nothing: every demand is a whole number of steps."""
        return not np.any(self.demand[self.most > 0] % self.unit)

    def solve(self, worth: Ints, *, feasible: bool, prune: bool = True) -> Table:
        """The most that patterns are worth, whose tasks of item i are worth `worth[i]` each.

        On a grid that is not exact, demands are rounded up (`feasible`), so that each pattern found fits, or
        down, so that no pattern that fits is worth more. `prune` leaves items out that others can stand for.
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
        """Where in `kept` the items stand that a best pattern may need.

        An item is not needed if others, each worth as much and asking for no more, do not all fit beside it:
        one of them is free, whatever the pattern, and may take its place.
        """
        demand, value, most = self.demand[kept], worth[kept], self.most[kept]
        no_more = np.all(demand[:, None] <= demand[None, :], axis=2) & (value[:, None] >= value[None, :])
        first = np.arange(len(kept))[:, None] < np.arange(len(kept))[None, :]
        better = no_more & (first | ~no_more.T)
        together = np.einsum("ji,jr->ir", better * most[:, None], demand) + demand
        return np.flatnonzero(np.all(together <= self.capacity.max(axis=0, initial=0), axis=1))

    def _limit(self, worth: Ints, kept: Ints) -> int:
        """No pattern is worth more, on any grid."""
        steps, value = self.demand[kept] // self.unit, worth[kept]
        limits = [int((value * self.most[kept]).sum())]
        for r in range(KINDS):
            uses = steps[:, r] > 0
            dense = float((value[uses] / steps[uses, r]).max(initial=0.0))
            free = int((value[~uses] * self.most[kept][~uses]).sum())
            limits.append(int(dense * float(self.box[r] + 1)) + 1 + free)
        return min(limits)


def knapsack(offers: Ints, capacity: Ints, demand: Ints, counts: Ints, *, cells: int) -> Knapsack:
    """The pricing problem of offers of one family, with a grid of not many more than `cells` cells."""
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
    """The table when up to `most` of one more item may be taken: in parcels of 1, 2, 4, … and the rest."""
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
    #: The items it was solved for, S of them; what they ask for in steps, S × 3.
    kept: Ints
    steps: Ints
    #: Most that items s, s + 1, … of `kept` are worth in the room that is left; S + 1 of them.
    stages: tuple[Cells, ...]

    def best(self) -> Ints:
        """The most that a pattern on each offer is worth, J."""
        value: Ints = self.stages[0][self._cell(self.of.capacity)].astype(np.int64)
        return value

    def pattern(self, j: int) -> Ints:
        """A pattern of the j-th offer that is worth that, I."""
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
        """All patterns of the j-th offer worth `least` or more that leave no room for one more, P × I.

        None if there are more than `most`. The table must be one of demands rounded down, not pruned.
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
        """Where nothing more fits of any item of which more could be taken."""
        full = np.ones(len(left), bool)
        for i in np.flatnonzero(self.of.most > 0):
            full &= (counts[:, i] >= self.of.most[i]) | np.any(left < self.of.demand[i], axis=1)
        return np.flatnonzero(full)

    def _cell(self, amounts: Ints) -> tuple[Ints, ...]:
        """Where room of these amounts stands in the tables."""
        return tuple(np.minimum(amounts // self.of.unit, self.of.box).T)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Classes of which there are tasks, I of them; where nothing interferes, equal demands are one item."""

    classes: Classes
    #: The classes of each item; all but one only where nothing interferes.
    members: tuple[tuple[int, ...], ...]
    counts: Ints
    #: K × I × 3, `NOWHERE` where it does not run; and whether an offer holds one alone, K × I.
    demand: Ints
    holds: Bools
    #: Micro-dollars per hour, I: reservation price, and what a lost share of throughput is worth.
    price: Ints
    job_price: Ints
    #: Throughput of a row's task beside one of the column's, I × I; None if nothing interferes.
    pair: Floats | None
    throughput: Throughput
    #: Names an item from one call to the next.
    keys: tuple[Hashable, ...]
    recorded: dict[Company, dict[str, float]] = field(default_factory=dict)

    @property
    def rate(self) -> Ints:
        """Of the offers, micro-dollars per hour."""
        return self.classes.market.rate[: self.classes.market.open]

    def costs(self, columns: Columns) -> Ints:
        """Rates plus what the lost throughput is worth (RP − TNRP of each task), micro-dollars per hour."""
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
        """What is recorded of this very set."""
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
        """The rows that are met for the first time and hold something, in order."""
        rows = np.column_stack([self.offer, self.matrix])
        _, first = np.unique(rows, axis=0, return_index=True)
        first.sort()
        kept: Ints = first[self.matrix[first].any(axis=1)]
        return kept


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Columns of an earlier call, by names of offers and of items, that the next call begins with."""

    offers: tuple[str, ...] = ()
    keys: tuple[Hashable, ...] = ()
    matrix: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    def columns(self, items: Items) -> Columns:
        """Those that can be asked for now, for the tasks that there are now."""
        at = {offer.name: k for k, offer in enumerate(items.classes.market.offers[: len(items.rate)])}
        offer = np.array([at.get(name, -1) for name in self.offers], np.int64)
        place = {key: r for r, key in enumerate(self.keys)}
        where = np.array([place.get(key, -1) for key in items.keys], np.int64)
        matrix = np.zeros((len(offer), len(items.keys)), np.int64)
        matrix[:, where >= 0] = self.matrix[:, where[where >= 0]]
        return _that_fit(items, Columns(offer, np.minimum(matrix, items.counts))[np.flatnonzero(offer >= 0)])

    @staticmethod
    def of(items: Items, columns: Columns, before: Pool, most: int) -> Pool:
        """These columns and, as far as there is room, those of before."""
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
    """What is to be covered, by offers that may be asked for now."""
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
    """One per family, or several where not all offers of a family are asked for the same."""
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
    """Each task on the cheapest offer that holds it."""
    homes = np.array([items.classes.home[members[0]] for members in items.members], np.int64)
    return Columns(homes, np.eye(len(items.counts), dtype=np.int64))


def cheapest(items: Items, matrix: Ints) -> Columns:
    """Patterns on the cheapest offers that hold them; those that none holds are left out."""
    offer = np.full(len(matrix), -1, np.int64)
    for k in np.argsort(-items.rate, kind="stable"):
        there = np.all(matrix @ items.demand[k] <= items.classes.market.capacity[k], axis=1)
        offer[there] = k
    return Columns(offer, matrix)[np.flatnonzero(offer >= 0)]


def _that_fit(items: Items, columns: Columns) -> Columns:
    """Those within capacity, each once: an offer of the same name may have changed."""
    fits = np.zeros(len(columns), bool)
    for k in np.unique(columns.offer):
        there = np.flatnonzero(columns.offer == k)
        asked = columns.matrix[there] @ items.demand[k]
        fits[there] = np.all(asked <= items.classes.market.capacity[k], axis=1)
    left = columns[np.flatnonzero(fits)]
    return left[left.distinct()]


def stacked(parts: Iterable[Columns], size: int) -> Columns:
    """All of them, each once."""
    columns = Columns(np.zeros(0, np.int64), np.zeros((0, size), np.int64))
    for part in parts:
        columns = columns + part
    return columns[columns.distinct()]
