"""The input and the output of packers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.value import value
from starburst.policy.packing.throughput import NO_INTERFERENCE, Throughput

NOTHING = Money()
#: Job id and rank: identifies a task in plans.
TaskKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rented:
    """An instance that is running or launching, with the tasks assigned to it."""

    id: str
    offer: Offer
    held: tuple[TaskKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """State of a packer between plans; the caller passes it back with the next situation."""

    #: Time of the last change, and the rate of jobs' arrivals and ends per second, older ones faded.
    at: float | None = None
    event_rate: float = 0.0
    #: Share of those events that led to a Full Reconfiguration, older ones faded (Eva, section 4.5).
    full_share: float = 0.5
    #: Numbers of arrived and of moved tasks, older ones faded.
    came: float = 0.0
    moved: float = 0.0
    #: Tasks and offers of the last plan.
    known: frozenset[TaskKey] = frozenset()
    offers: tuple[Offer, ...] = ()
    #: Instance → since when it has been little used (Stratus' instance clearing).
    idle_since: Mapping[str, float] = field(default_factory=dict)


@value
class Situation:
    """The complete input of a plan."""

    #: All live tasks, including those on instances.
    tasks: tuple[Task, ...]
    #: Offers that may be launched now; the caller omits those that ran out of capacity.
    offers: tuple[Offer, ...]
    instances: tuple[Rented, ...] = ()
    throughput: Throughput = NO_INTERFERENCE
    #: Seconds.
    now: float = 0.0
    memory: Memory = Memory()


@value
class Launch:
    """One instance to launch, with its tasks."""

    offer: Offer
    tasks: tuple[Task, ...]


@value
class Plan:
    """Launches, assignments, terminations; and tasks that no offer holds, each with the lacking resource."""

    launches: tuple[Launch, ...]
    unplaced: tuple[tuple[Task, str], ...] = ()
    #: Instance → all its tasks: staying, moving in and new; instances without tasks are omitted.
    assignments: Mapping[str, tuple[Task, ...]] = field(default_factory=dict)
    #: Tasks that move from one instance to another.
    migrations: tuple[Task, ...] = ()
    #: Instances to terminate.
    terminations: tuple[str, ...] = ()
    #: Price per hour of all instances once the plan is carried out.
    cost: Money = NOTHING
    #: Lower bound on the price per hour of any plan for these tasks, ignoring what runs; None if not
    #: computed.
    lower_bound: Money | None = None
    #: Reason for the plan, one sentence.
    reason: str = ""
    memory: Memory = Memory()


class Packer(Protocol):
    """An algorithm that chooses instances for tasks."""

    def plan(self, situation: Situation) -> Plan:
        """A plan in which each task is in exactly one launch or assignment, or is unplaced."""


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
    """The plan with `kept` on running instances and the given `launches`; derives moves and terminations."""
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
    """The offers, with each unknown price replaced by the highest known one."""
    listed = tuple(offers)
    if all(o.price_per_hour is not None for o in listed):
        return listed
    dearest = max((o.price_per_hour for o in listed if o.price_per_hour is not None), default=Money())
    return tuple(o if o.price_per_hour is not None else replace(o, price_per_hour=dearest) for o in listed)


def hourly(offers: Iterable[Offer], known: Iterable[Offer]) -> Money:
    """Total price per hour of these offers; an unknown price counts as the highest one, `known` included."""
    listed = list(offers)
    if any(o.price_per_hour is None for o in listed):
        listed = list(priced([*listed, *known])[: len(listed)])
    return Money(sum([o.price_per_hour.micro_usd for o in listed if o.price_per_hour is not None]))
