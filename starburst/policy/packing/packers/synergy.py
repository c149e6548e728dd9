"""Best fit that considers interference: the Synergy baseline of Eva (section 6.1)."""

from __future__ import annotations

import numpy as np

from starburst.domain.job import Task
from starburst.policy.packing.classes import Classes
from starburst.policy.packing.machines import Machines
from starburst.policy.packing.plan import Plan, Situation
from starburst.policy.packing.throughput import Throughput, throughputs


class Synergy:
    """Places each new task on the instance that it fills best, if the instance's TNRP rises; nothing moves.

    Best is the smallest free share after placement, averaged over GPUs, CPUs and memory; ties go to the first
    instance. If there is no such instance, the cheapest offer that holds the task is launched. An empty
    running instance is used only in place of a launch of its offer.
    """

    def plan(self, situation: Situation) -> Plan:
        """Place new tasks in the given order."""
        machines = Machines(situation)
        worth = MachineWorth(machines.classes, situation.throughput)
        rented = joined = 0
        for task in machines.pending:
            m = _best(machines, worth, task)
            rented, joined = rented + (m is None), joined + (m is not None)
            if m is None:
                m = machines.rent(int(machines.classes.home[machines.classes.of[task.key]]))
            machines.put(m, task)
        return machines.plan(f"best fit: {joined} tasks join others, {rented} start a machine")


def _best(machines: Machines, worth: MachineWorth, task: Task) -> int | None:
    rows = machines.room(task)
    for i in np.argsort(machines.left_over(rows, task), kind="stable"):
        m = int(rows[i])
        if worth.of([*machines.held[m], task]) > worth.of(machines.held[m]):
            return m
    return None


class MachineWorth:
    """TNRP of the tasks of one instance, micro-dollars per hour (Eva, sections 4.3 and 4.4)."""

    def __init__(self, classes: Classes, table: Throughput) -> None:
        self._classes = classes
        self._table = table
        self._known: dict[tuple[int, ...], float] = {}

    def of(self, tasks: list[Task]) -> float:
        """Σ RP(τ) − (1 − tput(τ)) · RP(job of τ); for a single-task job the term is tput(τ) · RP(τ)."""
        key = tuple(sorted(self._classes.of[task.key] for task in tasks))
        if key not in self._known:
            values = throughputs(self._table, [self._classes.workload[c] for c in key])
            prices = [(int(self._classes.price[c]), int(self._classes.job_price[c])) for c in key]
            self._known[key] = sum(
                price - (1 - value) * job for (price, job), value in zip(prices, values, strict=True)
            )
        return self._known[key]
