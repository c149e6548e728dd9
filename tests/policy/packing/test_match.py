"""A new plan is given to the machines that run, so that most tasks stay."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random

import numpy as np
import pytest

from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import Classes, Ints, classes_of
from starburst.policy.packing.match import match, moved, settle
from starburst.policy.packing.packers.reconfigure import loads_of
from starburst.policy.packing.plan import Rented, Situation
from tests.builders import offer

BIG, SMALL = offer("big", 0, cpus=32), offer("small", 0, cpus=16)
OFFERS = (BIG, SMALL)
#: Index of the offers.
B, S = 0, 1
KINDS = "abc"


def task(kind: str, n: int, moves: int = 0, job: str = "") -> Task:
    """Kinds ask for different things, so each is a class."""
    return Task(job or f"{kind}{n}", n, Resources.of(0, 1 + KINDS.index(kind)), moves=moves)


def load(kinds: str) -> Ints:
    """How many of each kind."""
    return np.array([kinds.count(kind) for kind in KINDS], np.int64)


class World:
    """Machines by what they hold; each letter is a task of that kind."""

    def __init__(self, *running: tuple[str, int, str]) -> None:
        numbers = Counter[str]()
        tasks, self.instances = [task(kind, 1000 + n) for n, kind in enumerate(KINDS)], []
        for name, of, kinds in running:
            held = []
            for kind in kinds:
                numbers[kind] += 1
                held.append(task(kind, numbers[kind]))
            tasks += held
            self.instances.append(Rented(name, OFFERS[of], tuple(t.key for t in held)))
        self.classes: Classes = classes_of(Situation(tuple(tasks), OFFERS, tuple(self.instances)))
        self.loads = loads_of(self.classes, {r.id: r.held for r in self.instances})

    def match(
        self, *wanted: tuple[int, str, int]
    ) -> tuple[dict[str, list[int]], list[tuple[int, list[int]]]]:
        """What each machine is given, and what is launched."""
        machines = [(of, load(kinds), times) for of, kinds, times in wanted]
        given, launches = match(machines, self.instances, self.loads, OFFERS)
        return {name: now.tolist() for name, now in given.items()}, [(k, now.tolist()) for k, now in launches]

    def staying(self, given: dict[str, list[int]]) -> int:
        """How many tasks need not move."""
        return sum(int(np.minimum(self.loads[name], now).sum()) for name, now in given.items())


def test_machines_as_they_are_stay_as_they_are() -> None:
    world = World(("m1", B, "aab"), ("m2", B, "aac"), ("m3", S, "aab"))
    given, launches = world.match((S, "aab", 1), (B, "aac", 1), (B, "aab", 1))
    assert given == {"m1": [2, 1, 0], "m2": [2, 0, 1], "m3": [2, 1, 0]}
    assert launches == []


def test_of_equal_machines_the_first_are_kept() -> None:
    world = World(("m1", B, "a"), ("m2", B, "a"), ("m3", B, "a"))
    assert set(world.match((B, "a", 2))[0]) == {"m1", "m2"}


def test_the_machine_with_most_of_the_tasks_gets_them() -> None:
    world = World(("m1", B, "a"), ("m2", B, "aab"))
    assert world.match((B, "aabb", 1)) == ({"m2": [2, 2, 0]}, [])


def test_of_two_that_keep_as_many_that_which_changes_least() -> None:
    world = World(("m1", B, "abcc"), ("m2", B, "ab"))
    assert world.match((B, "aab", 1)) == ({"m2": [2, 1, 0]}, [])


def test_an_exact_match_goes_before_another_that_keeps_as_many() -> None:
    world = World(("m1", B, "aabbc"), ("m2", B, "ab"))
    assert world.match((B, "ab", 1))[0] == {"m2": [1, 1, 0]}


def test_a_machine_is_used_even_if_no_task_can_stay() -> None:
    world = World(("m1", B, "c"), ("m2", S, ""))
    assert world.match((B, "ab", 1), (S, "a", 1)) == ({"m1": [1, 1, 0], "m2": [1, 0, 0]}, [])


def test_a_machine_of_another_offer_is_of_no_use() -> None:
    world = World(("m1", S, "ab"))
    assert world.match((B, "ab", 1)) == ({}, [(B, [1, 1, 0])])


def test_what_is_left_over_is_launched() -> None:
    world = World(("m1", B, "a"))
    given, launches = world.match((B, "a", 3), (S, "b", 1))
    assert given == {"m1": [1, 0, 0]}
    assert launches == [(B, [1, 0, 0]), (B, [1, 0, 0]), (S, [0, 1, 0])]


@pytest.mark.parametrize("seed", range(30))
def test_each_machine_and_each_wish_is_used_once(seed: int) -> None:
    rng = Random(seed)
    world = drawn(rng)
    wanted = [(rng.choice((B, S)), kinds(rng), rng.randrange(1, 3)) for _ in range(rng.randrange(1, 5))]
    given, launches = world.match(*wanted)
    offer_of = {rented.id: OFFERS.index(rented.offer) for rented in world.instances}
    got = [(offer_of[name], tuple(now)) for name, now in given.items()]
    got += [(of, tuple(now)) for of, now in launches]
    assert Counter(got) == Counter((of, tuple(load(k).tolist())) for of, k, n in wanted for _ in range(n))
    unused = {of for name, of in offer_of.items() if name not in given}
    assert not unused & {of for of, _ in launches}, "launched what could be kept"


@pytest.mark.parametrize("seed", range(30))
def test_where_every_wish_runs_already_no_matching_keeps_more(seed: int) -> None:
    world = drawn(Random(seed))
    wanted = [(OFFERS.index(r.offer), world.loads[r.id]) for r in world.instances]
    Random(seed).shuffle(wanted)
    given, launches = match([(k, now, 1) for k, now in wanted], world.instances, world.loads, OFFERS)
    kept = world.staying({name: now.tolist() for name, now in given.items()})
    assert not launches
    assert kept == most_that_can_stay(world, wanted) == sum(now.sum() for now in world.loads.values())


@pytest.mark.parametrize("seed", range(30))
def test_one_pair_after_the_other_keeps_half_of_what_can_stay_at_least(seed: int) -> None:
    """The pair that keeps most first is within a factor of two of the best matching, and mostly is it."""
    rng = Random(seed)
    world = drawn(rng)
    wanted = [(rng.choice((B, S)), load(kinds(rng))) for _ in range(4)]
    given, _ = match([(k, now, 1) for k, now in wanted], world.instances, world.loads, OFFERS)
    kept = world.staying({name: now.tolist() for name, now in given.items()})
    assert kept * 2 >= most_that_can_stay(world, wanted)


def drawn(rng: Random) -> World:
    """Up to four machines."""
    return World(*((f"m{n}", rng.choice((B, S)), kinds(rng)) for n in range(rng.randrange(1, 5))))


def kinds(rng: Random) -> str:
    """Up to four tasks."""
    return "".join(rng.choice(KINDS) for _ in range(rng.randrange(1, 5)))


def most_that_can_stay(world: World, wanted: list[tuple[int, Ints]]) -> int:
    """Over all ways to give the wishes to machines of their offer."""
    machines: list[Rented | None] = [*world.instances, *([None] * len(wanted))]
    best = 0
    for chosen in permutations(range(len(machines)), len(wanted)):
        stays = 0
        for m, (k, now) in zip(chosen, wanted, strict=True):
            rented = machines[m]
            if rented is not None and rented.offer == OFFERS[k]:
                stays += int(np.minimum(world.loads[rented.id], now).sum())
        best = max(best, stays)
    return best


class TestSettle:
    """From how many to which."""

    def test_tasks_stay_where_their_machine_still_holds_their_kind(self) -> None:
        world = World(("m1", B, "aab"), ("m2", B, "a"))
        given = {"m1": load("aa"), "m2": load("abb")}
        kept, new = settle(world.classes, world.instances, given, [])
        names = {name: {task.key for task in tasks} for name, tasks in kept.items()}
        assert names == {"m1": {("a1", 1), ("a2", 2)}, "m2": {("a3", 3), ("b1", 1), ("b1001", 1001)}}
        assert new == []

    def test_those_that_lose_their_machine_fill_what_is_open(self) -> None:
        world = World(("m1", B, "a"), ("m2", B, "a"))
        kept, new = settle(world.classes, world.instances, {"m2": load("a")}, [(S, load("a"))])
        # The new task of the kind is listed first, so it is the first to get a place.
        assert {name: [t.job_id for t in tasks] for name, tasks in kept.items()} == {"m2": ["a2"]}
        assert [(of.name, [t.job_id for t in tasks]) for of, tasks in new] == [("small", ["a1000"])]

    def test_of_tasks_of_a_kind_those_of_the_job_that_moved_most_stay(self) -> None:
        """One that was moved seldom itself may be of a job that was moved often."""
        often = [task("a", 1, job="often"), task("b", 2, moves=2, job="often")]
        once = [task("a", 1, moves=1, job="once"), task("b", 2, job="once")]
        on = (Rented("m1", BIG, (once[0].key, often[0].key)),)
        classes = classes_of(Situation((*often, *once), OFFERS, on))
        kept, _ = settle(classes, on, {"m1": np.array([1, 0])}, [(B, np.array([1, 2]))])
        assert kept == {"m1": [often[0]]}
        assert moved(classes) == {"often": 2, "once": 1}

    def test_tasks_that_ended_are_no_hindrance(self) -> None:
        world = World(("m1", B, "a"))
        on = [Rented("m1", BIG, (("ended", 7), *world.instances[0].held))]
        kept, _ = settle(world.classes, on, {"m1": load("a")}, [])
        assert [task.job_id for task in kept["m1"]] == ["a1"]
