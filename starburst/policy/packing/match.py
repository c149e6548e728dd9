"""From counts of classes to tasks on machines: what already runs where it should, stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.policy.packing.classes import Classes, Ints
from starburst.policy.packing.plan import Rented, TaskKey

#: Machine id → its tasks, and machines to launch with theirs.
Settled = tuple[dict[str, list[Task]], list[tuple[Offer, tuple[Task, ...]]]]


def match(
    machines: Sequence[tuple[int, Ints, int]],
    instances: Sequence[Rented],
    loads: Mapping[str, Ints],
    market: Sequence[Offer],
) -> tuple[dict[str, Ints], list[tuple[int, Ints]]]:
    """Give wanted machines to running ones of the same offer, most tasks kept first; the rest is launched."""
    wanted = [(offer, load) for offer, load, times in machines for _ in range(times)]
    by_offer: dict[str, list[int]] = defaultdict(list)
    for w, (offer, _) in enumerate(wanted):
        by_offer[market[offer].name].append(w)
    given: dict[str, Ints] = {}
    taken = np.zeros(len(wanted), bool)
    for name, candidates in by_offer.items():
        running = [rented.id for rented in instances if rented.offer.name == name]
        if not running:
            continue
        now = np.stack([loads[i] for i in running])
        then = np.stack([wanted[w][1] for w in candidates])
        kept = np.minimum(now[:, None, :], then[None, :, :]).sum(axis=2)
        # Among equals, the machine that changes least.
        moved = np.abs(now[:, None, :] - then[None, :, :]).sum(axis=2)
        for flat in np.lexsort((moved.ravel(), -kept.ravel())):
            i, j = divmod(int(flat), len(candidates))
            if running[i] not in given and not taken[candidates[j]]:
                given[running[i]] = wanted[candidates[j]][1]
                taken[candidates[j]] = True
    return given, [wanted[w] for w in np.flatnonzero(~taken)]


def settle(
    classes: Classes,
    instances: Sequence[Rented],
    given: Mapping[str, Ints],
    launches: Sequence[tuple[int, Ints]],
) -> Settled:
    """Name the tasks: those on a machine stay as far as it holds their class; others fill what is open."""
    places = {name: load.copy() for name, load in given.items()}
    kept: dict[str, list[Task]] = {name: [] for name in given}
    stays: set[TaskKey] = set()
    tasks = {task.key: task for members in classes.members for task in members}
    for rented in instances:
        for key in rented.held:
            c = classes.of.get(key, -1)
            if rented.id in places and c >= 0 and places[rented.id][c] > 0:
                places[rented.id][c] -= 1
                kept[rented.id].append(tasks[key])
                stays.add(key)
    open_ = [iter([task for task in members if task.key not in stays]) for members in classes.members]
    for name, load in places.items():
        kept[name] += _take(open_, load)
    offers = classes.market.offers
    return kept, [(offers[offer], tuple(_take(open_, load))) for offer, load in launches]


def _take(open_: Sequence[object], load: Ints) -> list[Task]:
    return [next(open_[c]) for c in np.flatnonzero(load) for _ in range(load[c])]  # type: ignore[call-overload]
