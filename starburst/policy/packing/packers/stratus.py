"""Tasks that end together go together (Stratus, SoCC'18; baseline of Eva, section 6.1).

Remaining run times fall into bins that double: [0, 1), [1, 2), [2, 4), [4, 8), … minutes. A machine is in
the bin of the task it holds longest. A new task joins a machine of its own bin (there the one whose last task
ends closest to it), else of the nearest greater bin (it keeps no machine longer), else of the greatest lesser
one (in both the one with most left over); only what fits on none rents machines. A machine that has been
little used for long is cleared, if all its tasks fit elsewhere. Interference is not looked at.
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
#: A run time that nobody knows counts as three hours, in the bin from 128 to 256 minutes.
UNKNOWN_S = 3 * 3600.0
#: A machine is little used if less than this share is in use of each kind of resource.
LOW_USE = 0.5
#: Seconds of that until it is cleared.
CLEAR_AFTER_S = 1800.0


def assumed_remaining_s(estimate_s: float | None, elapsed_s: float) -> float | None:
    """Seconds a task still runs; one that outlives its estimate is assumed to be at half its run time.

    So the estimate doubles as often as it is outlived (Stratus, slide 11). None stays unknown.
    """
    if estimate_s is None or estimate_s <= 0:
        return None if estimate_s is None else elapsed_s
    whole = estimate_s
    while whole <= elapsed_s:
        whole *= 2
    return whole - elapsed_s


def bin_of(remaining_s: float | None) -> int:
    """The number of the bin; what is unknown, or used up and not assumed anew, is in a middle one."""
    return int(_bins(np.array([_lasts_s(remaining_s)]))[0])


def _lasts_s(remaining_s: float | None) -> float:
    return remaining_s if remaining_s is not None and remaining_s > 0 else UNKNOWN_S


def _bins(seconds: Floats) -> Ints:
    return np.frexp(np.floor(seconds / UNIT_S))[1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Stratus:
    """Align run times, so that machines are either full or gone."""

    low_use: float = LOW_USE
    clear_after_s: float = CLEAR_AFTER_S

    def plan(self, situation: Situation) -> Plan:
        """Tasks from long to short: pack, rent for the rest of their bin; then clear machines."""
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
        """Empty what was little used for long, least used first, until no more can be; whatever took tasks
        in is left alone. Also says since when machines are little used."""
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
    """Machines with the time, in seconds, until the last of their tasks ends."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.lasts: Floats = np.zeros(len(machines.offer))
        #: Machines that took in a task.
        self.touched: set[int] = set()
        for m in range(len(machines)):
            self._look(m)

    def put(self, m: int, task: Task) -> None:
        """Place a task."""
        self.machines.put(m, task)
        self.touched.add(m)
        self.lasts[m] = max(self.lasts[m], _lasts_s(task.remaining_s))

    def home(self, task: Task, but: int = -1) -> int | None:
        """The machine a task joins: own bin, then greater bins, then lesser ones; None if none has room."""
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
        """Move all tasks of a machine elsewhere; if one has no place, all stay."""
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
            self._look(to)
        self.touched.update(to for to, _ in moved if fits)
        return fits

    def _look(self, m: int) -> None:
        self.lasts[m] = max((_lasts_s(t.remaining_s) for t in self.machines.held[m]), default=0.0)


def _scale_out(aligned: _Aligned, tasks: Sequence[Task]) -> None:
    """Rent for the tasks of a bin what costs least per resource used, over all offers and candidate groups.

    The candidate groups of an offer are the stages of filling it with the tasks in descending order of what
    they cost alone. Resources of several kinds are added up at their prices (`unit_prices`), so the score is
    dollars of rent per dollar of resources used (slides 9 and 10). Ties: more used, then catalog order.
    """
    if not tasks:
        return
    machines, classes = aligned.machines, aligned.machines.classes
    waiting: dict[int, list[Task]] = {}
    for task in tasks:
        waiting.setdefault(classes.of[task.key], []).append(task)
    order = sorted(waiting, key=lambda c: -int(classes.price[c]))
    worth = unit_prices(classes)
    while any(waiting.values()):
        options = []
        for k in range(classes.market.open):
            group = _fill(classes, k, order, waiting)
            used = sum(n * float(classes.demand[k, c] @ worth[k]) for c, n in group)
            if group:
                # The last stage is the best: its rent is that of all of them.
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
    """How many tasks of which class one machine takes, class by class."""
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


def unit_prices(classes: Classes) -> Floats:
    """Dollar value of one GPU, milli-CPU and MiB of each offer: the least that any open offer asks for one.

    Micro-dollars per hour, K × 3. GPUs are compared with GPUs of their type only.
    """
    market = classes.market
    capacity, rate = market.capacity[: market.open], market.rate[: market.open]
    each = np.where(capacity > 0, rate[:, None] / np.maximum(capacity, 1), np.inf)
    types = np.array([offer.resources.gpu_type for offer in market.offers[: market.open]])
    value = np.tile(each.min(axis=0), (market.open, 1))
    for gpu_type in set(types):
        value[types == gpu_type, 0] = each[types == gpu_type, 0].min()
    return np.where(np.isfinite(value), value, 0.0)
