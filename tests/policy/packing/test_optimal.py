"""Our packer: what it weighs, what it leaves alone, and how near to the best it comes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import classes_of
from starburst.policy.packing.covering.candidates import Candidates
from starburst.policy.packing.covering.program import Program
from starburst.policy.packing.covering.running import running
from starburst.policy.packing.packers.eva import Eva
from starburst.policy.packing.packers.optimal import Optimal
from starburst.policy.packing.plan import Memory, Rented, Situation
from tests.builders import offer
from tests.policy.packing.properties import carried_out
from tests.policy.packing.small_plans import (
    HOUR,
    Price,
    asked,
    moved_before,
    new,
    of_cpus,
    rented,
    small,
    ways,
    where,
    with_machines,
)


class TestWhatIsWeighed:
    """A task that needs $3 an hour runs on a machine of $5: a move saves $2 within the hour, and costs 0.1 h
    of $3 and the price of a move."""

    CHEAP, DEAR = offer("cheap", 0, dollars=3, cpus=8), offer("dear", 0, dollars=5, cpus=16)
    TASK = of_cpus("t", 8)

    def moves(self, packer: Optimal, *, ready_s: float = 0.0, task: Task = TASK) -> bool:
        """Whether the task moves."""
        offers = (replace(self.CHEAP, ready_s=ready_s), self.DEAR)
        plan = packer.plan(asked(task, offers=offers, on=(rented("a", self.DEAR, task),)))
        assert bool(plan.migrations) == bool(plan.launches) == bool(plan.terminations)
        return bool(plan.migrations)

    @pytest.mark.parametrize(("dollars", "moves"), [(0, True), (1.69, True), (1.71, False), (9, False)])
    def test_a_task_moves_if_it_saves_more_than_the_move_and_its_price(
        self, dollars: float, moves: bool
    ) -> None:
        assert self.moves(replace(HOUR, move_price=Money.of(dollars))) is moves

    @pytest.mark.parametrize(("life_h", "moves"), [(0.89, False), (0.91, True)])
    def test_a_plan_that_lasts_longer_is_worth_more_moves(self, life_h: float, moves: bool) -> None:
        """0.1 h of $3 and $1.50 are 0.9 h of $2."""
        assert self.moves(replace(HOUR, life_share=life_h)) is moves

    @pytest.mark.parametrize(("ready_s", "moves"), [(230, True), (250, False)])
    def test_the_start_of_the_new_machine_counts(self, ready_s: float, moves: bool) -> None:
        """$0.20 is left for it, 240 s of $3."""
        assert self.moves(HOUR, ready_s=ready_s) is moves

    def test_the_whole_job_waits_for_a_move(self) -> None:
        """A second task of the job makes it twice as dear."""
        pair = tuple(of_cpus("t", 8, rank=rank, move_s=1800) for rank in range(2))
        on = (rented("a", self.DEAR, pair[0]), rented("b", self.CHEAP, pair[1]))
        situation = asked(*pair, offers=(self.CHEAP, self.DEAR), on=on)
        cheap_moves = replace(HOUR, move_price=Money.of("0.2"))
        assert not cheap_moves.plan(situation).migrations
        assert cheap_moves.plan(replace(situation, tasks=(pair[0],))).migrations == (pair[0],)

    def test_an_idle_machine_is_used_rather_than_a_cheaper_one_that_must_start(self) -> None:
        slow = replace(self.CHEAP, ready_s=2700)
        situation = asked(self.TASK, offers=(slow, self.DEAR), on=(rented("a", self.DEAR),))
        plan = HOUR.plan(situation)
        assert (where(plan), new(plan)) == ({"a": ["t"]}, [])
        quick = replace(situation, offers=(self.CHEAP, self.DEAR))
        assert new(HOUR.plan(quick)) == [("cheap", ["t"])]

    def test_of_new_machines_that_which_costs_least_with_its_start_is_rented(self) -> None:
        """$3 and 0.75 h of it, or $5 at once."""
        slow, other = replace(self.CHEAP, ready_s=2700), of_cpus("u", 16)
        situation = asked(self.TASK, other, offers=(slow, self.DEAR), on=(rented("a", self.DEAR, other),))
        assert new(HOUR.plan(situation)) == [("dear", ["t"])]

    def test_a_machine_is_not_rented_while_one_like_it_is_given_back(self) -> None:
        for seed in range(20):
            situation = small(seed)
            plan = HOUR.plan(situation)
            back = {one.offer.name for one in situation.instances if one.id in plan.terminations}
            assert not back & {launch.offer.name for launch in plan.launches}, seed


class TestCompany:
    ONE, TWO = offer("one", 0, dollars=3, cpus=8), offer("two", 0, dollars=4, cpus=16)

    @pytest.mark.parametrize(("speed", "together"), [(0.51, True), (0.49, False)])
    def test_a_task_joins_if_that_saves_more_than_both_lose(self, speed: float, together: bool) -> None:
        """A machine of $3 less, and each loses a share of $3."""
        a, b = of_cpus("a", 8), of_cpus("b", 8)
        slow = {("a", "b"): speed, ("b", "a"): speed}
        on = (rented("x", self.TWO, a),)
        plan = HOUR.plan(asked(a, b, offers=(self.ONE, self.TWO), on=on, slow=slow))
        assert (where(plan)["x"] == ["a", "b"]) is together
        assert new(plan) == ([] if together else [("one", ["b"])])

    def test_those_that_slow_each_other_meet_others(self) -> None:
        """One of each kind waits; each goes to the machine where it harms nobody."""
        a, b = of_cpus("a", 8), of_cpus("b", 8)
        more = replace(a, job_id="a2"), replace(b, job_id="b2")
        on = (rented("x", self.TWO, a), rented("y", self.TWO, b))
        slow = {("a", "b"): 0.5, ("b", "a"): 0.5}
        plan = HOUR.plan(asked(a, b, *more, offers=(self.ONE, self.TWO), on=on, slow=slow))
        assert (where(plan), new(plan)) == ({"x": ["a", "a2"], "y": ["b", "b2"]}, [])

    def test_a_higher_price_of_delay_keeps_tasks_apart(self) -> None:
        a, b = of_cpus("a", 8), of_cpus("b", 8)
        slow = {("a", "b"): 0.7, ("b", "a"): 0.7}
        situation = asked(a, b, offers=(self.ONE, self.TWO), on=(rented("x", self.TWO, a),), slow=slow)
        assert not HOUR.plan(situation).launches
        assert len(replace(HOUR, delay_price=2.0).plan(situation).launches) == 1


class TestWhatStays:
    BIG = offer("big", 0, dollars=5, cpus=16)
    LITTLE = offer("little", 0, dollars=1, cpus=4)
    #: Moves cost next to nothing.
    EAGER = replace(HOUR, move_price=Money())

    @pytest.mark.parametrize(("most", "moves"), [(None, 1), (3, 1), (2, 0), (0, 0)])
    def test_a_job_is_not_moved_more_often_than_the_limit(self, most: int | None, moves: int) -> None:
        task = of_cpus("t", 4, moves=2)
        situation = asked(task, offers=(self.BIG, self.LITTLE), on=(rented("a", self.BIG, task),))
        assert len(replace(self.EAGER, max_moves=most).plan(situation).migrations) == moves

    def test_moves_of_all_tasks_of_a_job_count(self) -> None:
        """One of its tasks never moved; the task beside it, of a job that may move, makes way."""
        held, mate = of_cpus("t", 4), of_cpus("t", 4, rank=1, moves=2)
        other, its_mate = replace(held, job_id="u", moves=1), replace(mate, job_id="u", moves=0)
        on = (
            rented("a", self.BIG, other, held),
            rented("b", self.LITTLE, mate),
            rented("c", self.LITTLE, its_mate),
        )
        offers, slow = (self.BIG, self.LITTLE), {("t", "t"): 0.5}
        situation = asked(held, mate, other, its_mate, offers=offers, on=on, slow=slow)
        plan = replace(self.EAGER, max_moves=2).plan(situation)
        assert plan.migrations == (other,)

    @pytest.mark.parametrize("most", [0, 1])
    def test_whatever_the_situation_nobody_moves_more_often(self, most: int) -> None:
        for seed in range(25):
            situation = moved_before(seed)
            plan = replace(self.EAGER, max_moves=most).plan(situation)
            moves = Counter[str]()
            for task in situation.tasks:
                moves[task.job_id] += task.moves
            assert not [task for task in plan.migrations if moves[task.job_id] >= most], seed

    def test_a_task_that_no_open_offer_holds_stays_and_its_machine_is_not_rented_again(self) -> None:
        """Others on it may leave, and one more may come."""
        gone = offer("gone", 0, dollars=2, cpus=32)
        large = of_cpus("large", 20)
        more = tuple(replace(of_cpus("s", 4), job_id=f"s{n}") for n in range(3))
        plan = HOUR.plan(asked(large, *more, offers=(self.BIG, self.LITTLE), on=(rented("a", gone, large),)))
        assert (where(plan), new(plan)) == ({"a": ["large", "s0", "s1", "s2"]}, [])
        on, apart = (rented("a", gone, large, more[0]),), {("l", "s"): 0.1}
        plan = self.EAGER.plan(asked(large, more[0], offers=(self.BIG, self.LITTLE), on=on, slow=apart))
        assert (where(plan), new(plan)) == ({"a": ["large"]}, [("little", ["s0"])])

    def test_a_task_that_fits_nothing_is_no_reason_to_plan_again(self) -> None:
        """It waits; what runs is left alone, however much a move would save by now."""
        task, huge = of_cpus("t", 4), of_cpus("huge", 99)
        known = Memory(known=frozenset({task.key, huge.key}), offers=(self.BIG, self.LITTLE))
        situation = asked(task, huge, offers=known.offers, on=(rented("a", self.BIG, task),))
        plan = self.EAGER.plan(replace(situation, memory=known))
        assert (where(plan), new(plan)) == ({"a": ["t"]}, [])
        assert plan.unplaced == ((huge, "no offer has 99 CPUs (the largest has 16)"),)
        assert self.EAGER.plan(situation).migrations == (task,)

    def test_a_task_without_a_machine_is(self) -> None:
        """Its machine is gone; nothing else happened."""
        task, lost = of_cpus("t", 4), of_cpus("lost", 4)
        known = Memory(known=frozenset({task.key, lost.key}), offers=(self.BIG, self.LITTLE))
        situation = asked(task, lost, offers=known.offers, on=(rented("a", self.LITTLE, task),))
        assert new(self.EAGER.plan(replace(situation, memory=known))) == [("little", ["lost"])]


class TestKinds:
    SIX = tuple(replace(of_cpus("t", 4), job_id=f"t{n}") for n in range(6))
    BOX, PAIR = offer("box", 0, dollars=4, cpus=8), offer("pair", 0, dollars=1, cpus=8)

    def on(self) -> tuple[Rented, ...]:
        """Three machines of two tasks each."""
        return tuple(rented(f"m{n}", self.BOX, *self.SIX[2 * n : 2 * n + 2]) for n in range(3))

    def test_machines_that_hold_the_same_are_one_kind(self) -> None:
        situation = asked(*self.SIX, offers=(self.BOX,), on=self.on())
        kinds = running(situation, classes_of(situation), None)
        assert kinds.members == (("m0", "m1", "m2"),)
        assert (kinds.counts.tolist(), kinds.held.tolist(), kinds.pinned.tolist()) == ([3], [[2]], [[0]])

    def test_a_task_that_must_stay_makes_a_kind_of_its_own(self) -> None:
        tasks = (replace(self.SIX[0], moves=1), *self.SIX[1:])
        situation = asked(*tasks, offers=(self.BOX,), on=self.on())
        kinds = running(situation, classes_of(situation), 1)
        assert kinds.members == (("m0",), ("m1", "m2"))
        assert kinds.pinned.tolist() == [[1], [0]]

    def test_the_plan_names_each_of_them(self) -> None:
        """Two tasks ended, on two of the machines; a new one fills one of these."""
        fewer = [self.SIX[n] for n in (0, 2, 4, 5)]
        another = replace(self.SIX[0], job_id="another")
        plan = replace(HOUR, move_price=Money.of(27)).plan(
            asked(*fewer, another, offers=(self.BOX,), on=self.on())
        )
        assert plan.cost == Money.of(12)
        assert (sorted(where(plan)), plan.launches, plan.migrations) == (["m0", "m1", "m2"], (), ())
        assert where(plan)["m2"] == ["t4", "t5"]
        assert sorted([*where(plan)["m0"], *where(plan)["m1"]]) == ["another", "t0", "t2"]

    def test_some_of_a_kind_may_be_given_back_and_others_kept(self) -> None:
        """Only one machine of the cheaper offer can be had, as it runs idle and is sold out."""
        idle = rented("idle", self.PAIR)
        plan = replace(HOUR, move_price=Money()).plan(
            asked(*self.SIX, offers=(self.BOX,), on=(*self.on(), idle))
        )
        assert plan.cost == Money.of(4 + 4 + 1)
        assert (len(plan.migrations), len(plan.terminations), new(plan)) == (2, 1, [])


class TestTheBound:
    def test_a_plan_that_is_certified_says_what_nothing_rents_for_less_than(self) -> None:
        sure = replace(HOUR, certify=True)
        for seed in range(20):
            plan = sure.plan(small(seed))
            assert plan.lower_bound is not None
            assert replace(plan, lower_bound=None) == replace(HOUR.plan(small(seed)), lower_bound=None)
            assert plan.lower_bound <= plan.cost or sold_out(small(seed))

    def test_others_say_so_only_when_nothing_runs(self) -> None:
        task = of_cpus("t", 4)
        offers = (TestWhatStays.BIG, TestWhatStays.LITTLE)
        assert HOUR.plan(asked(task, offers=offers)).lower_bound == Money.of(1)
        again = asked(task, of_cpus("u", 4), offers=offers, on=(rented("a", offers[1], task),))
        assert HOUR.plan(again).lower_bound is None


def sold_out(situation: Situation) -> bool:
    """Whether a machine runs that cannot be rented now; it may be cheaper than any that can."""
    return any(one.offer not in situation.offers for one in situation.instances)


class TestLimits:
    def test_too_many_kinds_and_eva_plans(self) -> None:
        situation = asked(
            of_cpus("t", 4),
            offers=(TestWhatStays.BIG, TestWhatStays.LITTLE),
            on=(rented("a", TestWhatStays.BIG, of_cpus("t", 4)),),
        )
        plan, eva = replace(HOUR, most_cells=0).plan(situation), Eva().plan(situation)
        assert plan.reason == f"too many kinds of machines to optimise; {eva.reason}"
        assert replace(plan, reason="", lower_bound=None) == replace(eva, reason="")
        assert plan.lower_bound == Money.of(1), "little holds it alone"
        assert "too many" not in replace(HOUR, most_cells=1).plan(situation).reason

    @pytest.mark.parametrize("limit", [{"rounds": 0}, {"nodes": 0}, {"rounds": 0, "nodes": 0, "gap": 1.0}])
    def test_with_less_work_it_is_still_no_worse_than_partial(self, limit: dict[str, int]) -> None:
        for seed in range(15):
            situation = small(seed)
            price = Price(HOUR, situation)
            plan = replace(HOUR, **limit).plan(situation)  # type: ignore[arg-type]
            assert price.of(plan) <= price.of(Eva(mode="partial").plan(situation)) + 1e-6, seed

    def test_a_program_without_an_answer_gives_what_is_known(self) -> None:
        """Nothing covers the second class."""
        program = Program(np.array([1, 1]), np.zeros(0, np.int64), np.zeros(0, bool))
        one = np.zeros(1, np.int64)
        program.add(Candidates(one, one - 1, np.array([[1, 0]])), np.array([1.0]))
        assert program.relaxed() is None
        assert program.whole(np.array([7.0]), nodes=5, gap=0.0).tolist() == [7.0]

    def test_where_nothing_runs_the_plan_comes_with_a_bound(self) -> None:
        tasks = tuple(replace(of_cpus("t", 4), job_id=f"t{n}") for n in range(6))
        plan = HOUR.plan(asked(*tasks, offers=(TestKinds.BOX, TestWhatStays.LITTLE)))
        assert (plan.cost, plan.lower_bound, plan.reason) == (Money.of(6), Money.of(6), "the optimum")
        assert plan.memory.known == {task.key for task in tasks}


class TestHowGood:
    """In the packer's own objective, on drawn situations of a few tasks and a machine or two."""

    @pytest.mark.parametrize("seed", range(50))
    def test_it_is_never_worse_than_partial(self, seed: int) -> None:
        situation = small(seed) if seed % 2 else with_machines(seed)
        price = Price(HOUR, situation)
        assert price.of(HOUR.plan(situation)) <= price.of(Eva(mode="partial").plan(situation)) + 1e-6

    def test_it_is_the_optimum_but_for_a_few_in_a_hundred(self) -> None:
        """Candidates are grown task by task, which may miss the one that would be best."""
        packer = replace(HOUR, gap=0.0)
        over = []
        for seed in range(50):
            situation = small(seed)
            plan = packer.plan(situation)
            price = Price(packer, situation)
            found, best = price.of(plan), min(map(price.total, ways(situation, plan)))
            assert found >= best - 1e-6, seed
            over.append(found / best - 1 if best else 0.0)
        assert sum(share > 1e-6 for share in over) <= 1
        assert max(over) < 0.01

    @pytest.mark.parametrize("seed", range(20))
    def test_dearer_moves_are_fewer(self, seed: int) -> None:
        situation = small(seed)
        prices = (Money(), Money.of(1), Money.of(3), Money.of(30))
        moves = [len(replace(HOUR, move_price=price).plan(situation).migrations) for price in prices]
        assert all(less_ >= more for less_, more in pairwise(moves)), moves

    def test_when_moves_are_dear_nothing_moves_that_can_stay(self) -> None:
        for seed in range(20):
            assert not replace(HOUR, move_price=Money.of(10_000)).plan(small(seed)).migrations, seed

    def test_a_plan_that_was_carried_out_is_left_alone(self) -> None:
        for seed in range(20):
            situation = small(seed)
            after = carried_out(situation, HOUR.plan(situation))
            again = HOUR.plan(replace(after, now=after.now + 300))
            assert (again.launches, again.migrations, again.terminations) == ((), (), ()), seed

    def test_free_machines_and_tasks_that_ask_for_nothing_are_no_trouble(self) -> None:
        free = offer("free", 0, dollars=0, cpus=8)
        tasks = tuple(Task(f"n{n}", 0, Resources.of(0, 0, 0)) for n in range(3))
        for offers in ((free,), (free, TestKinds.BOX), (TestKinds.BOX,)):
            for on in ((), (rented("a", offers[0]),), (rented("a", offers[0], tasks[0]),)):
                plan = HOUR.plan(asked(*tasks, offers=offers, on=on))
                assert plan.cost == offers[0].price_per_hour
                assert not plan.migrations
