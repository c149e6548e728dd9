"""Small situations for our packer, and what a plan comes to by its own objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from random import Random

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import classes_of
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.packers.optimal import Optimal
from starburst.policy.packing.plan import Plan, Rented, Situation
from starburst.policy.packing.throughput import throughputs
from tests.policy.packing.properties import less, situation_of

#: With no event known a task is taken to stay for an hour; this plan lasts as long.
HOUR = Optimal(moves_per_task=None, move_price=Money.of(1.5), life_share=1.0, delay_price=1.0)
CALM: Mapping[tuple[str, str], float] = {}
#: A machine of an offer, None if it is new, and its tasks.
Placed = list[tuple[Rented | None, Offer, tuple[Task, ...]]]


def asked(
    *tasks: Task,
    offers: tuple[Offer, ...],
    on: tuple[Rented, ...] = (),
    slow: Mapping[tuple[str, str], float] = CALM,
) -> Situation:
    """Pairs are as fast as alone unless `slow` says other."""
    return Situation(tasks, offers, on, Colocation.known(slow, default=1.0), now=7200.0)


def rented(name: str, of: Offer, *tasks: Task) -> Rented:
    """A machine with tasks."""
    return Rented(name, of, tuple(task.key for task in tasks))


def of_cpus(name: str, cpus: int, **more: int) -> Task:
    """A task without GPUs whose move takes six minutes."""
    return Task(
        name,
        more.pop("rank", 0),
        Resources.of(0, cpus),
        workload=name[0],
        move_s=more.pop("move_s", 360),
        **more,
    )


def where(plan: Plan) -> dict[str, list[str]]:
    """Jobs by machine."""
    return {name: sorted(task.job_id for task in tasks) for name, tasks in plan.assignments.items()}


def new(plan: Plan) -> list[tuple[str, list[str]]]:
    """Jobs on machines that are to be rented."""
    return sorted((launch.offer.name, sorted(t.job_id for t in launch.tasks)) for launch in plan.launches)


class Price:
    """The objective from its definition: dollars per hour of machines, starts, moves and lost throughput."""

    def __init__(self, packer: Optimal, situation: Situation) -> None:
        self._packer, self._situation = packer, situation
        self._life_h = packer.life_share
        classes = classes_of(situation)
        self._job = {key: int(classes.job_price[c]) / 1e6 for key, c in classes.of.items()}
        self._rate = {
            o.name: rate / 1e6
            for o, rate in zip(classes.market.offers, classes.market.rate.tolist(), strict=True)
        }
        self._home = {key: one.id for one in situation.instances for key in one.held}

    def of(self, plan: Plan) -> float:
        """What a plan comes to."""
        machines = {one.id: one for one in self._situation.instances}
        kept: Placed = [(machines[n], machines[n].offer, tasks) for n, tasks in plan.assignments.items()]
        return self.total([*kept, *((None, one.offer, one.tasks) for one in plan.launches)])

    def total(self, placed: Placed) -> float:
        """What these machines come to."""
        return sum(self._machine(*one) for one in placed)

    def _machine(self, one: Rented | None, of: Offer, tasks: tuple[Task, ...]) -> float:
        rate = self._rate[of.name]
        price = rate if one else rate * (1 + of.ready_s / 3600 / self._life_h)
        speeds = throughputs(self._situation.throughput, [task.workload for task in tasks])
        for task, speed in zip(tasks, speeds, strict=True):
            price += self._packer.delay_price * (1 - speed) * self._job[task.key]
            if self._home.get(task.key, one and one.id) != (one and one.id):
                price += task.move_s / 3600 * self._job[task.key] / self._life_h
                price += float(self._packer.move_price.dollars) / self._life_h
        return price


@cache
def small(seed: int) -> Situation:
    """Two to four tasks, one or two machines, two or three offers of which some are sold out."""
    rng = Random(seed)
    catalog = [
        Offer(
            f"offer{n}",
            Resources.of(rng.choice((0, 1, 2)), rng.choice((4, 8)), 64),
            Money.of(rng.randrange(1, 9)),
            ready_s=rng.choice((0.0, 300.0, 1800.0)),
        )
        for n in range(rng.choice((2, 3)))
    ]
    kinds = [(Resources.of(rng.choice((0, 0, 1)), rng.randrange(1, 5)), rng.choice("ab")) for _ in range(2)]
    tasks = []
    for n in range(rng.choice((2, 3, 4))):
        asks, workload = rng.choice(kinds)
        tasks.append(Task(f"job{n // rng.choice((1, 1, 2))}", n, asks, workload=workload, move_s=60.0))
    free, on = list(tasks), []
    for m in range(rng.choice((1, 2))):
        of = rng.choice(catalog)
        held, room = [], of.resources
        for task in list(free):
            if task.resources.fits(room) and rng.random() < 0.5:
                room = less(room, task.resources)
                held.append(task)
                free.remove(task)
        on.append(rented(f"m{m}", of, *held))
    slow = {(a, b): rng.choice((0.5, 0.8, 1.0)) for a in "ab" for b in "ab"}
    offers = tuple(of for of in catalog if rng.random() < 0.85)
    return asked(*tasks, offers=offers, on=tuple(on), slow=slow)


def with_machines(seed: int) -> Situation:
    """A larger situation in which something runs, for as long as plans last."""
    while not (situation := situation_of(Random(seed))).instances:
        seed += 1000
    tasks = tuple(replace(task, remaining_s=None) for task in situation.tasks)
    return replace(situation, tasks=tasks)


def moved_before(seed: int) -> Situation:
    """A situation whose tasks have been moved now and then."""
    rng, situation = Random(seed), with_machines(seed)
    tasks = tuple(replace(task, moves=rng.choice((0, 0, 1, 2))) for task in situation.tasks)
    return replace(situation, tasks=tasks)


def ways(situation: Situation, plan: Plan) -> Iterator[Placed]:
    """All ways to place what the plan places, each new machine of every offer that holds what it gets. A task
    that no open offer holds stays where it runs."""
    out = {task.key for task, _ in plan.unplaced}
    home = {key: one.id for one in situation.instances for key in one.held}

    def place(tasks: tuple[Task, ...]) -> Iterator[Placed]:
        if not tasks:
            yield []
            return
        *others, last = tasks
        stuck = not any(fit(of, (last,)) for of in situation.offers)
        for placed in place(tuple(others)):
            used = {one.id for one, _, _ in placed if one}
            empty: Placed = [(one, one.offer, ()) for one in situation.instances if one.id not in used]
            empty += [(None, of, ()) for of in situation.offers]
            for m, (one, of, held) in enumerate([*placed, *empty]):
                at_home = one is not None and home.get(last.key) == one.id
                if fit(of, (*held, last)) and (at_home or not stuck):
                    yield [*placed[:m], (one, of, (*held, last)), *placed[m + 1 :]]

    return place(tuple(task for task in situation.tasks if task.key not in out))


def fit(of: Offer, tasks: tuple[Task, ...]) -> bool:
    """Whether a machine holds them together."""
    room = of.resources
    for task in tasks:
        if not task.resources.fits(room):
            return False
        room = less(room, task.resources)
    return True
