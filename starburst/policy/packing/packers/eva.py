"""Eva: Full and Partial Reconfiguration, and the choice between them (Eva, sections 4.2 to 4.5)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np

from starburst.policy.packing.classes import Classes, Ints, classes_of
from starburst.policy.packing.match import match, settle
from starburst.policy.packing.packers.reconfigure import Filler, Filling, Machines, full, loads_of, pays
from starburst.policy.packing.plan import Memory, Plan, Rented, Situation, assemble
from starburst.policy.packing.throughput import NO_INTERFERENCE

SECONDS_PER_HOUR = 3600.0
#: Averaging windows: the event rate fades with RATE_WINDOW_S, the share of Full Reconfigurations over
#: SHARE_WINDOW events, so that both follow changes of the workload.
RATE_WINDOW_S = 6 * SECONDS_PER_HOUR
SHARE_WINDOW = 50.0
#: The share is clipped off 0 and 1, for which the expected life of a plan would be infinite or zero.
SHARE_LIMITS = (0.01, 0.99)


@dataclass(frozen=True, slots=True)
class Eva:
    """Packs by throughput-normalised reservation price; reconfigures fully only when that pays."""

    #: "ensemble" chooses by equation 1; "partial" and "full" always use the one.
    mode: str = "ensemble"
    #: False: tasks are assumed to run as fast together as alone (Eva-RP).
    interference: bool = True
    #: False: the tasks of a job are treated as independent jobs (Eva-Single).
    gangs: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Full or Partial Reconfiguration of the current tasks."""
        seen = replace(situation, throughput=situation.throughput if self.interference else NO_INTERFERENCE)
        classes = classes_of(seen, gangs=self.gangs)
        memory = remember(situation)
        loads = loads_of(classes, {rented.id: rented.held for rented in situation.instances})
        candidates = []
        # A full reconfiguration is considered only after an arrival, an end or a change of offers (section
        # 4.5).
        settled = nothing_new(situation)
        if self.mode != "full" or settled:
            candidates.append(("partial", partial(seen, classes, loads)))
        if self.mode != "partial" and not settled:
            candidates.append(("full", _whole(seen, classes, loads)))
        if len(candidates) == 1:
            kind, plan = candidates[0]
            return replace(plan, reason=f"{kind} reconfiguration", memory=memory)
        (_, small), (_, large) = candidates
        return _choose(seen, classes, small, large, memory)


def _choose(situation: Situation, classes: Classes, small: Plan, large: Plan, memory: Memory) -> Plan:
    """Equation 1: full if S_F·D − M_F > S_P·D − M_P.

    S is the saving per hour, M the cost of moves and launches, D the expected life of a plan.
    """
    filler = Filler(classes, situation.throughput)
    saves_small, saves_large = (saving(situation, classes, filler, p) for p in (small, large))
    costs_small, costs_large = (moving(situation, classes, p) for p in (small, large))
    lasts_h = expected_life_s(memory) / SECONDS_PER_HOUR
    fully = saves_large * lasts_h - costs_large > saves_small * lasts_h - costs_small
    chosen, kind = (large, "full") if fully else (small, "partial")
    more = (saves_large - saves_small) / 1e6
    reason = (
        f"{kind} reconfiguration: the full one saves ${more:.2f}/h more, its moves cost "
        f"${(costs_large - costs_small) / 1e6:.2f} more, and plans last about {lasts_h:.2g} h"
    )
    return replace(chosen, reason=reason, memory=_counted(memory, events_of(situation), fully))


def _counted(memory: Memory, events: int, fully: bool) -> Memory:
    """Update the share of events that led to a full reconfiguration; at most one of `events` did."""
    if not events:
        return memory
    keep = exp(-events / SHARE_WINDOW)
    return replace(memory, full_share=memory.full_share * keep + (1 - keep) * fully / events)


def _whole(situation: Situation, classes: Classes, loads: dict[str, Ints]) -> Plan:
    stuck = {name: load * classes.stuck for name, load in loads.items() if load[classes.stuck].any()}
    machines = full(classes, classes.counts * ~classes.stuck, situation.throughput)
    free = [rented for rented in situation.instances if rented.id not in stuck]
    return carried_out(situation, classes, machines, given=stuck, free=free, loads=loads)


def partial(
    situation: Situation, classes: Classes, loads: dict[str, Ints], stay: Container[str] = ()
) -> Plan:
    """Keep the instances that pay, and those in `stay` or with stuck tasks.

    New tasks, and those of instances that do not pay, are placed on a kept instance if that raises its TNRP,
    and otherwise packed by Algorithm 1.
    """
    filler = Filler(classes, situation.throughput)
    kept, rest = [], []
    for rented in situation.instances:
        offer = classes.market.index(rented.offer)
        load = loads[rented.id]
        must = rented.id in stay or load[classes.stuck].any()
        if must or (load.any() and pays(filler.worth(load), classes.market.rate[offer])):
            kept.append((rented, offer))
        else:
            rest.append(rented)
    left = classes.counts - sum((loads[r.id] for r, _ in kept), np.zeros(len(classes), np.int64))
    fillings = {rented.id: (offer, filler.start(offer, loads[rented.id])) for rented, offer in kept}
    left = left - spread(filler, fillings, left)
    given = {name: filling.load for name, (_, filling) in fillings.items()}
    machines = full(classes, left, situation.throughput)
    return carried_out(situation, classes, machines, given=given, free=rest, loads=loads)


def spread(filler: Filler, fillings: dict[str, tuple[int, Filling]], left: Ints) -> Ints:
    """Place tasks of `left` one by one where they raise the TNRP most; returns the number per class."""
    free = left.copy()
    best = {name: filler.best(offer, filling, free) for name, (offer, filling) in fillings.items()}
    while True:
        raises = {name: found[1] - fillings[name][1].worth for name, found in best.items() if found}
        if not raises:
            return np.asarray(left - free, np.int64)
        name = max(raises, key=lambda name: raises[name])
        found = best[name]
        assert found is not None
        filler.add(fillings[name][0], fillings[name][1], *found)
        free[found[0]] -= 1
        for other, (offer, filling) in fillings.items():
            now = best[other]
            if other == name or (now is not None and not free[now[0]]):
                best[other] = filler.best(offer, filling, free)


def carried_out(
    situation: Situation,
    classes: Classes,
    machines: Machines,
    *,
    given: dict[str, Ints],
    free: list[Rented],
    loads: dict[str, Ints],
) -> Plan:
    """The plan in which running instances hold `given`, and `machines` reuse `free` ones or are launched."""
    more, launches = match(machines, free, loads, classes.market.offers)
    kept, new = settle(classes, situation.instances, {**given, **more}, launches)
    return assemble(situation, kept, new, unplaced=classes.unplaced)


def saving(situation: Situation, classes: Classes, filler: Filler, plan: Plan) -> float:
    """S: TNRP of all tasks minus the price of all instances, micro-dollars per hour."""
    groups = [*plan.assignments.values(), *(launch.tasks for launch in plan.launches)]
    worth: float = 0.0
    for tasks in groups:
        load = np.zeros(len(classes), np.int64)
        for task in tasks:
            load[classes.of[task.key]] += 1
        worth += filler.worth(load)
    return float(worth - plan.cost.micro_usd)


def moving(situation: Situation, classes: Classes, plan: Plan) -> float:
    """M: micro-dollars for moves and launches; during a task's move both its instances are paid for."""
    rates = dict(zip((o.name for o in classes.market.offers), classes.market.rate.tolist(), strict=True))
    rate = {rented.id: rates[rented.offer.name] for rented in situation.instances}
    source = {key: rate[rented.id] for rented in situation.instances for key in rented.held}
    target = {task.key: rate[name] for name, tasks in plan.assignments.items() for task in tasks}
    target |= {task.key: rates[launch.offer.name] for launch in plan.launches for task in launch.tasks}
    moves: float = sum(task.move_s * (source[task.key] + target[task.key]) for task in plan.migrations)
    starts: float = sum(launch.offer.ready_s * rates[launch.offer.name] for launch in plan.launches)
    return (moves + starts) / SECONDS_PER_HOUR


def remember(situation: Situation) -> Memory:
    """Memory with the arrivals and ends since the last plan counted into the event rate."""
    memory = situation.memory
    known = frozenset(task.key for task in situation.tasks)
    events = events_of(situation)
    memory = replace(memory, known=known, offers=situation.offers)
    if not events:
        return memory
    since_s = situation.now - memory.at if memory.at is not None else 0.0
    if since_s <= 0:
        return replace(memory, at=situation.now)
    keep = exp(-since_s / RATE_WINDOW_S) if memory.event_rate else 0.0
    rate = memory.event_rate * keep + (1 - keep) * events / since_s
    return replace(memory, at=situation.now, event_rate=rate)


def events_of(situation: Situation) -> int:
    """Number of jobs that arrived or ended since the last plan."""
    before, now = (
        {job for job, _ in keys} for keys in (situation.memory.known, (task.key for task in situation.tasks))
    )
    return len(before ^ now)


def nothing_new(situation: Situation) -> bool:
    """Whether tasks and offers equal those of the last plan."""
    memory = situation.memory
    return memory.offers == situation.offers and memory.known == {task.key for task in situation.tasks}


def expected_life_s(memory: Memory) -> float:
    """D̂ = −1 / (λ ln(1 − p)): expected seconds until the next full reconfiguration."""
    if not memory.event_rate:
        return SECONDS_PER_HOUR
    share = min(max(memory.full_share, SHARE_LIMITS[0]), SHARE_LIMITS[1])
    return float(-1 / (memory.event_rate * log(1 - share)))
