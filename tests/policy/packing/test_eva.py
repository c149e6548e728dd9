"""Eva's two reconfigurations and the choice between them (Eva, sections 4.4 and 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp

import pytest

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.classes import classes_of
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.packers.eva import (
    RATE_WINDOW_S,
    SHARE_WINDOW,
    Eva,
    expected_life_s,
    moving,
    remember,
    saving,
)
from starburst.policy.packing.packers.reconfigure import Filler
from starburst.policy.packing.plan import Memory, Plan, Rented, Situation
from tests.builders import offer
from tests.policy.packing.properties import carried_out
from tests.policy.packing.table3 import IT1, IT2, IT3, IT4, OFFERS, T1, T2, T3, T4

CALM: Mapping[tuple[str, str], float] = {}
#: Four GPUs cost less than four times one.
ONE = offer("one", 1, dollars=3, cpus=8)
FOUR = offer("four", 4, dollars=8, cpus=32, ready_s=360.0)
SMALL = tuple(Task(f"small{n}", 0, Resources.of(1, 4, 10), move_s=360.0) for n in range(4))


def asked(
    *tasks: Task,
    on: tuple[Rented, ...] = (),
    offers: tuple[Offer, ...] = OFFERS,
    slow: Mapping[tuple[str, str], float] = CALM,
    memory: Memory | None = None,
) -> Situation:
    """Pairs are as fast as alone unless `slow` says other."""
    table = Colocation.known(slow, default=1.0)
    return Situation(tasks, offers, on, table, now=7200.0, memory=memory or Memory())


def rented(name: str, of: Offer, *tasks: Task) -> Rented:
    """A machine with tasks."""
    return Rented(name, of, tuple(task.key for task in tasks))


def placed(plan: Plan) -> dict[str, list[str]]:
    """Jobs by machine, new machines under the name of their offer."""
    names = [*plan.assignments.items(), *((launch.offer.name, launch.tasks) for launch in plan.launches)]
    return {name: sorted(task.job_id for task in tasks) for name, tasks in names}


def partial(situation: Situation) -> Plan:
    """What Partial Reconfiguration does."""
    return Eva(mode="partial").plan(situation)


class TestPartial:
    def test_a_machine_that_pays_is_kept(self) -> None:
        """$12 and $3 for $12; in a plan from scratch t4 would be on it too, not on its own machine."""
        plan = partial(asked(T1, T2, T4, on=(rented("a", IT1, T1, T2), rented("b", IT4, T4))))
        assert placed(plan) == {"a": ["t1", "t2"], "b": ["t4"]}
        assert (plan.migrations, plan.terminations) == ((), ())

    def test_a_machine_that_no_longer_pays_is_given_back_and_its_tasks_move(self) -> None:
        """t1 ended, and t2 is worth $3 on a machine of $12."""
        plan = partial(asked(T2, on=(rented("a", IT1, T1, T2),)))
        assert (placed(plan), plan.migrations, plan.terminations) == ({"it2": ["t2"]}, (T2,), ("a",))

    def test_a_machine_whose_tasks_slow_each_other_too_much_does_not_pay(self) -> None:
        """$12 × 0.7 + $3 is less than $12; one of the two stays on it, as it is of the right kind."""
        plan = partial(asked(T1, T2, on=(rented("a", IT1, T1, T2),), slow={("t1", "t2"): 0.7}))
        assert (placed(plan), plan.migrations) == ({"a": ["t1"], "it2": ["t2"]}, (T2,))

    def test_an_empty_machine_is_given_back_or_used_for_a_new_task(self) -> None:
        empty = (rented("a", IT1), rented("b", IT2), rented("c", IT2))
        plan = partial(asked(T2, on=empty))
        assert (placed(plan), plan.terminations) == ({"b": ["t2"]}, ("a", "c"))

    def test_a_new_task_goes_where_it_raises_the_worth_most(self) -> None:
        """Beside rough t2 loses 30 cents and rough $1.20, beside smooth t2 loses 3 cents."""
        rough, smooth = (replace(T1, job_id=name, workload=name) for name in ("rough", "smooth"))
        slow = {("t2", "rough"): 0.9, ("rough", "t2"): 0.9, ("t2", "smooth"): 0.99}
        machines = (rented("a", IT1, rough), rented("b", IT1, smooth))
        plan = partial(asked(rough, smooth, T2, on=machines, slow=slow))
        assert placed(plan) == {"a": ["rough"], "b": ["smooth", "t2"]}

    def test_a_new_task_goes_nowhere_where_it_lowers_the_worth(self) -> None:
        """t4 is worth 40 cents, and t1 would lose $0.60."""
        plan = partial(asked(T1, T4, on=(rented("a", IT1, T1),), slow={("t1", "t4"): 0.95}))
        assert placed(plan) == {"a": ["t1"], "it4": ["t4"]}

    def test_tasks_fill_kept_machines_as_far_as_there_is_room_and_then_new_ones(self) -> None:
        """it1 has two GPUs left."""
        three = [replace(T2, job_id=f"n{n}") for n in range(3)]
        plan = partial(asked(T1, *three, on=(rented("a", IT1, T1),)))
        assert placed(plan) == {"a": ["n0", "n1", "t1"], "it2": ["n2"]}

    @pytest.mark.parametrize("mode", ["partial", "full", "ensemble"])
    def test_a_task_whose_only_offer_is_sold_out_stays_where_it_runs(self, mode: str) -> None:
        on = (rented("a", IT1, T1), rented("b", IT3, T3))
        plan = Eva(mode=mode).plan(asked(T1, T3, on=on, offers=(IT2, IT3, IT4)))
        assert (placed(plan), plan.migrations, plan.unplaced) == ({"a": ["t1"], "b": ["t3"]}, (), ())
        assert not plan.launches

    @pytest.mark.parametrize("mode", ["partial", "ensemble"])
    def test_a_machine_that_is_sold_out_is_kept_and_not_rented_again(self, mode: str) -> None:
        """The cheapest machine for either is sold out; one of them runs on it."""
        cheap = offer("cheap", 0, dollars=0.1, cpus=8)
        on = (rented("a", cheap, T3),)
        plan = Eva(mode=mode).plan(asked(T3, replace(T3, job_id="new"), on=on))
        assert placed(plan) == {"a": ["t3"], "it3": ["new"]}


def spread_out(life_h: float) -> Situation:
    """Four tasks on a machine each, something ended, and plans are thought to last for so many hours."""
    on = tuple(rented(f"m{n}", ONE, task) for n, task in enumerate(SMALL))
    rate = 1 / (life_h * 3600 * 0.6931471805599453)
    known = frozenset({*(task.key for task in SMALL), ("ended", 0)})
    memory = Memory(at=7200.0, event_rate=rate, full_share=0.5, known=known, offers=(ONE, FOUR))
    return asked(*SMALL, on=on, offers=(ONE, FOUR), memory=memory)


class TestTheChoice:
    """One machine for four saves $12 − $8 = $4 an hour. The moves cost 4 × 0.1 h × ($3 + $8), the start
    0.1 h × $8: $5.20, which is $4 for 1.3 hours."""

    @pytest.mark.parametrize(
        ("life_h", "chosen"), [(0.1, "partial"), (1.29, "partial"), (1.31, "full"), (100, "full")]
    )
    def test_full_is_chosen_if_what_it_saves_while_it_lasts_is_more_than_its_moves_cost(
        self, life_h: float, chosen: str
    ) -> None:
        plan = Eva().plan(spread_out(life_h))
        assert plan.reason.startswith(f"{chosen} reconfiguration: the full one saves $4.00/h more")
        assert "its moves cost $5.20 more" in plan.reason
        jobs = sorted(task.job_id for task in SMALL)
        alone = {f"m{n}": [job] for n, job in enumerate(jobs)}
        assert placed(plan) == ({"four": jobs} if chosen == "full" else alone)

    @pytest.mark.parametrize("life_h", [0.1, 100.0])
    @pytest.mark.parametrize("mode", ["partial", "full"])
    def test_a_mode_leaves_no_choice(self, mode: str, life_h: float) -> None:
        situation = spread_out(life_h)
        plan = Eva(mode=mode).plan(situation)
        assert plan.reason == f"{mode} reconfiguration"
        assert len(plan.migrations) == (4 if mode == "full" else 0)
        assert plan.memory.full_share == situation.memory.full_share

    @pytest.mark.parametrize("mode", ["partial", "full", "ensemble"])
    def test_without_news_there_is_no_reason_to_move(self, mode: str) -> None:
        """However much a full reconfiguration would save."""
        situation = spread_out(100.0)
        known = frozenset(task.key for task in SMALL)
        plan = Eva(mode=mode).plan(replace(situation, memory=replace(situation.memory, known=known)))
        assert (plan.launches, plan.migrations, plan.terminations) == ((), (), ())
        assert plan.memory.full_share == 0.5

    @pytest.mark.parametrize("mode", ["partial", "full", "ensemble"])
    def test_a_plan_that_was_carried_out_is_left_alone(self, mode: str) -> None:
        situation = spread_out(100.0)
        after = carried_out(situation, Eva(mode=mode).plan(situation))
        again = Eva(mode=mode).plan(replace(after, now=situation.now + 300))
        assert (again.launches, again.migrations, again.terminations) == ((), (), ())

    def test_a_new_offer_is_news(self) -> None:
        situation = spread_out(100.0)
        known = frozenset(task.key for task in SMALL)
        memory = replace(situation.memory, known=known, offers=(ONE,))
        assert len(Eva().plan(replace(situation, memory=memory)).migrations) == 4


class TestWhatIsWeighed:
    def test_a_plan_saves_what_its_tasks_are_worth_less_what_its_machines_cost(self) -> None:
        """The paper's example: $12 + $3 + $0.40 + $0.80 for $12 + $0.80."""
        situation = asked(T1, T2, T3, T4)
        classes = classes_of(situation)
        plan = Eva().plan(situation)
        assert placed(plan) == {"it1": ["t1", "t2", "t4"], "it3": ["t3"]}
        calm = saving(situation, classes, Filler(classes, situation.throughput), plan)
        assert calm == pytest.approx(3.4e6)
        slow = asked(T1, T2, T3, T4, slow={("t1", "t2"): 0.9, ("t1", "t4"): 0.9})
        filler = Filler(classes_of(slow), slow.throughput)
        assert saving(slow, classes_of(slow), filler, plan) == pytest.approx((3.4 - 12 * 0.19) * 1e6)

    def test_a_move_costs_both_machines_while_it_lasts_and_a_launch_its_start(self) -> None:
        """0.1 h of $3 and $8 for each of four, and 0.1 h of $8; a new task moves from nowhere."""
        situation = spread_out(1.0)
        plan = Eva(mode="full").plan(situation)
        assert moving(situation, classes_of(situation), plan) == pytest.approx((4 * 1.1 + 0.8) * 1e6)
        first = replace(situation, instances=())
        assert moving(first, classes_of(first), Eva().plan(first)) == pytest.approx(0.8e6)

    def test_what_stays_costs_nothing(self) -> None:
        situation = spread_out(1.0)
        assert moving(situation, classes_of(situation), partial(situation)) == 0

    @pytest.mark.parametrize(
        ("per_hour", "share", "seconds"),
        [
            (1.0, 0.5, 5193.7),
            (10.0, 0.1, 3416.8),
            (2.0, 0.9, 781.7),
            # The share is kept off 0 and 1.
            (10.0, 0.0, 35819.7),
            (10.0, 1.0, 78.2),
            # Nothing is known yet: an hour.
            (0.0, 0.5, 3600.0),
        ],
    )
    def test_a_plan_lasts_by_the_rate_of_events_and_the_share_that_led_to_full(
        self, per_hour: float, share: float, seconds: float
    ) -> None:
        memory = Memory(event_rate=per_hour / 3600, full_share=share)
        assert expected_life_s(memory) == pytest.approx(seconds, abs=0.05)


class TestWhatIsRemembered:
    def test_what_comes_and_what_goes_is_an_event(self) -> None:
        memory = remember(replace(asked(T1, T2), now=0.0))
        assert (memory.at, memory.event_rate, memory.known) == (0.0, 0.0, {T1.key, T2.key})
        memory = remember(replace(asked(T2, T3, T4, memory=memory), now=100.0))
        assert memory.event_rate == pytest.approx(3 / 100)
        quiet = remember(replace(asked(T2, T3, T4, memory=memory), now=200.0))
        assert (quiet.at, quiet.event_rate) == (100.0, memory.event_rate)

    def test_the_rate_of_events_follows_the_workload(self) -> None:
        """Two events every 100 s for a day, then every 1000 s: the old rate fades with the window."""
        memory = Memory()
        for n in range(864):
            memory = remember(replace(asked(_numbered(n), memory=memory), now=n * 100.0))
        assert memory.event_rate == pytest.approx(0.02, rel=1e-3)
        begin = memory.at
        assert begin is not None
        for n in range(1, 61):
            memory = remember(replace(asked(_numbered(n), memory=memory), now=begin + n * 1000.0))
        left = exp(-60_000 / RATE_WINDOW_S)
        assert memory.event_rate == pytest.approx(0.002 + 0.018 * left, rel=1e-3)
        assert left < 0.1

    def test_the_share_of_full_follows_the_choices(self) -> None:
        """After as many choices as the window is long, a third of what was remembered is left."""
        often, seldom = spread_out(100.0), spread_out(0.1)
        share = often.memory.full_share
        for _ in range(int(SHARE_WINDOW)):
            memory = replace(often.memory, full_share=share)
            share = Eva().plan(replace(often, memory=memory)).memory.full_share
        assert share == pytest.approx(1 - 0.5 / exp(1))
        less = Eva().plan(seldom).memory.full_share
        assert less == pytest.approx(0.5 * exp(-1 / SHARE_WINDOW))


class TestVariants:
    def test_without_interference_tasks_meet_that_slow_each_other(self) -> None:
        situation = asked(T1, T2, slow={("t1", "t2"): 0.7})
        assert placed(Eva().plan(situation)) == {"it1": ["t1"], "it2": ["t2"]}
        assert placed(Eva(interference=False).plan(situation)) == {"it1": ["t1", "t2"]}

    def test_without_gangs_a_straggler_counts_for_itself_only(self) -> None:
        """Beside t1 a task of four loses 30 % of $3, and the job 30 % of $12."""
        gang = [Task("gang", rank, Resources.of(1, 4, 10), workload="gang") for rank in range(4)]
        situation = asked(T1, *gang, slow={("gang", "t1"): 0.7})
        assert placed(Eva().plan(situation))["it1"] != ["gang", "gang", "t1"]
        alone = Eva(gangs=False).plan(situation)
        assert ["gang", "gang", "t1"] in [sorted(t.job_id for t in launch.tasks) for launch in alone.launches]


def _numbered(n: int) -> Task:
    return replace(T4, job_id=f"job{n}")
