"""Which jobs can begin to move."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sim.eva_replica.state import Machine, Member, Run, amounts


def movable(movers: Iterable[Member]) -> list[Run]:
    """Jobs whose movers all have a place to go to, or get one as others begin to move with them.

    Until then a job goes on where it is: nobody stops for a machine that is not there yet. Jobs that want
    each other's places on running machines move at once; a plan never wants more on a machine than it holds.
    """
    moves: dict[Run, list[Member]] = {}
    for member in movers:
        moves.setdefault(member.run, []).append(member)
    stuck = {run for run, members in moves.items() if not all(m.target and m.target.ready for m in members)}
    while True:
        more = {
            run
            for run, members in moves.items()
            if run not in stuck and not all(m.target and _has_place(m.target, stuck) for m in members)
        }
        if not more:
            return [run for run in moves if run not in stuck]
        stuck |= more


def _has_place(machine: Machine, stuck: Collection[Run]) -> bool:
    """Whether all who are meant to be on it fit beside those who want to leave and cannot."""
    free = amounts(machine.type.offer.resources)
    stay = [member for member in machine.on.values() if member.moving and member.run in stuck]
    for member in [*machine.held.values(), *stay]:
        for k, amount in enumerate(amounts(member.demand(machine))):
            free[k] -= amount
    return min(free) >= 0
