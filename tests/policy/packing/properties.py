"""Random situations, and what must be true of every packer's answer to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.packers.none import holds
from starburst.policy.packing.plan import Memory, Packer, Plan, Rented, Situation, hourly

FAMILIES = ("p", "c", "r")
WORKLOADS = ("a", "b", "c")


def situations() -> st.SearchStrategy[Situation]:
    """Drawn evenly from a seed: what Hypothesis draws itself is mostly too small for tasks to meet."""
    return st.integers(0, 2**32 - 1).map(lambda seed: situation_of(Random(seed)))


def situation_of(rng: Random) -> Situation:
    """Some tasks run already, machines may be empty or hold what has ended, and offers may be sold out."""
    catalog, live = offers_of(rng), tasks_of(rng)
    instances: list[Rented] = []
    free = list(live)
    for n in range(rng.randrange(6) if catalog else 0):
        offer = rng.choice(catalog)
        held = [("ended", n)] if rng.random() < 0.3 else []
        room = offer.resources
        for task in list(free):
            asks = task.demand(offer.family)
            if asks is not None and asks.fits(room) and rng.random() < 0.4:
                room = less(room, asks)
                held.append(task.key)
                free.remove(task)
        instances.append(Rented(f"i{n}", offer, tuple(held)))
    sold_out = [offer for offer in catalog if rng.random() < 0.3] if rng.random() < 0.5 else []
    pairs = {(a, b): rng.choice((0.5, 0.9, 0.95, 1.0)) for a in WORKLOADS for b in WORKLOADS}
    return Situation(
        live,
        tuple(offer for offer in catalog if offer not in sold_out),
        tuple(instances),
        Colocation.known(pairs),
        now=10_000.0,
        memory=Memory(idle_since={rented.id: rng.choice((0.0, 9000.0)) for rented in instances}),
    )


def offers_of(rng: Random) -> tuple[Offer, ...]:
    """A small catalog: kinds of processors and GPUs, unknown prices and free machines among them."""
    catalog = []
    for n in range(rng.randrange(7)):
        gpus = rng.choice((0, 0, 1, 4, 8))
        gpu_type = rng.choice(("V100", "V100", "A100")) if gpus else ""
        has = Resources.of(gpus, rng.choice((8, 32, 64)), rng.choice((64, 256)), gpu_type)
        price = Money.of(rng.randrange(30)) if rng.random() < 0.9 else None
        catalog.append(Offer(f"offer{n}", has, price, family=rng.choice(FAMILIES)))
    return tuple(catalog)


def tasks_of(rng: Random) -> tuple[Task, ...]:
    """Jobs of one task or more, of a few kinds; some ask for other things on other families."""
    kinds = [(demand_of(rng), rng.random() < 0.4, rng.choice(WORKLOADS)) for _ in range(4)]
    made = []
    for n in range(rng.randrange(10)):
        asks, picky, workload = rng.choice(kinds)
        families = rng.sample(FAMILIES, rng.randrange(1, 4)) if picky else []
        per_family = tuple(
            (f, replace(asks, cpu_milli=rng.choice((1, 2)) * asks.cpu_milli)) for f in families
        )
        remaining = rng.choice((None, 0.0, 30.0, 600.0, 4000.0, 90000.0))
        for rank in range(rng.choice((1, 1, 1, 2, 4))):
            made.append(Task(f"job{n}", rank, asks, per_family, workload, remaining, move_s=60.0))
    return tuple(made)


def demand_of(rng: Random) -> Resources:
    """What a task asks for; now and then more than there is."""
    gpu_type = rng.choice(("", "", "", "V100", "A100", "A100 or V100"))
    return Resources.of(rng.choice((0, 0, 0, 1, 1, 2, 4, 9)), rng.randrange(11), rng.randrange(41), gpu_type)


def less(room: Resources, asks: Resources) -> Resources:
    """What is left."""
    return replace(
        room,
        gpus=room.gpus - asks.gpus,
        cpu_milli=room.cpu_milli - asks.cpu_milli,
        memory_mib=room.memory_mib - asks.memory_mib,
    )


def machines_of(situation: Situation, plan: Plan) -> list[tuple[Offer, tuple[Task, ...]]]:
    """All machines when the plan is carried out."""
    offer_of = {rented.id: rented.offer for rented in situation.instances}
    kept = [(offer_of[name], tasks) for name, tasks in plan.assignments.items()]
    return kept + [(launch.offer, launch.tasks) for launch in plan.launches]


def carried_out(situation: Situation, plan: Plan) -> Situation:
    """The same tasks at the same time, everything where the plan says."""
    kept = [
        replace(rented, held=tuple(task.key for task in plan.assignments[rented.id]))
        for rented in situation.instances
        if rented.id in plan.assignments
    ]
    new = [
        Rented(f"new{n}", launch.offer, tuple(task.key for task in launch.tasks))
        for n, launch in enumerate(plan.launches)
    ]
    return replace(situation, instances=(*kept, *new), memory=plan.memory)


def every_task_has_one_place_or_a_reason(situation: Situation, plan: Plan) -> None:
    """None lost, none twice, and none left out that an offer could hold."""
    placed = [task for _, tasks in machines_of(situation, plan) for task in tasks]
    named = [*placed, *(task for task, _ in plan.unplaced)]
    assert Counter(task.key for task in named) == Counter(task.key for task in situation.tasks)
    for task, reason in plan.unplaced:
        assert not any(holds(offer, task) for offer in situation.offers), f"{task} fits"
        assert any(word in reason for word in ("GPU", "CPU", "GiB", "famil", "offers", "nothing")), reason


def no_machine_is_too_full(situation: Situation, plan: Plan) -> None:
    """In no resource, each task counted as it asks on that family; GPUs are of the type it needs."""
    for offer, tasks in machines_of(situation, plan):
        assert tasks, "a machine for nobody"
        room = offer.resources
        for task in tasks:
            asks = task.demand(offer.family)
            assert asks is not None, f"{task} does not run on {offer.family}"
            assert asks.fits(room), f"{offer.name} has no room for {task}"
            room = less(room, asks)


def the_books_agree(situation: Situation, plan: Plan) -> None:
    """Cost, terminations and migrations are those of the placement; launches are of what may be asked for."""
    used = [offer for offer, _ in machines_of(situation, plan)]
    assert plan.cost == hourly(used, situation.offers)
    assert {launch.offer for launch in plan.launches} <= set(situation.offers)
    assert set(plan.terminations) == {rented.id for rented in situation.instances} - set(plan.assignments)
    home = {key: rented.id for rented in situation.instances for key in rented.held}
    where = {task.key: name for name, tasks in plan.assignments.items() for task in tasks}
    where |= {task.key: "" for launch in plan.launches for task in launch.tasks}
    moved = {key for key, name in home.items() if key in where and where[key] != name}
    assert {task.key for task in plan.migrations} == moved
    # A machine that is sold out may be cheaper than anything the bound knows of.
    if plan.lower_bound is not None and all(
        rented.offer in situation.offers for rented in situation.instances
    ):
        assert plan.lower_bound <= plan.cost


def asked_again_nothing_changes(packer: Packer, situation: Situation, plan: Plan) -> None:
    """A plan that was carried out is what the packer wants."""
    again = packer.plan(carried_out(situation, plan))
    assert (again.launches, again.migrations, again.terminations) == ((), (), ())
    assert again.cost == plan.cost
