"""Candidate instances of the covering program, as arrays: loads, lost throughput and greedy growth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from starburst.policy.packing.classes import Bools, Classes, Floats, Ints

#: Throughputs are clipped to at least this value, so that the logarithm exists.
LEAST_THROUGHPUT = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Possible instances with their loads, B of them."""

    #: Index of the offer, B.
    offer: Ints
    #: Kind of running instance, B; -1 for a new one.
    machine: Ints
    #: Tasks per class, B × C.
    load: Ints

    def __len__(self) -> int:
        return len(self.offer)

    def __add__(self, other: Candidates) -> Candidates:
        return joined([self, other])

    def take(self, rows: Ints | Bools) -> Candidates:
        """The selected rows."""
        return Candidates(self.offer[rows], self.machine[rows], self.load[rows])

    def distinct(self) -> Candidates:
        """Without duplicates; the first of equals is kept."""
        seen: dict[bytes, int] = {}
        for at, key in enumerate(self.names()):
            seen.setdefault(key, at)
        return self.take(np.array(list(seen.values()), np.int64))

    def names(self) -> list[bytes]:
        """A key per candidate that identifies offer, instance and load."""
        rows = np.ascontiguousarray(np.column_stack([self.offer, self.machine, self.load]))
        return [row.tobytes() for row in rows]


def joined(parts: list[Candidates]) -> Candidates:
    """Concatenation, in order."""
    return Candidates(
        np.concatenate([part.offer for part in parts]),
        np.concatenate([part.machine for part in parts]),
        np.concatenate([part.load for part in parts]),
    )


class Slowdown:
    """Value of throughput lost to co-location, for many instances at once (pair products, section 4.3)."""

    def __init__(self, classes: Classes) -> None:
        # Throughputs above 1 are clipped: they would give an instance a negative cost.
        self._log = np.log(np.clip(classes.pair, LEAST_THROUGHPUT, 1.0))
        self._pair = np.exp(self._log)
        self._self = np.diag(self._log)
        self._weight = classes.job_price.astype(float)

    def lost(self, load: Ints) -> Floats:
        """Reservation price minus TNRP of all tasks of each instance, micro-dollars per hour, B."""
        own = np.exp(load @ self._log.T - self._self)
        return np.asarray((load * (1 - own)) @ self._weight, np.float64)

    def added(self, load: Ints) -> Floats:
        """Increase of the loss when a task of each class joins, B × C."""
        company = load @ self._log.T
        on = load * np.exp(company - self._self) * self._weight
        joining = (1 - np.exp(company)) * self._weight
        return np.asarray(on.sum(axis=1, keepdims=True) - on @ self._pair + joining, np.float64)


def grow(
    classes: Classes,
    slowdown: Slowdown,
    start: Candidates,
    value: Floats,
    *,
    delay_price: float,
    by_size: bool,
) -> Candidates:
    """Greedily fill each instance of `start`, one task at a time; every stage is a candidate.

    A task of class c gains value[b, c] minus the throughput that all tasks lose by its joining, micro-dollars
    per hour. The task with the largest gain goes first; with `by_size`, the one with the largest gain per
    share of its scarcest resource. Growth ends when no task has a positive gain.
    """
    demand, limit = classes.demand[start.offer], classes.counts
    taken = start.load[..., None] * np.where(start.load[..., None] > 0, demand, 0)
    room = classes.market.capacity[start.offer] - taken.sum(axis=1)
    now, stages = start, [start]
    while len(now):
        free = (now.load < limit) & (demand <= room[:, None, :]).all(axis=2)
        brings = np.where(free, value - delay_price * slowdown.added(now.load), -np.inf)
        score = brings
        if by_size:
            share = (demand / np.maximum(room[:, None, :], 1)).max(axis=2)
            score = np.where(brings > 0, brings / np.maximum(share, 1e-9), -np.inf)
        best = score.argmax(axis=1)
        rows = np.flatnonzero(brings[np.arange(len(now)), best] > 0)
        best = best[rows]
        load = now.load[rows].copy()
        load[np.arange(len(rows)), best] += 1
        room = room[rows] - demand[rows, best]
        demand, value = demand[rows], value[rows]
        now = Candidates(now.offer[rows], now.machine[rows], load)
        stages.append(now)
    return joined(stages)
