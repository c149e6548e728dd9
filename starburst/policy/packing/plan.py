"""What a packer is asked and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.policy.packing.throughput import NO_INTERFERENCE, Throughput

NOTHING = Money()
#: Job and rank: names a task in plans.
TaskKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rented:
    """A machine we have, or have asked for, and who is meant to be on it."""

    id: str
    offer: Offer
    held: tuple[TaskKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """What packers remember between plans; whoever drives one gives it back with the next question."""

    #: When something last changed, and how often tasks came or went per second, old times faded.
    at: float | None = None
    event_rate: float = 0.0
    #: Share of those events that led to a Full Reconfiguration, old ones faded (Eva, section 4.5).
    full_share: float = 0.5
    #: Tasks that came and tasks that were moved, old ones faded.
    came: float = 0.0
    moved: float = 0.0
    #: Tasks and offers that were there.
    known: frozenset[TaskKey] = frozenset()
    offers: tuple[Offer, ...] = ()
    #: Since when a machine has been little used (Stratus' instance clearing).
    idle_since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a plan depends on."""

    #: Every live task, those on machines included.
    tasks: tuple[Task, ...]
    #: What may be asked for now: an offer that ran out of capacity is left out by whoever asks.
    offers: tuple[Offer, ...]
    instances: tuple[Rented, ...] = ()
    throughput: Throughput = NO_INTERFERENCE
    #: Seconds.
    now: float = 0.0
    memory: Memory = Memory()


@dataclass(frozen=True, slots=True)
class Launch:
    """One machine to rent and the tasks it is for."""

    offer: Offer
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rent, what goes where, what to give back; what fits nothing, with the resource that fails."""

    launches: tuple[Launch, ...]
    unplaced: tuple[tuple[Task, str], ...] = ()
    #: Machine → all tasks it is to hold, staying, moving in and new; machines that hold none are not in it.
    assignments: Mapping[str, tuple[Task, ...]] = field(default_factory=dict)
    #: Tasks that leave one machine for another.
    migrations: tuple[Task, ...] = ()
    #: Machines to give back.
    terminations: tuple[str, ...] = ()
    #: Dollars per hour of all machines when the plan is carried out.
    cost: Money = NOTHING
    #: No plan for these tasks, without regard to what runs, costs less per hour; None if it was not asked.
    lower_bound: Money | None = None
    #: Why this plan, in a sentence.
    reason: str = ""
    memory: Memory = Memory()


class Packer(Protocol):
    """Which machines to rent for which tasks."""

    def plan(self, situation: Situation) -> Plan:
        """Every task is in exactly one launch or assignment, or unplaced."""


def assemble(
    situation: Situation,
    kept: Mapping[str, Sequence[Task]],
    launches: Iterable[tuple[Offer, Sequence[Task]]],
    *,
    unplaced: Sequence[tuple[Task, str]] = (),
    lower_bound: Money | None = None,
    reason: str = "",
    memory: Memory | None = None,
) -> Plan:
    """The plan that makes running machines hold `kept` and rents `launches`; the rest follows."""
    memory = situation.memory if memory is None else memory
    new = tuple([Launch(offer, tuple(tasks)) for offer, tasks in launches])
    bought = [launch.offer for launch in new]
    cost = hourly(bought, situation.offers)
    if not situation.instances:
        return Plan(new, tuple(unplaced), {}, (), (), cost, lower_bound, reason, memory)
    assignments = {i.id: tuple(kept[i.id]) for i in situation.instances if kept.get(i.id)}
    home = {key: rented.id for rented in situation.instances for key in rented.held}
    today = {offer.name: offer for offer in situation.offers}
    rented_now = {r.id: today.get(r.offer.name, r.offer) for r in situation.instances}
    placed = [(name, task) for name, tasks in assignments.items() for task in tasks]
    placed += [("", task) for launch in new for task in launch.tasks]
    return Plan(
        launches=new,
        unplaced=tuple(unplaced),
        assignments=assignments,
        migrations=tuple(task for name, task in placed if home.get(task.key, name) != name),
        terminations=tuple(name for name in rented_now if name not in assignments),
        cost=hourly([*(rented_now[name] for name in assignments), *bought], situation.offers),
        lower_bound=lower_bound,
        reason=reason,
        memory=memory,
    )


def priced(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The offers with every unknown price counted as the dearest known one."""
    listed = tuple(offers)
    if all(o.price_per_hour is not None for o in listed):
        return listed
    dearest = max((o.price_per_hour for o in listed if o.price_per_hour is not None), default=Money())
    return tuple(o if o.price_per_hour is not None else replace(o, price_per_hour=dearest) for o in listed)


def hourly(offers: Iterable[Offer], known: Iterable[Offer]) -> Money:
    """What these machines cost per hour together; an unknown price is the dearest of all `known`."""
    listed = list(offers)
    if any(o.price_per_hour is None for o in listed):
        listed = list(priced([*listed, *known])[: len(listed)])
    return Money(sum([o.price_per_hour.micro_usd for o in listed if o.price_per_hour is not None]))
