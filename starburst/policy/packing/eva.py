"""Eva: Full and Partial Reconfiguration, and the choice between them (Eva, sections 4.2 to 4.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log

import numpy as np

from starburst.policy.packing.classes import Classes, Ints, classes_of
from starburst.policy.packing.match import match, settle
from starburst.policy.packing.plan import Memory, Plan, Rented, Situation, assemble
from starburst.policy.packing.reconfigure import Filler, Machines, full, loads_of
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
        if self.mode != "full":
            candidates.append(("partial", partial(seen, classes, loads)))
        if self.mode != "partial":
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
    costs_small, costs_large = (moving(classes, p) for p in (small, large))
    lasts_h = expected_life_s(memory) / SECONDS_PER_HOUR
    fully = saves_large * lasts_h - costs_large > saves_small * lasts_h - costs_small
    chosen, kind = (large, "full") if fully else (small, "partial")
    more = (saves_large - saves_small) / 1e6
    reason = (
        f"{kind} reconfiguration: the full one saves ${more:.2f}/h more, its moves cost "
        f"${(costs_large - costs_small) / 1e6:.2f} more, and plans last about {lasts_h:.2g} h"
    )
    keep = exp(-1 / SHARE_WINDOW) if memory.at == situation.now else 1.0
    return replace(
        chosen,
        reason=reason,
        memory=replace(memory, full_share=memory.full_share * keep + fully * (1 - keep)),
    )


def _whole(situation: Situation, classes: Classes, loads: dict[str, Ints]) -> Plan:
    machines = full(classes, classes.counts, situation.throughput)
    return carried_out(situation, classes, machines, given={}, free=list(situation.instances), loads=loads)


def partial(situation: Situation, classes: Classes, loads: dict[str, Ints]) -> Plan:
    """Keep the machines that pay; new tasks, and those of machines that do not pay, go where they are worth
    most: onto a kept machine if that raises its TNRP, else by Algorithm 1."""
    filler = Filler(classes, situation.throughput)
    kept, rest = [], []
    for rented in situation.instances:
        offer = classes.market.index(rented.offer)
        if loads[rented.id].any() and filler.worth(loads[rented.id]) >= classes.market.rate[offer]:
            kept.append((rented, offer))
        else:
            rest.append(rented)
    left = classes.counts - sum((loads[r.id] for r, _ in kept), np.zeros(len(classes), np.int64))
    given: dict[str, Ints] = {}
    for rented, offer in kept:
        filling = filler.start(offer, loads[rented.id])
        filler.fill(offer, filling, left)
        left = left - (filling.load - loads[rented.id])
        given[rented.id] = filling.load
    machines = full(classes, left, situation.throughput)
    return carried_out(situation, classes, machines, given=given, free=rest, loads=loads)


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


def moving(classes: Classes, plan: Plan) -> float:
    """M: what moves and launches cost, micro-dollars; a moved task holds up all of its job."""
    prices = classes.job_price.tolist()
    moves: float = sum(task.move_s * prices[classes.of[task.key]] for task in plan.migrations)
    rates = dict(zip((o.name for o in classes.market.offers), classes.market.rate.tolist(), strict=True))
    starts: float = sum(launch.offer.ready_s * rates[launch.offer.name] for launch in plan.launches)
    return (moves + starts) / SECONDS_PER_HOUR


def remember(situation: Situation) -> Memory:
    """Note what came and went since the last plan."""
    memory = situation.memory
    known = frozenset(task.key for task in situation.tasks)
    events = len(known ^ memory.known)
    if not events:
        return memory
    since_s = situation.now - memory.at if memory.at is not None else 0.0
    if since_s <= 0:
        return replace(memory, at=situation.now, known=known)
    keep = exp(-since_s / RATE_WINDOW_S) if memory.event_rate else 0.0
    rate = memory.event_rate * keep + (1 - keep) * events / since_s
    return replace(memory, at=situation.now, known=known, event_rate=rate)


def expected_life_s(memory: Memory) -> float:
    """D̂ = −1 / (λ ln(1 − p)): how long a full reconfiguration lasts until the next one."""
    if not memory.event_rate:
        return SECONDS_PER_HOUR
    share = min(max(memory.full_share, SHARE_LIMITS[0]), SHARE_LIMITS[1])
    return float(-1 / (memory.event_rate * log(1 - share)))
