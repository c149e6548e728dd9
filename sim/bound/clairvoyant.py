"""A schedule that knows the future: the scheduler itself, with every job's wait and rank chosen in hindsight.

It is a run of the simulator, so nodes, CPUs, memory and gangs are respected. A job waits at most until its
delay, at a price of an hour, comes to what the cloud costs; a second run takes the wait away from jobs that
waited and left all the same. The price is searched such that the delays sum to what is allowed, under several
orders of the queue; the cheapest schedule found is the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sim.bound.dual import Starts
from sim.bound.lower import LowerBound
from sim.bound.problem import BurstProblem, cloud_cost, counted_jobs
from sim.outcomes import Outcomes
from sim.run import run
from sim.spec import Spec
from sim.sweep import no_wait
from sim.trace import Floats, Trace

#: Prices tried per order.
TRIALS = 8


class Schedule(NamedTuple):
    """What a schedule comes to; of two the cheaper is less."""

    #: GPU-hours charged.
    cost: float
    #: Sum over the jobs of the hours that they end later than on an empty cluster.
    delay_h: float
    outcomes: Outcomes


class QueueRule(NamedTuple):
    """An order of the queue, and weights of waits."""

    #: The smallest goes first.
    rank: Floats
    #: Jobs whose weight is 0 never wait.
    weight: Floats


class Clairvoyant:
    """Searches schedules of one trace on one cluster."""

    def __init__(self, trace: Trace, spec: Spec, engine: str = "auto") -> None:
        self._trace, self._engine = trace, engine
        hindsight = replace(no_wait(spec), waiting="infinite", order="priority", out_of_order=True)
        self._spec = replace(hindsight, binpack="best-fit", cpu_offload=False)
        self._cost = cloud_cost(trace, spec.data_gravity_h + spec.cloud_delay_s / 3600)

    def best(self, problem: BurstProblem, bound: LowerBound, delay_h: float) -> Schedule | None:
        """The cheapest schedule found whose delays sum to at most `delay_h` hours; None if none was found."""
        nobody = np.zeros(len(self._trace))
        found = [self._run(nobody, QueueRule(nobody, nobody))]
        price = bound.delay_price or 1.0
        for rule in self._rules(problem, bound):
            schedules, price = self._search(rule, price, delay_h)
            found += schedules
        within = [schedule for schedule in found if schedule.delay_h <= delay_h * (1 + 1e-9)]
        return min(within, key=lambda schedule: schedule.cost, default=None)

    def _rules(self, problem: BurstProblem, bound: LowerBound) -> list[QueueRule]:
        """By arrival, by dollars per hour of the run, and as the prices of the bound have it."""
        arrival_h, everyone = self._trace.arrival_h, np.ones(len(self._trace))
        rate = self._cost / np.maximum(self._trace.duration_h, 1e-9)
        point = Starts(problem, bound.edges, bound.delay_price).dual(bound.delay_price, bound.prices)
        start_h, stays = np.array(arrival_h), np.array(everyone)
        start_h[problem.rows], stays[problem.rows] = point.start_h, point.stays
        rules = [QueueRule(arrival_h, everyone), QueueRule(start_h, stays)]
        return [*rules, QueueRule(-rate, everyone)] if np.ptp(rate) > 1e-9 * rate.max() else rules

    def _search(self, rule: QueueRule, price: float, delay_h: float) -> tuple[list[Schedule], float]:
        """Schedules at several prices, between too much and too little delay; and the last price."""
        found: list[Schedule] = []
        low, high = 0.0, np.inf
        for _ in range(TRIALS):
            found.append(self._hindsight(rule, price))
            if found[-1].delay_h > delay_h:
                low = price
            else:
                high = price
            if high < 1.05 * low:
                break
            price = price * 3 if high == np.inf else price / 3 if not low else float(np.sqrt(low * high))
        return found, price

    def _hindsight(self, rule: QueueRule, price: float) -> Schedule:
        wait_h = rule.weight * self._cost / price
        tried = self._run(wait_h, rule).outcomes
        return self._run(np.where(tried.in_cloud, 0.0, wait_h), rule)

    def _run(self, wait_h: Floats, rule: QueueRule) -> Schedule:
        rank = np.empty(len(self._trace), np.int64)
        rank[np.argsort(rule.rank, kind="stable")] = np.arange(len(self._trace))
        trace = replace(self._trace, max_wait_h=wait_h, priority=-rank)
        outcomes = run(trace, self._spec, self._engine).outcomes
        charged = float(outcomes.charged[counted_jobs(trace, self._spec)].sum())
        return Schedule(charged, delay_of(trace, outcomes, self._spec), outcomes)


def delay_of(trace: Trace, outcomes: Outcomes, spec: Spec) -> float:
    """Sum over the counted jobs of the hours that they end later than on an empty cluster."""
    delays_h = outcomes.end_h - trace.arrival_h - trace.duration_h
    return float(delays_h[counted_jobs(trace, spec)].sum())
