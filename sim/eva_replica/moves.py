"""Selection of the jobs that can start to move."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sim.eva_replica.state import JobProgress, Machine, SimulatedTask, amounts


def movable(movers: Iterable[SimulatedTask]) -> list[JobProgress]:
    """Jobs whose moving tasks all have room on their targets, or get it when other movable jobs leave.

    Other jobs keep running where they are; in particular no job stops for an instance that is not ready. Jobs
    that want each other's places on running instances move at the same time; a plan never assigns more to an
    instance than it holds.
    """
    moves: dict[JobProgress, list[SimulatedTask]] = {}
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


def _has_place(machine: Machine, stuck: Collection[JobProgress]) -> bool:
    """Whether the assigned tasks fit beside the tasks that should leave but are stuck."""
    free = amounts(machine.type.offer.resources)
    stay = [member for member in machine.on.values() if member.moving and member.run in stuck]
    for member in [*machine.held.values(), *stay]:
        for k, amount in enumerate(amounts(member.demand(machine))):
            free[k] -= amount
    return min(free) >= 0
