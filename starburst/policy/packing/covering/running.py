"""Running instances with equal offer and load, grouped into kinds for the covering program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from starburst.policy.packing.classes import Classes, Ints
from starburst.policy.packing.match import moved
from starburst.policy.packing.packers.reconfigure import loads_of
from starburst.policy.packing.plan import Situation


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Kinds of running instances, M of them."""

    #: Instance ids of each kind.
    members: tuple[tuple[str, ...], ...]
    offer: Ints
    #: Tasks per class on each instance of the kind, and those of them that must stay, M × C.
    held: Ints
    pinned: Ints

    def __len__(self) -> int:
        return len(self.members)

    @property
    def counts(self) -> Ints:
        """Number of instances per kind."""
        return np.array([len(names) for names in self.members], np.int64)


def running(situation: Situation, classes: Classes, max_moves: int | None) -> Running:
    """Group the instances. Tasks that no open offer holds, and tasks of jobs at the move limit, must stay."""
    often = moved_often(classes, max_moves)
    loads = loads_of(classes, {r.id: r.held for r in situation.instances})
    tired = loads_of(
        classes, {r.id: tuple(key for key in r.held if key[0] in often) for r in situation.instances}
    )
    kinds: dict[tuple[int, bytes, bytes], list[str]] = {}
    for rented in situation.instances:
        load = loads[rented.id]
        pinned = np.where(classes.stuck, load, tired[rented.id])
        kind = (classes.market.index(rented.offer), load.tobytes(), pinned.tobytes())
        kinds.setdefault(kind, []).append(rented.id)
    shape = (len(kinds), len(classes))
    return Running(
        members=tuple(tuple(names) for names in kinds.values()),
        offer=np.array([offer for offer, _, _ in kinds], np.int64),
        held=np.array([np.frombuffer(load, np.int64) for _, load, _ in kinds], np.int64).reshape(shape),
        pinned=np.array([np.frombuffer(pins, np.int64) for _, _, pins in kinds], np.int64).reshape(shape),
    )


def moved_often(classes: Classes, max_moves: int | None) -> frozenset[str]:
    """Jobs whose tasks have been moved `max_moves` times or more in total."""
    return frozenset(job for job, n in moved(classes).items() if max_moves is not None and n >= max_moves)
