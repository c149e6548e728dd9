"""Tasks grouped by demand class, and offers, as arrays: the input of all packers but `none`.

Tasks of a class have equal demands, workloads and job weights, so a packer only decides how many tasks of a
class go on each instance; `match.settle` then selects the tasks. Eight thousand tasks may form nine classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from starburst.domain.cloud import Offer
from starburst.domain.gpu_types import takes
from starburst.domain.job import Ask, Task
from starburst.domain.resources import Resources
from starburst.policy.packing.packers.none import lacking
from starburst.policy.packing.plan import Situation, TaskKey, priced

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
#: Kinds of resources: GPUs, milli-CPUs, MiB.
KINDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """K offers: those of the catalog in its order, then those of running instances that the catalog lacks.

    Unknown prices count as the highest known price.
    """

    offers: tuple[Offer, ...]
    #: The first `open` offers may be launched now.
    open: int
    #: K × 3.
    capacity: Ints
    #: Micro-dollars per hour, K.
    rate: Ints

    def index(self, offer: Offer) -> int:
        """Index of the offer of this name."""
        return next(k for k, o in enumerate(self.offers) if o.name == offer.name)


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Tasks by class, C classes in the order of their first task.

    A class that no open offer holds has only tasks on running instances; they must stay there ("stuck").
    """

    market: Market
    members: tuple[tuple[Task, ...], ...]
    #: Demand of a task on each offer, K × C × 3; `NOWHERE` where it cannot run.
    demand: Ints
    #: Whether an offer holds one task alone, K × C.
    holds: Bools
    #: Reservation price, C: micro-dollars per hour of the cheapest open offer that holds the task; `home` is
    #: that offer's index.
    price: Ints
    home: Ints
    #: Sum of the reservation prices of all tasks of the job, C (Eva, section 4.4).
    job_price: Ints
    workload: tuple[str, ...]
    #: Throughput of a task of the row's class beside one of the column's, C × C.
    pair: Floats
    #: Tasks without a class, each with the lacking resource: no offer holds them, or only that of a running
    #: instance and they are not on one.
    unplaced: tuple[tuple[Task, str], ...]
    #: Task key → index of its class.
    of: Mapping[TaskKey, int]

    def __len__(self) -> int:
        return len(self.members)

    @property
    def stuck(self) -> Bools:
        """Classes that no open offer holds, C."""
        return self.home >= self.market.open

    @property
    def counts(self) -> Ints:
        """Number of tasks per class."""
        return np.array([len(m) for m in self.members], np.int64)


#: More than any instance has; a million such demands still fit into 64 bits.
NOWHERE = 2**42


def market_of(situation: Situation) -> Market:
    """The offers of a situation as arrays."""
    offers = situation.offers
    names = {offer.name for offer in offers}
    ours = {r.offer.name: r.offer for r in situation.instances if r.offer.name not in names}
    known = priced([*offers, *ours.values()])
    capacity = np.array([_amounts(o.resources) for o in known], np.int64).reshape(len(known), KINDS)
    rate = np.array([o.price_per_hour.micro_usd if o.price_per_hour else 0 for o in known], np.int64)
    return Market((*offers, *ours.values()), len(offers), capacity, rate)


def classes_of(situation: Situation, *, gangs: bool = True) -> Classes:
    """Group tasks into classes. Without `gangs` each task counts as its own job (Eva-Single, section 4.4)."""
    market = market_of(situation)
    asks: dict[Ask, tuple[Ints, Bools, int, int] | None] = {}
    groups: dict[tuple[Ask, str, int], list[Task]] = {}
    unplaced = []
    held = {key for rented in situation.instances for key in rented.held}
    prices = _job_prices(situation.tasks, market, asks) if gangs else {}
    for task in situation.tasks:
        ask = task.ask
        found = _look_up(ask, task, market, asks)
        if found is None or (found[3] >= market.open and task.key not in held):
            unplaced.append((task, lacking(task, situation.offers)))
        else:
            weight = prices.get(task.job_id, found[2])
            groups.setdefault((ask, task.workload, weight), []).append(task)
    rows = [asks[ask] for ask, _, _ in groups]
    known = [row for row in rows if row is not None]
    names = tuple(workload for _, workload, _ in groups)
    shape = (len(market.offers), len(groups))
    return Classes(
        market=market,
        members=tuple(tuple(tasks) for tasks in groups.values()),
        demand=np.stack([row[0] for row in known], axis=1) if groups else np.zeros((*shape, KINDS), np.int64),
        holds=np.stack([row[1] for row in known], axis=1) if groups else np.zeros(shape, bool),
        price=np.array([row[2] for row in known], np.int64),
        home=np.array([row[3] for row in known], np.int64),
        job_price=np.array([weight for _, _, weight in groups], np.int64),
        workload=names,
        pair=_pairs(situation, names),
        unplaced=tuple(unplaced),
        of={task.key: c for c, tasks in enumerate(groups.values()) for task in tasks},
    )


def _look_up(
    ask: Ask, task: Task, market: Market, asks: dict[Ask, tuple[Ints, Bools, int, int] | None]
) -> tuple[Ints, Bools, int, int] | None:
    """Demand on each offer, offers that hold it, reservation price and home; None if no offer holds it."""
    if ask not in asks:
        demand = np.full((len(market.offers), KINDS), NOWHERE, np.int64)
        holds = np.zeros(len(market.offers), bool)
        for k, offer in enumerate(market.offers):
            wanted = task.demand_on(offer)
            if wanted is not None and (not wanted.gpus or takes(wanted.gpu_type, offer.resources.gpu_type)):
                demand[k] = _amounts(wanted)
                holds[k] = bool(np.all(demand[k] <= market.capacity[k]))
        open_ = holds & (np.arange(len(holds)) < market.open)
        able = open_ if open_.any() else holds
        home = int(np.argmin(np.where(able, market.rate, np.iinfo(np.int64).max))) if able.any() else -1
        asks[ask] = (demand, holds, int(market.rate[home]), home) if home >= 0 else None
    return asks[ask]


def _job_prices(
    tasks: Sequence[Task], market: Market, asks: dict[Ask, tuple[Ints, Bools, int, int] | None]
) -> dict[str, int]:
    prices: dict[str, int] = {}
    for task in tasks:
        found = _look_up(task.ask, task, market, asks)
        if found is not None:
            prices[task.job_id] = prices.get(task.job_id, 0) + found[2]
    return prices


def _pairs(situation: Situation, names: Sequence[str]) -> Floats:
    distinct = list(dict.fromkeys(names))
    table = np.array([[situation.throughput.pair(a, b) for b in distinct] for a in distinct], np.float64)
    rows = np.array([distinct.index(name) for name in names], np.int64)
    return table[np.ix_(rows, rows)] if len(rows) else np.zeros((0, 0))


def _amounts(resources: Resources) -> tuple[int, int, int]:
    return resources.gpus, resources.cpu_milli, resources.memory_mib
