"""Runtime binning: tasks with similar remaining run times share an instance (Stratus, SoCC'18).

A baseline of Eva (section 6.1). Bins of remaining run time double in width: [0, 1), [1, 2), [2, 4), [4, 8), …
minutes. An instance is in the bin of its longest task. A new task joins an instance of its own bin (the one
whose last task ends closest to its own end), else of the nearest greater bin (it does not extend the
instance's life), else of the greatest lesser bin (in both cases the one with most resources left over). Only
tasks that fit on no instance cause launches. An instance that has been little used for long is cleared if all
its tasks fit elsewhere. Interference is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from starburst.domain.job import Task
from starburst.policy.packing.classes import Classes, Floats, Ints
from starburst.policy.packing.machines import Machines
from starburst.policy.packing.plan import Plan, Situation

#: Width of the first bin, seconds.
UNIT_S = 60.0
#: An unknown run time counts as three hours, in the bin from 128 to 256 minutes.
UNKNOWN_S = 3 * 3600.0
#: An instance is little used if less than this share of every resource is in use.
LOW_USE = 0.5
#: Seconds of little use after which an instance is cleared.
CLEAR_AFTER_S = 1800.0


def assumed_remaining_s(estimate_s: float | None, elapsed_s: float) -> float | None:
    """Remaining seconds of a task; the estimate is doubled until it exceeds the elapsed time.

    So a task that just outlived its estimate is assumed to be at half its run time (Stratus, slide 11). An
    estimate of 0 or less becomes the elapsed time; None stays None.
    """
    if estimate_s is None or estimate_s <= 0:
        return None if estimate_s is None else elapsed_s
    whole = estimate_s
    while whole <= elapsed_s:
        whole *= 2
    return whole - elapsed_s


def bin_of(remaining_s: float | None) -> int:
    """Index of the bin; an unknown or used-up remaining time counts as UNKNOWN_S."""
    return int(_bins(np.array([_lasts_s(remaining_s)]))[0])


def _lasts_s(remaining_s: float | None) -> float:
    return remaining_s if remaining_s is not None and remaining_s > 0 else UNKNOWN_S


def _bins(seconds: Floats) -> Ints:
    return np.frexp(np.floor(seconds / UNIT_S))[1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Stratus:
    """Aligns the ends of tasks on an instance, so that instances are either well used or terminated."""

    low_use: float = LOW_USE
    clear_after_s: float = CLEAR_AFTER_S

    def plan(self, situation: Situation) -> Plan:
        """Place tasks from long to short, launch instances for the rest of each bin, then clear instances."""
        machines = Machines(situation)
        aligned = _Aligned(machines)
        pending = sorted(machines.pending, key=lambda task: -_lasts_s(task.remaining_s))
        for _, tasks in groupby(pending, key=lambda task: bin_of(task.remaining_s)):
            rest = []
            for task in tasks:
                m = aligned.home(task)
                if m is None:
                    rest.append(task)
                else:
                    aligned.put(m, task)
            _scale_out(aligned, rest)
        cleared, since = self._clear(aligned)
        reason = (
            f"run times aligned: {len(pending)} new tasks, "
            f"{len(machines) - machines.running} machines rented, {cleared} cleared"
        )
        return machines.plan(reason, replace(situation.memory, idle_since=since))

    def _clear(self, aligned: _Aligned) -> tuple[int, dict[str, float]]:
        """Clear instances that were little used for long, least used first, until no more can be cleared.

        Instances that took in tasks are exempt. Returns the number cleared, and since when instances are
        little used.
        """
        machines = aligned.machines
        now, memory = machines.situation.now, machines.situation.memory.idle_since
        names = [rented.id for rented in machines.situation.instances]
        use = machines.use()
        low = [m for m in np.argsort(use[: len(names)], kind="stable").tolist() if use[m] < self.low_use]
        since = {m: memory.get(names[m], now) for m in low if machines.held[m]}
        cleared = 0
        more = True
        while more:
            more = False
            for m, began in since.items():
                long = now - began >= self.clear_after_s
                if long and machines.held[m] and m not in aligned.touched and aligned.clear(m):
                    cleared, more = cleared + 1, True
        since.update((m, now) for m in since if m in aligned.touched)
        return cleared, {names[m]: began for m, began in since.items() if machines.held[m]}


class _Aligned:
    """Instances with the seconds until the last of their tasks ends."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.lasts: Floats = np.zeros(len(machines.offer))
        #: Instances that took in a task.
        self.touched: set[int] = set()
        for m in range(len(machines)):
            self._update_end(m)

    def put(self, m: int, task: Task) -> None:
        """Place a task."""
        self.machines.put(m, task)
        self.touched.add(m)
        self.lasts[m] = max(self.lasts[m], _lasts_s(task.remaining_s))

    def home(self, task: Task, but: int = -1) -> int | None:
        """The instance for a task: own bin, then greater bins, then lesser ones; None if none has room."""
        rows = self.machines.room(task)
        rows = rows[rows != but]
        if not len(rows):
            return None
        own = bin_of(task.remaining_s)
        bins = _bins(self.lasts[rows])
        far = np.where(bins >= own, bins - own, bins.max() + own - bins)
        gap = np.abs(self.lasts[rows] - _lasts_s(task.remaining_s))
        left = self.machines.left_over(rows, task)
        first = np.where(bins == own, gap, -left)
        return int(rows[np.lexsort((left, first, far))[0]])

    def clear(self, m: int) -> bool:
        """Move all tasks of an instance elsewhere; if one has no place, all stay."""
        held = list(self.machines.held[m])
        moved: list[tuple[int, Task]] = []
        for task in sorted(held, key=lambda task: -_lasts_s(task.remaining_s)):
            to = self.home(task, but=m)
            if to is None:
                break
            self.machines.put(to, task)
            self.lasts[to] = max(self.lasts[to], _lasts_s(task.remaining_s))
            moved.append((to, task))
        fits = len(moved) == len(held)
        for to, task in moved:
            self.machines.take(m if fits else to, task)
            self._update_end(to)
        self.touched.update(to for to, _ in moved if fits)
        return fits

    def _update_end(self, m: int) -> None:
        self.lasts[m] = max((_lasts_s(t.remaining_s) for t in self.machines.held[m]), default=0.0)


def _scale_out(aligned: _Aligned, tasks: Sequence[Task]) -> None:
    """Launch instances for a bin's tasks at the least rent per value of used resources.

    All offers and candidate groups are compared. The groups of an offer are the stages of filling it with the
    tasks in descending order of reservation price. Resources of different kinds are added at their unit
    prices (`unit_prices`), so the score is dollars of rent per dollar of used resources (slides 9 and 10).
    Ties: more used, then catalog order.
    """
    if not tasks:
        return
    machines, classes = aligned.machines, aligned.machines.classes
    waiting: dict[int, list[Task]] = {}
    for task in tasks:
        waiting.setdefault(classes.of[task.key], []).append(task)
    order = sorted(waiting, key=lambda c: -int(classes.price[c]))
    worth = _worth(classes)
    while any(waiting.values()):
        options = []
        for k in range(classes.market.open):
            group = _fill(classes, k, order, waiting)
            used = sum(n * float(worth[k, c]) for c, n in group)
            if group:
                # The last stage scores best: the rent is the same at every stage.
                score = int(classes.market.rate[k]) / max(used, 1e-9)
                options.append((round(score, 9), -round(used, 3), k, group))
        _, _, k, group = min(options)
        for _ in range(min(len(waiting[c]) // n for c, n in group)):
            m = machines.rent(k)
            for task in [waiting[c].pop(0) for c, n in group for _ in range(n)]:
                aligned.put(m, task)


def _fill(
    classes: Classes, offer: int, order: Sequence[int], waiting: dict[int, list[Task]]
) -> list[tuple[int, int]]:
    """The classes and numbers of tasks that one instance takes, class by class."""
    room = classes.market.capacity[offer].copy()
    group = []
    for c in order:
        demand = classes.demand[offer, c]
        most = min(
            (int(has // asks) for has, asks in zip(room, demand, strict=True) if asks),
            default=len(waiting[c]),
        )
        n = min(most, len(waiting[c]))
        if n:
            room -= n * demand
            group.append((c, n))
    return group


def _worth(classes: Classes) -> Floats:
    """Value of what a task of each class uses on each open offer, micro-dollars per hour, K × C.

    The GPUs of a task that takes several types are worth what the cheapest of them cost.
    """
    prices = unit_prices(classes)
    demand = classes.demand[: len(prices)]
    of_gpu = np.where(classes.holds[: len(prices)], prices[:, :1], np.inf).min(axis=0, initial=np.inf)
    rest = (demand[:, :, 1:] * prices[:, None, 1:]).sum(axis=2)
    worth: Floats = np.where(np.isfinite(of_gpu), demand[:, :, 0] * of_gpu, 0.0) + rest
    return worth


def unit_prices(classes: Classes) -> Floats:
    """Price of one GPU, milli-CPU and MiB: the least price of any open offer divided by its amount.

    Micro-dollars per hour, K × 3. GPUs are compared only with GPUs of the same type.
    """
    market = classes.market
    capacity, rate = market.capacity[: market.open], market.rate[: market.open]
    each = np.where(capacity > 0, rate[:, None] / np.maximum(capacity, 1), np.inf)
    types = np.array([offer.resources.gpu_type for offer in market.offers[: market.open]])
    value = np.tile(each.min(axis=0), (market.open, 1))
    for gpu_type in set(types):
        value[types == gpu_type, 0] = each[types == gpu_type, 0].min()
    return np.where(np.isfinite(value), value, 0.0)
