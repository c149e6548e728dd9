"""From class counts to tasks on instances; as many tasks as possible stay on their instance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.policy.packing.classes import Classes, Ints
from starburst.policy.packing.plan import Rented, TaskKey

#: Instance id → its tasks; and the launches with theirs.
Settled = tuple[dict[str, list[Task]], list[tuple[Offer, tuple[Task, ...]]]]


def match(
    machines: Sequence[tuple[int, Ints, int]],
    instances: Sequence[Rented],
    loads: Mapping[str, Ints],
    market: Sequence[Offer],
) -> tuple[dict[str, Ints], list[tuple[int, Ints]]]:
    """Assign wanted loads to running instances of the same offer, most kept tasks first; launch the rest."""
    names = [offer.name for offer in market]
    running: dict[str, list[str]] = defaultdict(list)
    for rented in instances:
        running[rented.offer.name].append(rented.id)
    given: dict[str, Ints] = {}
    rest: list[tuple[int, Ints, int]] = []
    # Instances whose load is wanted unchanged are assigned first; few comparisons then remain.
    as_is: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    for rented in reversed(instances):
        as_is[rented.offer.name, loads[rented.id].tobytes()].append(rented.id)
    for offer, load, times in machines:
        same = as_is[names[offer], load.tobytes()]
        stays = min(times, len(same))
        given |= {same.pop(): load for _ in range(stays)}
        if times > stays:
            rest.append((offer, load, times - stays))
    launches = []
    for offer, alike in _by_offer(rest).items():
        free = [name for name in running[names[offer]] if name not in given]
        now = [loads[name] for name in free]
        taken = _most_kept(now, alike) if free else {}
        given |= {free[i]: alike[j] for i, j in taken.items()}
        launches += [(offer, load) for j, load in enumerate(alike) if j not in set(taken.values())]
    return given, launches


def _by_offer(machines: Sequence[tuple[int, Ints, int]]) -> dict[int, list[Ints]]:
    loads: dict[int, list[Ints]] = defaultdict(list)
    for offer, load, times in machines:
        loads[offer] += [load] * times
    return loads


def _most_kept(now: Sequence[Ints], then: Sequence[Ints]) -> dict[int, int]:
    """Index pairs of running instance and wanted load: most kept tasks first, then fewest changes."""
    before, after = np.stack(now)[:, None, :], np.stack(then)[None, :, :]
    kept = np.minimum(before, after).sum(axis=2)
    changed = np.abs(before - after).sum(axis=2)
    pairs: dict[int, int] = {}
    used: set[int] = set()
    for flat in np.lexsort((changed.ravel(), -kept.ravel())):
        i, j = divmod(int(flat), len(then))
        if i not in pairs and j not in used:
            pairs[i] = j
            used.add(j)
            if len(pairs) == min(len(now), len(then)):
                break
    return pairs


def settle(
    classes: Classes,
    instances: Sequence[Rented],
    given: Mapping[str, Ints],
    launches: Sequence[tuple[int, Ints]],
) -> Settled:
    """Select the tasks: those on an instance stay as far as its load has their class; others fill it up."""
    places = {name: load.copy() for name, load in given.items()}
    kept: dict[str, list[Task]] = {name: [] for name in given}
    stays: set[TaskKey] = set()
    tasks = {task.key: task for members in classes.members for task in members}
    moves = moved(classes)
    for rented in instances:
        for key in sorted(rented.held, key=lambda key: -moves.get(key[0], 0)):
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


def moved(classes: Classes) -> dict[str, int]:
    """Number of moves so far, summed over the tasks of each job."""
    moves: dict[str, int] = defaultdict(int)
    for task in [*chain(*classes.members), *(task for task, _ in classes.unplaced)]:
        moves[task.job_id] += task.moves
    return moves


def _take(open_: Sequence[object], load: Ints) -> list[Task]:
    return [next(open_[c]) for c in np.flatnonzero(load) for _ in range(load[c])]  # type: ignore[call-overload]
