"""Full Reconfiguration: packing by reservation price (Eva, Algorithm 1, and two steps of its artifact).

A task's reservation price (RP) is the price of the cheapest offer that holds it alone. An instance pays if
the throughput-normalised reservation prices (TNRP) of its tasks sum to at least its price. Offers are visited
from the highest price down; each new instance takes, one at a time, the task that raises its TNRP most. The
algorithm works on counts of demand classes: a filled instance is repeated while the classes last, so the work
grows with the number of distinct instances, not of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from starburst.policy.packing.classes import Classes, Floats, Ints
from starburst.policy.packing.throughput import Company, Throughput

#: Groups of equal instances: offer, tasks per class, number of instances.
Machines = list[tuple[int, Ints, int]]
#: Relative difference below which TNRPs are equal.
SAME = 1e-9


@dataclass(slots=True)
class Filling:
    """An instance being filled; `load` is the number of tasks per class."""

    load: Ints
    #: Free resources, 3.
    room: Ints
    #: TNRP of its tasks, micro-dollars per hour.
    worth: float
    #: Throughput of a task on the instance, and of a task that would join it, per class.
    own: Floats
    joining: Floats


class Filler:
    """Fills instances by TNRP, one at a time."""

    def __init__(self, classes: Classes, table: Throughput) -> None:
        self._classes = classes
        self._table = table
        self._names = np.array(classes.workload, dtype=object)
        self._tied = classes.price - classes.job_price
        self._known: dict[bytes, float] = {}

    def start(self, offer: int, load: Ints) -> Filling:
        """An instance of this offer that holds `load` (which must fit)."""
        classes = self._classes
        took = np.flatnonzero(load)
        room = classes.market.capacity[offer] - load[took] @ classes.demand[offer, took]
        joining = np.prod(classes.pair[:, took] ** load[took], axis=1)
        own = np.ones(len(classes))
        own[took] = self._beside(load, took)
        return Filling(load.copy(), room, self.worth(load), own, joining)

    def worth(self, load: Ints) -> float:
        """TNRP of these tasks on one instance (sections 4.3 and 4.4), micro-dollars per hour."""
        key = load.tobytes()
        if key not in self._known:
            took = np.flatnonzero(load)
            speeds = self._beside(load, took)
            recorded = self._table.exact(self._company(load)) if load.sum() > 2 else None
            if recorded:
                names = self._names[took]
                speeds = np.array([recorded.get(n, s) for n, s in zip(names, speeds, strict=True)])
            values = self._tied[took] + speeds * self._classes.job_price[took]
            self._known[key] = float(load[took] @ values)
        return self._known[key]

    def _beside(self, load: Ints, took: Ints) -> Floats:
        """Throughput of a task of each class present, as the product over pairs."""
        others = load[took] - np.eye(len(took), dtype=np.int64)
        return np.asarray(np.prod(self._classes.pair[np.ix_(took, took)] ** others, axis=1), np.float64)

    def _company(self, load: Ints) -> Company:
        return tuple(sorted(np.repeat(self._names, load)))

    def fill(self, offer: int, filling: Filling, left: Ints) -> None:
        """Add from `left` the task that raises the TNRP most, until no task fits or each would lower it."""
        free = left.copy()
        while (found := self.best(offer, filling, free)) is not None:
            self.add(offer, filling, *found)
            free[found[0]] -= 1

    def best(self, offer: int, filling: Filling, left: Ints) -> tuple[int, float] | None:
        """The class whose task raises the TNRP most, and that TNRP; None if none fits or all lower it."""
        demand, capacity = self._classes.demand[offer], self._classes.market.capacity[offer]
        fits = (left > 0) & (demand <= filling.room).all(axis=1)
        if not fits.any():
            return None
        worths = np.where(fits, self._worths(filling, fits), -np.inf)
        best = float(worths.max())
        if best < filling.worth:
            return None
        ties = np.flatnonzero(worths >= best - SAME * abs(best))
        c = int(ties[0])
        if len(ties) > 1:
            aligned = (demand[ties] / np.maximum(capacity, 1).astype(float) ** 2) @ filling.room
            c = int(ties[np.argmax(aligned)])
        return c, float(worths[c])

    def _worths(self, filling: Filling, fits: np.ndarray) -> Floats:
        """TNRP after adding a task of each class."""
        classes = self._classes
        weights = classes.job_price
        on = filling.load * weights * filling.own
        worths = filling.load @ self._tied + on @ classes.pair + self._tied + weights * filling.joining
        if filling.load.sum() >= 2:
            self._recorded(filling, fits, worths)
        return np.asarray(worths, np.float64)

    def _recorded(self, filling: Filling, fits: np.ndarray, worths: Floats) -> None:
        """Replace the estimate by the exact value where the table has a record of the whole set."""
        company = self._company(filling.load)
        seen: dict[str, bool] = {}
        for c in np.flatnonzero(fits):
            name = self._names[c]
            if name not in seen:
                seen[name] = self._table.exact(tuple(sorted([*company, name]))) is not None
            if seen[name]:
                load = filling.load.copy()
                load[c] += 1
                worths[c] = self.worth(load)

    def add(self, offer: int, filling: Filling, c: int, worth: float) -> None:
        """Add a task of class c, which makes the TNRP `worth`."""
        beside = self._classes.pair[:, c]
        already = filling.load[c] > 0
        own = filling.own[c] * beside[c] if already else filling.joining[c]
        filling.own *= beside
        filling.own[c] = own
        filling.joining = filling.joining * beside
        filling.load[c] += 1
        filling.room = filling.room - self._classes.demand[offer, c]
        filling.worth = worth


def full(classes: Classes, counts: Ints, table: Throughput) -> Machines:
    """Algorithm 1 over `counts` tasks of each class; each task is on exactly one instance."""
    filler = Filler(classes, table)
    left = counts.copy()
    machines: Machines = []
    none = np.zeros(len(classes), np.int64)
    for offer in np.argsort(-classes.market.rate[: classes.market.open], kind="stable"):
        while left.any():
            filling = filler.start(int(offer), none)
            filler.fill(int(offer), filling, left)
            if not _accepted(classes, int(offer), filling):
                break
            load = filling.load
            times = int((left[load > 0] // load[load > 0]).min())
            machines.append((smallest(classes, int(offer), load), load, times))
            left -= times * load
        for c in np.flatnonzero((classes.home == offer) & (left > 0)):
            machines.append((int(offer), _alone(int(c), len(classes)), int(left[c])))
            left[c] = 0
    return machines


def pays(worth: float, rate: float) -> bool:
    """Whether this TNRP reaches the instance's price, up to rounding."""
    return bool(worth >= rate * (1 - SAME))


def _accepted(classes: Classes, offer: int, filling: Filling) -> bool:
    alone = filling.load.sum() == 1 and classes.home[filling.load.argmax()] == offer
    return bool(filling.load.any()) and (bool(alone) or pays(filling.worth, classes.market.rate[offer]))


def smallest(classes: Classes, offer: int, load: Ints) -> int:
    """The cheapest open offer that holds the load and on which all its tasks can run."""
    took, market = np.flatnonzero(load), classes.market
    need = np.einsum("c,kcr->kr", load[took], classes.demand[: market.open, took])
    able = (need <= market.capacity[: market.open]).all(axis=1)
    able[offer] = True
    return int(np.argmin(np.where(able, market.rate[: market.open], np.iinfo(np.int64).max)))


def _alone(c: int, size: int) -> Ints:
    load = np.zeros(size, np.int64)
    load[c] = 1
    return load


def loads_of(classes: Classes, held: Mapping[str, tuple[tuple[str, int], ...]]) -> dict[str, Ints]:
    """Instance → number of tasks per class; tasks without a class are not counted."""
    loads = {}
    for name, keys in held.items():
        load = np.zeros(len(classes), np.int64)
        for key in keys:
            if key in classes.of:
                load[classes.of[key]] += 1
        loads[name] = load
    return loads
