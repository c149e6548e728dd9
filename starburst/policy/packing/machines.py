"""Instances being filled: for packers that place one task at a time and change nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.policy.packing.classes import KINDS, Classes, Floats, Ints, classes_of
from starburst.policy.packing.plan import Memory, Plan, Situation, assemble

#: Marks the free resources of an instance that no task may join, as a task on it has no class.
CLOSED = -1


class Machines:
    """Running instances with their tasks, followed by those to be launched, by index."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.classes: Classes = classes_of(situation)
        self.held: list[list[Task]] = []
        most = len(situation.instances) + len(situation.tasks)
        #: Per instance: index of its offer in the market, number of tasks, and free resources.
        self.offer: Ints = np.zeros(most, np.int64)
        self.count: Ints = np.zeros(most, np.int64)
        self.free: Ints = np.zeros((most, KINDS), np.int64)
        tasks = {task.key: task for task in situation.tasks}
        for rented in situation.instances:
            held = [tasks.pop(key) for key in rented.held if key in tasks]
            m = self._add(self.classes.market.index(rented.offer))
            for task in held:
                self.put(m, task)
        #: Unplaced tasks that some open offer holds.
        self.pending = [task for task in tasks.values() if task.key in self.classes.of]
        self._nowhere = [(task, why) for task, why in self.classes.unplaced if task.key in tasks]

    def __len__(self) -> int:
        return len(self.held)

    @property
    def running(self) -> int:
        """Number of running instances, empty ones included."""
        return len(self.situation.instances)

    def demand(self, m: int, task: Task) -> Ints:
        """Demand of a task on this instance."""
        demand: Ints = self.classes.demand[self.offer[m], self.classes.of[task.key]]
        return demand

    def room(self, task: Task) -> Ints:
        """Non-empty instances with room for the task; empty ones are about to be terminated."""
        demand = self.classes.demand[self.offer[: len(self)], self.classes.of[task.key]]
        fits = (demand <= self.free[: len(self)]).all(axis=1) & (self.count[: len(self)] > 0)
        return np.flatnonzero(fits)

    def left_over(self, rows: Ints, task: Task) -> Floats:
        """Free share of each instance after the task is added, averaged over the resources it has."""
        capacity = self.classes.market.capacity[self.offer[rows]]
        free = self.free[rows] - self.classes.demand[self.offer[rows], self.classes.of[task.key]]
        shares = np.where(capacity > 0, free / np.maximum(capacity, 1), 0.0)
        return np.asarray(shares.sum(axis=1) / np.maximum((capacity > 0).sum(axis=1), 1), np.float64)

    def use(self) -> Floats:
        """Largest share in use over the resources, per instance."""
        capacity = self.classes.market.capacity[self.offer[: len(self)]]
        used = np.where(capacity > 0, 1 - self.free[: len(self)] / np.maximum(capacity, 1), 0.0)
        return np.asarray(used.max(axis=1, initial=0.0), np.float64)

    def put(self, m: int, task: Task) -> None:
        """Place a task. One without a class (no offer holds it any more) closes the instance to others."""
        self.held[m].append(task)
        self.count[m] += 1
        if task.key in self.classes.of:
            self.free[m] -= self.demand(m, task)
        else:
            self.free[m] = CLOSED

    def take(self, m: int, task: Task) -> None:
        """Remove a task."""
        self.held[m].remove(task)
        self.count[m] -= 1
        self.free[m] += self.demand(m, task)

    def rent(self, offer: int) -> int:
        """An empty instance of this offer: a running one if there is one, else a new one."""
        for m in range(self.running):
            if not self.held[m] and self.offer[m] == offer:
                return m
        return self._add(offer)

    def _add(self, offer: int) -> int:
        m = len(self.held)
        self.held.append([])
        self.offer[m] = offer
        self.free[m] = self.classes.market.capacity[offer]
        return m

    def plan(self, reason: str, memory: Memory | None = None) -> Plan:
        """The plan that results from the current placement."""
        offers: Sequence[Offer] = self.classes.market.offers
        kept = {r.id: self.held[m] for m, r in enumerate(self.situation.instances)}
        launches = [(offers[self.offer[m]], self.held[m]) for m in range(self.running, len(self))]
        return assemble(self.situation, kept, launches, unplaced=self._nowhere, reason=reason, memory=memory)
