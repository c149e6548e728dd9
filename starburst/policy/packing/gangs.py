"""The instance of a gang: one machine that holds all its tasks, or several equal ones that are rented as one.

Tasks of a gang talk to each other, so they share a network: machines of one offer in one zone, as SkyPilot
rents them under `num_nodes`. Of all offers and numbers of machines the cheapest is chosen; of equal prices
the fewest machines, then the first of the catalog. `seat` finds places on machines that are rented already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.domain.value import value
from starburst.policy.packing.packers.none import cheapest, cheapest_first, lacking
from starburst.policy.packing.plan import hourly


@value
class GangMachine:
    """An offer, possibly of several machines, that holds a gang."""

    offer: Offer
    #: The machine of each task, by rank.
    nodes: tuple[int, ...]
    #: Why this one, in words.
    why: str


def gang_machine(
    tasks: Sequence[Task], offers: Sequence[Offer], *, spread: bool = False
) -> GangMachine | str:
    """The cheapest instance for the tasks of one job, or why there is none.

    `spread`: each task has a machine of its own.
    """
    ranked = cheapest_first(offers)
    for task in tasks:
        if cheapest(task, ranked) is None:
            return lacking(task, ranked)
    fits = [(offer, nodes) for offer in ranked if (nodes := assign(tasks, offer, spread=spread)) is not None]
    if not fits:
        return "no offer holds each of its tasks, and the machines of a gang are of one kind"
    one_by_one = ", ".join(dict.fromkeys(offer.cloud for offer, _ in fits if offer.single))
    fits = [(offer, nodes) for offer, nodes in fits if not (offer.single and max(nodes))]
    if not fits:
        return f"no one machine is for all its {len(tasks)} tasks, and those of {one_by_one} have no network"
    listed = [(offer.times(max(nodes) + 1), nodes) for offer, nodes in fits]
    costs = [hourly([offer] * (max(nodes) + 1), ranked).micro_usd for offer, nodes in fits]
    best = min(range(len(listed)), key=lambda n: (costs[n], listed[n][0].nodes))
    offer, nodes = listed[best]
    others = [n for n in range(len(listed)) if (listed[n][0].nodes == 1) != (offer.nodes == 1)]
    other = min(others, key=lambda n: (costs[n], listed[n][0].nodes), default=None)
    return GangMachine(offer, nodes, _why(tasks, offer, None if other is None else listed[other][0], spread))


def assign(tasks: Sequence[Task], offer: Offer, *, spread: bool = False) -> tuple[int, ...] | None:
    """The machine of each task on as few machines of an offer as first fit decreasing takes; None if none.

    Equal tasks stand in order of their ranks.
    """
    demands = [task.demand_on(offer) for task in tasks]
    if any(demand is None or not demand.fits(offer.resources) for demand in demands):
        return None
    known = [demand for demand in demands if demand is not None]
    if spread:
        return tuple(range(len(known)))
    if len(set(known)) == 1:
        many = _how_many(known[0], offer.resources)
        return tuple(rank // many for rank in range(len(known)))
    order = sorted(range(len(known)), key=lambda rank: -known[rank].largest_share(offer.resources))
    free: list[Resources] = []
    nodes = [0] * len(known)
    for rank in order:
        demand = known[rank]
        node = next((n for n, room in enumerate(free) if demand.fits(room)), len(free))
        if node == len(free):
            free.append(offer.resources)
        free[node] -= demand
        nodes[rank] = node
    return tuple(nodes)


def seat(
    demands: Sequence[Resources], rooms: Mapping[int, Resources], machine: Resources, *, spread: bool = False
) -> tuple[int, ...] | None:
    """The machine of each task among machines that are rented and have room left; None if they do not fit.

    The largest task first, each where least is left that holds it (best fit decreasing); of equal ones where
    fewer GPUs are, then the first. `rooms`: what no job holds of each machine, by number; `machine`: the
    resources of a whole one.
    """
    left = dict(rooms)
    nodes = [0] * len(demands)
    for rank in sorted(range(len(demands)), key=lambda rank: -demands[rank].largest_share(machine)):
        fits = [node for node, room in left.items() if demands[rank].fits(room)]
        if not fits:
            return None
        node = min(fits, key=lambda node: (left[node].largest_share(machine), left[node].gpus, node))
        nodes[rank] = node
        room = left.pop(node)
        if not spread:
            left[node] = room - demands[rank]
    return tuple(nodes)


def _how_many(demand: Resources, machine: Resources) -> int:
    """How many tasks of this demand a machine that holds one holds."""
    pairs = (
        (demand.gpus, machine.gpus),
        (demand.cpu_milli, machine.cpu_milli),
        (demand.memory_mib, machine.memory_mib),
        *(
            (amount, dict(machine.others).get(name, amount))
            for name, amount in demand.others
            if machine.others
        ),
    )
    return min((has // wants for wants, has in pairs if wants), default=2**31)


def _why(tasks: Sequence[Task], chosen: Offer, other: Offer | None, spread: bool) -> str:
    """The choice in words; `other` is the cheapest one of the other kind, of one or of several machines."""
    count = f"all {len(tasks)} tasks"
    if spread:
        return f"a machine for each of its {len(tasks)} tasks (starburst.io/spread: node)"
    if chosen.nodes == 1:
        return f"it holds {count}" + ("" if other is None else f", and {_priced(other)} would not cost less")
    if other is None:
        return f"no machine holds {count}"
    return f"cheaper than {_priced(other)}, which holds {count}"


def _priced(offer: Offer) -> str:
    price = offer.price_per_hour
    return f"{offer.title} at {'an unknown price' if price is None else f'{price}/h'}"
