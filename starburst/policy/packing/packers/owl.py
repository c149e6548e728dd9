"""At most two tasks per instance, with low interference: Owl as extended by Eva (section 6.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from starburst.policy.packing.classes import Classes, Ints, classes_of
from starburst.policy.packing.match import match, settle
from starburst.policy.packing.packers.reconfigure import Machines, loads_of
from starburst.policy.packing.plan import Plan, Rented, Situation, assemble

#: Least throughput of both tasks of a pair; the paper only says "low interference".
LOW_INTERFERENCE = 0.9
#: Price of a pair that no open offer holds.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Owl:
    """Makes pairs in descending ratio of TNRP to the price of the cheapest offer that holds both.

    Both tasks of a pair must keep the given throughput, and the pair's TNRP must reach the price. A running
    pair that still satisfies this stays. A task that runs alone is reconsidered together with the new tasks,
    and moves if that pairs it or costs less. The paper gives Owl a profile of all pairs; pairs missing from
    the table have its default throughput.
    """

    low_interference: float = LOW_INTERFERENCE

    def plan(self, situation: Situation) -> Plan:
        """Make pairs of demand classes; the tasks are then selected so that most stay where they run."""
        classes = classes_of(situation)
        loads = loads_of(classes, {rented.id: rented.held for rented in situation.instances})
        pairs = Pairs(classes, self.low_interference)
        # A running task that no offer holds has no class; its instance is left unchanged.
        live = {task.key: task for task in situation.tasks if task.key not in classes.of}
        odd = {r.id: [live.pop(key) for key in r.held if key in live] for r in situation.instances}
        given = {
            rented.id: loads[rented.id]
            for rented in situation.instances
            if odd[rented.id] or pairs.stay(classes.market.index(rented.offer), loads[rented.id])
        }
        running = len(given)
        left = classes.counts - sum(given.values(), np.zeros(len(classes), np.int64))
        machines = pairs.made_of(left)
        made, alone = sum(times for _, _, times in machines), int(left.sum())
        free = [rented for rented in situation.instances if rented.id not in given]
        given |= _stay_alone(classes, free, loads, left)
        machines += [
            (int(classes.home[c]), _load(classes, [c]), int(left[c])) for c in np.flatnonzero(left).tolist()
        ]
        free = [rented for rented in free if rented.id not in given]
        matched, rest = match(machines, free, loads, classes.market.offers)
        kept, launches = settle(classes, situation.instances, {**given, **matched}, rest)
        kept = {name: tasks + odd[name] for name, tasks in kept.items()}
        return assemble(
            situation,
            kept,
            launches,
            unplaced=[(task, why) for task, why in classes.unplaced if task.key in live],
            reason=f"{running} machines stay as they are, {made} pairs made, {alone} tasks alone",
        )


class Pairs:
    """Interference and TNRP of pairs of classes, C × C each."""

    def __init__(self, classes: Classes, low_interference: float) -> None:
        self._classes = classes
        beside = classes.pair
        self._calm = np.minimum(beside, beside.T) >= low_interference
        #: TNRP of one task of the row's class and one of the column's (sections 4.3 and 4.4).
        one = classes.price[:, None] - (1 - beside) * classes.job_price[:, None]
        self._worth = one + one.T

    def stay(self, offer: int, load: Ints) -> bool:
        """Whether an instance holds exactly one pair, with low interference and sufficient TNRP."""
        if load.sum() != 2:
            return False
        a, b = (int(c) for c in np.repeat(np.arange(len(load)), load))
        return bool(self._calm[a, b] and self._worth[a, b] >= self._classes.market.rate[offer])

    def made_of(self, left: Ints) -> Machines:
        """Take pairs from `left`, best ratio first; ties by class order."""
        offer, price = self._cheapest()
        good = np.triu(self._calm & (price < NEVER) & (self._worth >= price))
        ratio = np.round(self._worth / np.maximum(price, 1), 9)
        first, second = np.nonzero(good)
        machines: Machines = []
        for i in np.argsort(-ratio[first, second], kind="stable"):
            a, b = int(first[i]), int(second[i])
            times = int(left[a] // 2 if a == b else min(left[a], left[b]))
            if times:
                load = _load(self._classes, (a, b))
                left -= times * load
                machines.append((int(offer[a, b]), load, times))
        return machines

    def _cheapest(self) -> tuple[Ints, Ints]:
        """Per pair, the cheapest open offer that holds both (first of equals) and its price, or `NEVER`."""
        market, demand = self._classes.market, self._classes.demand
        offer = np.full(self._worth.shape, -1, np.int64)
        price = np.full(self._worth.shape, NEVER, np.int64)
        for k in range(market.open):
            both = demand[k, :, None] + demand[k, None, :]
            better = (both <= market.capacity[k]).all(axis=2) & (market.rate[k] < price)
            offer[better], price[better] = k, market.rate[k]
        return offer, price


def _stay_alone(
    classes: Classes, free: Iterable[Rented], loads: dict[str, Ints], left: Ints
) -> dict[str, Ints]:
    """Instances that keep their single task, as no offer is cheaper; subtracts these tasks from `left`."""
    stay = {}
    for rented in free:
        load, k = loads[rented.id], classes.market.index(rented.offer)
        c = int(load.argmax()) if load.sum() == 1 else -1
        if c >= 0 and left[c] and classes.market.rate[k] <= classes.price[c]:
            left[c] -= 1
            stay[rented.id] = load
    return stay


def _load(classes: Classes, members: Iterable[int]) -> Ints:
    load = np.zeros(len(classes), np.int64)
    for c in members:
        load[c] += 1
    return load
