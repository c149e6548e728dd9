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
#: The rate of events is that of about this long, the share of Full that of about so many events; what is
#: older fades, so that both follow the workload.
RATE_WINDOW_S = 6 * SECONDS_PER_HOUR
SHARE_WINDOW = 50.0
#: The share is kept off 0 and 1, where one plan would be thought to last for ever or for no time at all.
SHARE_LIMITS = (0.01, 0.99)


@dataclass(frozen=True, slots=True)
class Eva:
    """Pack by throughput-normalised reservation price; reconfigure fully only when that pays."""

    #: "ensemble" chooses by equation 1; "partial" and "full" always do the one.
    mode: str = "ensemble"
    #: Without it, tasks are taken to run as fast together as alone (Eva-RP).
    interference: bool = True
    #: Without it, tasks of a job are taken to be independent (Eva-Single).
    gangs: bool = True

    def plan(self, situation: Situation) -> Plan:
        """One of the two reconfigurations of the tasks that are there now."""
        seen = replace(situation, throughput=situation.throughput if self.interference else NO_INTERFERENCE)
        classes = classes_of(seen, gangs=self.gangs)
        memory = remember(situation)
        loads = loads_of(classes, {rented.id: rented.held for rented in situation.instances})
        candidates = []
        # A full reconfiguration can only follow an arrival or an end (section 4.5).
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
    """Equation 1: S_F·D − M_F > S_P·D − M_P."""
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
    """One of these events, or none, has led to a full reconfiguration."""
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
    """Keep the machines that pay, and those that must `stay`; new tasks, and those of machines that do not
    pay, go where they are worth most: onto a kept machine if that raises its TNRP, else by Algorithm 1."""
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
    """Put tasks of `left` onto machines, always where one raises the TNRP most; how many found a place."""
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
    """Running machines hold what `given` says; `machines` are `free` running ones, or new."""
    more, launches = match(machines, free, loads, classes.market.offers)
    kept, new = settle(classes, situation.instances, {**given, **more}, launches)
    return assemble(situation, kept, new, unplaced=classes.unplaced)


def saving(situation: Situation, classes: Classes, filler: Filler, plan: Plan) -> float:
    """S: TNRP of all tasks less the price of all machines, micro-dollars per hour."""
    groups = [*plan.assignments.values(), *(launch.tasks for launch in plan.launches)]
    worth: float = 0.0
    for tasks in groups:
        load = np.zeros(len(classes), np.int64)
        for task in tasks:
            load[classes.of[task.key]] += 1
        worth += filler.worth(load)
    return float(worth - plan.cost.micro_usd)


def moving(situation: Situation, classes: Classes, plan: Plan) -> float:
    """M: micro-dollars that moves and launches cost; while a task moves, both its machines are paid for."""
    rates = dict(zip((o.name for o in classes.market.offers), classes.market.rate.tolist(), strict=True))
    rate = {rented.id: rates[rented.offer.name] for rented in situation.instances}
    source = {key: rate[rented.id] for rented in situation.instances for key in rented.held}
    target = {task.key: rate[name] for name, tasks in plan.assignments.items() for task in tasks}
    target |= {task.key: rates[launch.offer.name] for launch in plan.launches for task in launch.tasks}
    moves: float = sum(task.move_s * (source[task.key] + target[task.key]) for task in plan.migrations)
    starts: float = sum(launch.offer.ready_s * rates[launch.offer.name] for launch in plan.launches)
    return (moves + starts) / SECONDS_PER_HOUR


def remember(situation: Situation) -> Memory:
    """Note what came and went since the last plan."""
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
    """How many jobs came or went since the last plan."""
    before, now = (
        {job for job, _ in keys} for keys in (situation.memory.known, (task.key for task in situation.tasks))
    )
    return len(before ^ now)


def nothing_new(situation: Situation) -> bool:
    """Whether tasks and offers are those of the last plan, so that there is no reason to reconfigure."""
    memory = situation.memory
    return memory.offers == situation.offers and memory.known == {task.key for task in situation.tasks}


def expected_life_s(memory: Memory) -> float:
    """D̂ = −1 / (λ ln(1 − p)): how long a full reconfiguration lasts until the next one."""
    if not memory.event_rate:
        return SECONDS_PER_HOUR
    share = min(max(memory.full_share, SHARE_LIMITS[0]), SHARE_LIMITS[1])
    return float(-1 / (memory.event_rate * log(1 - share)))
