"""Machines as they fill: for packers that place one task after the other and leave the rest alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.policy.packing.classes import KINDS, Classes, Floats, Ints, classes_of
from starburst.policy.packing.plan import Memory, Plan, Situation, assemble

#: No task may join; its capacity is not ours to judge.
CLOSED = -1


class Machines:
    """Those we have, with the tasks they hold, and then those to be rented, by number."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.classes: Classes = classes_of(situation)
        self.held: list[list[Task]] = []
        most = len(situation.instances) + len(situation.tasks)
        #: Index of its offer in the market, number of tasks, and what is free.
        self.offer: Ints = np.zeros(most, np.int64)
        self.count: Ints = np.zeros(most, np.int64)
        self.free: Ints = np.zeros((most, KINDS), np.int64)
        tasks = {task.key: task for task in situation.tasks}
        for rented in situation.instances:
            held = [tasks.pop(key) for key in rented.held if key in tasks]
            m = self._add(self.classes.market.index(rented.offer))
            for task in held:
                self.put(m, task)
        #: New tasks that some offer holds.
        self.pending = [task for task in tasks.values() if task.key in self.classes.of]
        self._nowhere = [(task, why) for task, why in self.classes.unplaced if task.key in tasks]

    def __len__(self) -> int:
        return len(self.held)

    @property
    def running(self) -> int:
        """How many we have, empty ones included."""
        return len(self.situation.instances)

    def demand(self, m: int, task: Task) -> Ints:
        """What a task asks for on a machine."""
        demand: Ints = self.classes.demand[self.offer[m], self.classes.of[task.key]]
        return demand

    def room(self, task: Task) -> Ints:
        """The machines with tasks on them that have room for one more; an empty one is to be given back."""
        demand = self.classes.demand[self.offer[: len(self)], self.classes.of[task.key]]
        fits = (demand <= self.free[: len(self)]).all(axis=1) & (self.count[: len(self)] > 0)
        return np.flatnonzero(fits)

    def left_over(self, rows: Ints, task: Task) -> Floats:
        """Share of each machine that stays free with the task on it, mean over the kinds it has any of."""
        capacity = self.classes.market.capacity[self.offer[rows]]
        free = self.free[rows] - self.classes.demand[self.offer[rows], self.classes.of[task.key]]
        shares = np.where(capacity > 0, free / np.maximum(capacity, 1), 0.0)
        return np.asarray(shares.sum(axis=1) / np.maximum((capacity > 0).sum(axis=1), 1), np.float64)

    def use(self) -> Floats:
        """The share in use of the kind most used, of each machine."""
        capacity = self.classes.market.capacity[self.offer[: len(self)]]
        used = np.where(capacity > 0, 1 - self.free[: len(self)] / np.maximum(capacity, 1), 0.0)
        return np.asarray(used.max(axis=1, initial=0.0), np.float64)

    def put(self, m: int, task: Task) -> None:
        """Place a task. One that no offer could hold any more stays where it is, and nothing joins it."""
        self.held[m].append(task)
        self.count[m] += 1
        if task.key in self.classes.of:
            self.free[m] -= self.demand(m, task)
        else:
            self.free[m] = CLOSED

    def take(self, m: int, task: Task) -> None:
        """Take a task away again."""
        self.held[m].remove(task)
        self.count[m] -= 1
        self.free[m] += self.demand(m, task)

    def rent(self, offer: int) -> int:
        """An empty machine of this offer: one that we have, else a new one."""
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
        """What these machines come to."""
        offers: Sequence[Offer] = self.classes.market.offers
        kept = {r.id: self.held[m] for m, r in enumerate(self.situation.instances)}
        launches = [(offers[self.offer[m]], self.held[m]) for m in range(self.running, len(self))]
        return assemble(self.situation, kept, launches, unplaced=self._nowhere, reason=reason, memory=memory)
