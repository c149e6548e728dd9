"""The packer `optimal`: least cost per hour, including moves, launches and lost throughput.

A candidate is an instance with a possible load: a running one with its tasks, with more, or with one task
replaced by others, or a new one of any offer. Its cost is its rate, the throughput its tasks lose beside each
other (RP − TNRP) and, for a new one, its startup time at that rate, spread over the expected life of the
plan; each task that stays saves the price of a move. The covering program over the candidates is solved by
column generation, then branch and bound. It uses each running instance at most once, so assigning the plan to
the running instances is part of the optimisation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp

import numpy as np

from starburst.domain.money import Money
from starburst.policy.packing.classes import Bools, Floats, Ints, classes_of
from starburst.policy.packing.covering.candidates import Candidates, Slowdown, grow
from starburst.policy.packing.covering.cover import Limits
from starburst.policy.packing.covering.offline import OfflineOptimal, least_rent
from starburst.policy.packing.covering.program import Program
from starburst.policy.packing.covering.running import Running, running
from starburst.policy.packing.match import match, settle
from starburst.policy.packing.packers.eva import SECONDS_PER_HOUR, Eva, nothing_new, partial, remember
from starburst.policy.packing.packers.none import holds, lacking
from starburst.policy.packing.packers.reconfigure import loads_of, smallest
from starburst.policy.packing.plan import Memory, Plan, Situation, assemble

MICRO = 1e6
#: Initial price of a move, beyond its delay; it expresses that users dislike moves.
TEN_DOLLARS = Money.of(10)
#: The move price is multiplied by e^(−unused moves / width), with width LEAST_MOVES + MOVES_SHARE · arrived
#: tasks, and the exponent is clipped to ± PRICE_RANGE. Arrivals and moves fade over MOVES_WINDOW tasks.
LEAST_MOVES, MOVES_SHARE = 10.0, 0.05
PRICE_RANGE = 3.0
MOVES_WINDOW = 5000.0
#: Limits for a bound only; its solution is not used as a plan.
BOUND_ONLY = Limits(nodes=0, columns=0)
#: Least expected life of a plan, hours.
LEAST_LIFE_H = 0.1


@dataclass(frozen=True, slots=True)
class Optimal:
    """Moves a task only if the move pays within the expected life of the plan."""

    #: Target of moves per arriving task; the move price is adjusted to meet it. None keeps the price fixed.
    moves_per_task: float | None = 0.8
    #: Initial move price: what a move must save, beyond its cost, within the expected life of the plan.
    move_price: Money = TEN_DOLLARS
    #: Expected life of a plan, as a share of the mean stay of a task.
    life_share: float = 0.25
    #: Weight of lost throughput: (1 − t)·p for a task of reservation price p at throughput t.
    delay_price: float = 1.0
    #: Most moves of a job; None sets no limit. With a limit, jobs may end up alone on large instances.
    max_moves: int | None = None
    #: Rounds of column generation; node limit and relative gap of branch and bound.
    rounds: int = 3
    nodes: int = 50
    gap: float = 1e-3
    #: Above this number of kinds of running instances times classes, Eva makes the plan.
    most_cells: int = 20_000
    #: Compute for every plan a lower bound on the rent of its tasks; doubles the work.
    certify: bool = False

    def plan(self, situation: Situation) -> Plan:
        """The best plan found; never worse than Partial Reconfiguration under this cost model."""
        plan = self._plan(situation)
        if plan.lower_bound is not None or not self.certify:
            return plan
        return replace(plan, lower_bound=least_cost(situation))

    def _plan(self, situation: Situation) -> Plan:
        if not situation.instances:
            return replace(OfflineOptimal().plan(situation), memory=counted(situation))
        if nothing_new(situation) and (plan := _as_it_is(situation)):
            return plan
        question = Question(self, situation)
        if len(question.running) * len(question.classes) > self.most_cells:
            plan = Eva().plan(situation)
            reason = f"too many kinds of machines to optimise; {plan.reason}"
            return replace(plan, reason=reason, lower_bound=least_cost(situation))
        return question.answer()


def least_cost(situation: Situation) -> Money:
    """Lower bound on the rent per hour for these tasks, ignoring what runs."""
    return Money(least_rent(classes_of(situation), BOUND_ONLY))


def _as_it_is(situation: Situation) -> Plan | None:
    """The plan without changes; None if some offer holds a task that has no instance."""
    tasks = {task.key: task for task in situation.tasks}
    kept = {r.id: [tasks.pop(key) for key in r.held if key in tasks] for r in situation.instances}
    offers = situation.offers
    if any(holds(offer, task) for task in tasks.values() for offer in offers):
        return None
    unplaced = [(task, lacking(task, offers)) for task in tasks.values()]
    return assemble(situation, kept, [], unplaced=unplaced, reason="nothing came, went or changed its price")


class Question:
    """A situation expressed as a covering program."""

    def __init__(self, packer: Optimal, situation: Situation) -> None:
        self._packer = packer
        self._situation = situation
        self._memory = counted(situation)
        self.classes = classes_of(situation)
        self.running = running(situation, self.classes, packer.max_moves)
        self._slowdown = Slowdown(self.classes)
        self._life_h = self._life()
        #: Micro-dollars per hour saved by a task that stays, by class.
        self._stay = self._move_prices() / self._life_h
        market = self.classes.market
        ready_h = np.array([offer.ready_s for offer in market.offers]) / SECONDS_PER_HOUR
        #: Micro-dollars per hour of a new instance including its start, by offer.
        self._new = np.rint(market.rate * (1 + ready_h / self._life_h)).astype(np.int64)

    def _life(self) -> float:
        """Expected life of the plan, hours: a share of the mean stay of a task.

        The mean stay follows from Little's law; half of the events are counted as arrivals.
        """
        arrivals = self._memory.event_rate / 2 * SECONDS_PER_HOUR
        stay_h = len(self._situation.tasks) / arrivals if arrivals else 1.0
        return max(self._packer.life_share * stay_h, LEAST_LIFE_H)

    def _move_prices(self) -> Floats:
        """Micro-dollars that a move must save, by class: the cost of the job's delay plus the move price."""
        moves_s = np.array([max(task.move_s for task in tasks) for tasks in self.classes.members], np.float64)
        price = move_price(self._packer, self._memory)
        return np.asarray(moves_s / SECONDS_PER_HOUR * self.classes.job_price + price, np.float64)

    def answer(self) -> Plan:
        """Generate candidates by column generation, then choose whole instances by branch and bound."""
        if not len(self.classes):
            return assemble(
                self._situation,
                {},
                [],
                unplaced=self.classes.unplaced,
                reason="no tasks",
                memory=self._memory,
            )
        needed = np.asarray(self.running.pinned.any(axis=1), bool)
        incumbent = self._incumbent(needed)
        columns = (incumbent + self._grown(self.classes.price.astype(float))).distinct()
        program = Program(self.classes.counts, self.running.counts, needed)
        program.add(columns, self._costs(columns))
        for _ in range(self._packer.rounds):
            prices = program.relaxed()
            if prices is None or not len(better := self._better(*prices)):
                break
            columns = columns + better
            program.add(better, self._costs(better))
        start = np.zeros(len(columns))
        rows = {name: at for at, name in enumerate(columns.names())}
        np.add.at(start, [rows[name] for name in incumbent.names()], 1)
        times = program.whole(start, nodes=self._packer.nodes, gap=self._packer.gap)
        costs = self._costs(columns)
        saves = float(costs @ (start - times))
        return self._plan(columns.take(np.repeat(np.arange(len(columns)), times.astype(np.int64))), saves)

    def _costs(self, columns: Candidates) -> Floats:
        """Dollars per hour of each candidate."""
        market = self.classes.market
        rate = self._new[columns.offer].astype(float)
        on = np.flatnonzero(columns.machine >= 0)
        stays = np.minimum(columns.load[on], self.running.held[columns.machine[on]])
        rate[on] = market.rate[columns.offer[on]] - stays @ self._stay
        lost = self._packer.delay_price * self._slowdown.lost(columns.load)
        return np.asarray((rate + lost) / MICRO, np.float64)

    def _incumbent(self, needed: Bools) -> Candidates:
        """The plan of Partial Reconfiguration that keeps instances that pay or hold tasks that must stay."""
        loads = loads_of(self.classes, {r.id: r.held for r in self._situation.instances})
        stay = {name for m in np.flatnonzero(needed) for name in self.running.members[m]}
        plan = partial(self._situation, self.classes, loads, stay)
        kind = {name: m for m, names in enumerate(self.running.members) for name in names}
        index = self.classes.market.index
        machines = [(kind[name], self.running.offer[kind[name]], t) for name, t in plan.assignments.items()]
        machines += [(-1, index(launch.offer), launch.tasks) for launch in plan.launches]
        then = loads_of(self.classes, {str(n): tuple(t.key for t in m[2]) for n, m in enumerate(machines)})
        return Candidates(
            np.array([offer for _, offer, _ in machines], np.int64),
            np.array([m for m, _, _ in machines], np.int64),
            np.stack(list(then.values())),
        )

    def _better(self, prices: Floats, machine_prices: Floats) -> Candidates:
        """Candidates whose value at these prices of classes and running instances exceeds their cost."""
        found = self._grown(prices * MICRO)
        worth = found.load @ prices - self._costs(found)
        on = np.flatnonzero(found.machine >= 0)
        worth[on] += machine_prices[found.machine[on]]
        return found.take(np.flatnonzero(worth > 1e-6))

    def _grown(self, prices: Floats) -> Candidates:
        """Candidates grown at these prices of classes, micro-dollars per hour."""
        start, value = self._starts(prices)
        packer = self._packer
        first, second = (
            grow(self.classes, self._slowdown, start, value, delay_price=packer.delay_price, by_size=by_size)
            for by_size in (False, True)
        )
        found = (first + second).distinct()
        return found.take(np.flatnonzero(found.load.any(axis=1)))

    def _starts(self, prices: Floats) -> tuple[Candidates, Floats]:
        """Start points of growth: running instances and new ones.

        A running instance starts as it is, with its pinned tasks only, or with one task less; a new one with
        one task.
        """
        size, now = len(self.classes), self.running
        kinds = np.arange(len(now))
        rows, cells = np.nonzero(now.held > now.pinned)
        fewer = now.held[rows]
        fewer[np.arange(len(rows)), cells] -= 1
        offers, seeds = np.nonzero(self.classes.holds[: self.classes.market.open])
        single = np.zeros((len(seeds), size), np.int64)
        single[np.arange(len(seeds)), seeds] = 1
        start = Candidates(
            np.concatenate([now.offer, now.offer, now.offer[rows], offers]),
            np.concatenate([kinds, kinds, rows, np.full(len(seeds), -1)]),
            np.concatenate([now.held, now.pinned, fewer, single]),
        )
        value = np.broadcast_to(prices, (len(start), size)).copy()
        value[2 * len(kinds) + np.arange(len(rows)), cells] = -np.inf
        value[start.machine < 0] = np.where(self.classes.stuck, -np.inf, value[start.machine < 0])
        return start, value

    def _plan(self, picked: Candidates, saves: float) -> Plan:
        """Select the instances of each kind, and the tasks."""
        picked = without_surplus(picked, self.running, self.classes.counts)
        free = [list(names) for names in self.running.members]
        given = {free[m].pop(0): load for m, load in zip(picked.machine, picked.load, strict=True) if m >= 0}
        started = replace(self.classes, market=replace(self.classes.market, rate=self._new))
        fresh = [
            (smallest(started, int(offer), load), load, 1)
            for offer, m, load in zip(picked.offer, picked.machine, picked.load, strict=True)
            if m < 0
        ]
        # A wanted new instance reuses a running one of its offer that would otherwise be terminated.
        spare = [rented for rented in self._situation.instances if rented.id not in given]
        loads = loads_of(self.classes, {rented.id: rented.held for rented in spare})
        reused, launches = match(fresh, spare, loads, self.classes.market.offers)
        kept, new = settle(self.classes, self._situation.instances, {**given, **reused}, launches)
        reason = (
            f"optimised for about {self._life_h:.2g} h: worth ${saves:.2f}/h more than keeping what pays"
            if saves > 1e-9
            else "keeping what pays is the best plan found"
        )
        plan = assemble(self._situation, kept, new, unplaced=self.classes.unplaced, reason=reason)
        moved = self._memory.moved + len(plan.migrations)
        return replace(plan, memory=replace(self._memory, moved=moved))


def counted(situation: Situation) -> Memory:
    """The memory, with the tasks counted that have arrived since the last plan."""
    new = sum(task.key not in situation.memory.known for task in situation.tasks)
    memory = remember(situation)
    keep = exp(-new / MOVES_WINDOW)
    return replace(memory, came=memory.came * keep + new, moved=memory.moved * keep)


def move_price(packer: Optimal, memory: Memory) -> float:
    """Micro-dollars per move: below the initial price while moves are unused, above it after too many."""
    if packer.moves_per_task is None:
        return float(packer.move_price.micro_usd)
    left = packer.moves_per_task * memory.came - memory.moved
    width = LEAST_MOVES + MOVES_SHARE * memory.came
    factor = exp(min(max(-left / width, -PRICE_RANGE), PRICE_RANGE))
    return packer.move_price.micro_usd * factor


def without_surplus(picked: Candidates, now: Running, counts: Ints) -> Candidates:
    """Remove double coverage: a task covered twice leaves an instance on which it would be new."""
    load = picked.load.copy()
    surplus = load.sum(axis=0) - counts
    on = picked.machine >= 0
    held = np.zeros_like(load)
    held[on] = np.minimum(load[on], now.held[picked.machine[on]])
    for row in range(len(load)):
        gone = np.minimum(np.maximum(load[row] - held[row], 0), surplus)
        load[row] -= gone
        surplus -= gone
    return Candidates(picked.offer, picked.machine, load).take(np.flatnonzero(load.any(axis=1)))
