"""What happens between rounds, computed by hand to the second and the cent."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import SimulationError
from sim.eva_replica.check import PlanError
from sim.eva_replica.world import PackedWorld
from sim.packing.results import PackedResult
from starburst.domain.job import Task
from starburst.policy.packing.packers.none import NoPacking
from starburst.policy.packing.plan import Launch, Plan, Situation, assemble
from tests.sim.eva_replica.cases import BIG, KINDS, PAIRS, SMALL, Planned, Scripted, job, simulate

A, B = ("a", 0), ("b", 0)
ALONE = {"new small": [A]}


def ends(result: PackedResult) -> dict[str, float]:
    return {outcome.id: outcome.end_s for outcome in result.jobs}


def test_a_job_alone_is_paid_for_from_acquisition_until_the_round_after_its_end() -> None:
    # Up at 60, fetched 65, image 75, running 95, done 295; ended at the round at 300 and gone a second later.
    result = simulate([job("a", 0, 200)], Scripted({0: ALONE}))
    assert ends(result) == {"a": 295}
    assert result.cost == pytest.approx(0.001 * (301 - 10))
    assert result.jobs[0].idle_s == 75
    assert (result.instances, result.migrations, result.mean_throughput) == (1, 0, 1.0)


def test_a_job_that_ends_on_a_round_is_noticed_in_the_next() -> None:
    result = simulate([job("a", 0, 205)], Scripted({0: ALONE}))
    assert ends(result) == {"a": 300}
    assert result.cost == pytest.approx(0.001 * (601 - 10))


def test_work_is_whole_iterations_and_ends_on_a_whole_second() -> None:
    assert ends(simulate([job("a", 0, 200.9)], Scripted({0: ALONE}))) == {"a": 295}
    assert ends(simulate([job("a", 0, 200)], Scripted({0: ALONE}), uniform_throughput=0.9)) == {"a": 295}
    both = {"new big": [A, B]}
    result = simulate([job("a", 0, 200), job("b", 0, 200)], Scripted({0: both}), uniform_throughput=0.9)
    assert ends(result) == {"a": 95 + 223, "b": 95 + 223}  # 222.2 s at 0.9
    assert result.mean_throughput == pytest.approx(0.9)


MOVED = [job("a", 0, 1000), job("b", 300, 500)]
MOVE = {0: ALONE, 300: {"new big": [A, B]}}


def test_a_job_that_moves_goes_on_until_its_new_machine_is_up() -> None:
    # b arrives on the round and is in it. The big machine is up at 360; until then a has done 265 of 1000.
    # It is off the small one at 365, waits for the image until 375 and both run from 395 on, at 0.8. b needs
    # 625 s, until 1020; a then has 235 s left, alone.
    result = simulate(MOVED, Scripted(MOVE))
    assert ends(result) == {"a": 1255, "b": 1020}
    # The small machine is empty at 365 and ended at 600, the big one at 1500.
    assert result.cost == pytest.approx(0.001 * (601 - 10) + 0.0015 * (1501 - 310))
    assert result.mean_jct_h == pytest.approx((1255 + 720) / 2 / 3600)
    assert [outcome.idle_s for outcome in result.jobs] == [75 + 15, 75]
    assert [outcome.throughput for outcome in result.jobs] == pytest.approx([1000 / 1125, 0.8])
    assert (result.instances, result.migrations, [o.moves for o in result.jobs]) == (2, 1, [1, 0])
    on_machines = (365 - 60) + (1255 - 365) + (1020 - 360)
    assert result.tasks_per_instance == pytest.approx(on_machines / (591 + 1191))
    assert result.gpu_allocation == pytest.approx(on_machines / (591 + 2 * 1191))


def test_slow_moves_take_longer_but_images_and_machines_do_not() -> None:
    # Twice: fetch 10, init 40, leaving 10. a runs at 60 + 10 + 10 + 40 = 120, until 360; off at 370, and
    # runs again when fetch (380) and init are over: 420. b has the image built at 380 and runs from 420 on.
    result = simulate(MOVED, Scripted(MOVE), migration_delay=2)
    assert ends(result) == {"a": 420 + 625 + (1000 - 240 - 500), "b": 420 + 625}


def test_the_packer_is_asked_when_something_changed_and_told_what_was_learnt() -> None:
    packer = Scripted(MOVE)
    simulate(MOVED, packer)
    # At 600 the two are first seen beside each other; at 1200 b is gone. Nobody is left to plan for at 1500.
    assert list(zip(packer.asked, packer.pairs, strict=True)) == [
        (0, 0.95),
        (300, 0.95),
        (600, 0.8),
        (1200, 0.8),
    ]


def test_a_packer_that_is_shown_the_truth_is_not_asked_when_it_shows() -> None:
    packer = Scripted(MOVE)
    simulate(MOVED, packer, sees=PAIRS)
    assert list(zip(packer.asked, packer.pairs, strict=True)) == [(0, 0.8), (300, 0.8), (1200, 0.8)]


def test_tasks_tell_what_a_move_costs_how_often_they_moved_and_what_is_left() -> None:
    packer = Scripted(MOVE)
    simulate(MOVED, packer, estimates=True)
    at_300, at_600 = ({task.key: task for task in s.tasks}[A] for s in packer.situations[1:3])
    assert (at_300.move_s, at_300.moves, at_300.remaining_s) == (30, 0, 1000 - 205)
    assert (at_600.moves, at_600.remaining_s) == (1, pytest.approx(1000 - 265 - 0.8 * 205))


def test_two_jobs_swap_full_machines_at_once() -> None:
    start = {"new small": [A], "new small again": [B]}
    jobs = [job("a", 0, 1000), job("b", 0, 1000), job("c", 300, 10)]
    swap = {"m1": [B], "m2": [A], "new small": [("c", 0)]}
    result = simulate(jobs, Scripted({0: start, 300: swap}))
    # Stopped at 300 with 205 done, off at 305, images are there: running from 330 on.
    assert ends(result) == {"a": 330 + 795, "b": 330 + 795, "c": 405}
    assert result.migrations == 2


def test_a_job_goes_on_while_the_one_whose_place_it_takes_waits_for_a_machine() -> None:
    start = {"new small": [A], "new small again": [B]}
    jobs = [job("a", 0, 1000), job("b", 0, 1000), job("c", 300, 10)]
    chain = {"m1": [B], "new small": [A], "new small again": [("c", 0)]}
    result = simulate(jobs, Scripted({0: start, 300: chain}))
    # Both stop at 360 with 265 done; b finds an image, a has one built.
    assert ends(result) == {"a": 365 + 35 + 735, "b": 365 + 25 + 735, "c": 405}


def test_moving_one_task_restarts_its_whole_job() -> None:
    jobs = [job("a", 0, 1000, tasks=2), job("c", 300, 10)]
    start = {"new small": [A], "new small again": [("a", 1)]}
    move = {"m1": [A], "new small": [("a", 1)], "new small again": [("c", 0)]}
    result = simulate(jobs, Scripted({0: start, 300: move}))
    # The new machine is up at 360; the task that stays is back at 390, the other needs an image: 400.
    assert ends(result)["a"] == 400 + 735
    assert result.migrations == 1


def test_a_job_runs_at_the_pace_of_its_slowest_task_and_the_culprit_is_found() -> None:
    jobs = [job("a", 0, 1000, tasks=2), job("b", 0, 1000)]
    packer = Scripted({0: {"new small": [A], "new big": [("a", 1), B]}})
    assert ends(simulate(jobs, packer)) == {"a": 95 + 1250, "b": 95 + 1250}
    assert packer.pairs[:2] == [0.95, 0.8]


def test_a_machine_that_was_taken_out_of_the_plan_can_be_taken_back() -> None:
    jobs = [job("a", 0, 1000), job("c", 300, 10), job("d", 600, 10)]
    there = {"new small": [A], "new small again": [("c", 0)]}
    back = {"m1": [A], "m3": [("d", 0)]}
    result = simulate(jobs, Scripted({0: ALONE, 300: there, 600: back}), period_s=300)
    assert result.instances == 3  # m1 was empty at 365 but its round came at 600, with a on its way back
    assert ends(result)["a"] == 605 + 25 + (1000 - 265 - 200)


def test_nothing_is_rented_twice_for_jobs_that_come_long_after() -> None:
    result = simulate([job("a", 0, 10), job("b", 1e6, 10)], Planned(NoPacking().plan))
    assert ends(result) == {"a": 105, "b": 1_000_200 + 105}
    assert result.cost == pytest.approx(2 * 0.001 * 291)


def test_lower_bounds_add_up_over_time() -> None:
    def bounded(situation: Situation) -> Plan:
        plan = NoPacking().plan(situation)
        bound = SMALL.offer.price_per_hour
        return Plan(plan.launches, assignments=plan.assignments, lower_bound=bound, reason="Full, for once")

    result = simulate([job("a", 0, 200)], Planned(bounded))
    assert result.bound == pytest.approx(0.001 * 300)
    assert result.full_share == 1.0
    assert simulate([job("a", 0, 200)], Planned(NoPacking().plan)).bound is None


def _nowhere(situation: Situation) -> Plan:
    return Plan(())


def _twice(situation: Situation) -> Plan:
    return Plan((Launch(SMALL.offer, situation.tasks[:1]), Launch(BIG.offer, situation.tasks)))


def _too_many(situation: Situation) -> Plan:
    return Plan((Launch(SMALL.offer, situation.tasks),))


def _unknown(situation: Situation) -> Plan:
    return Plan((), assignments={"m9": situation.tasks})


def _for_nobody(situation: Situation) -> Plan:
    return Plan((Launch(BIG.offer, situation.tasks), Launch(SMALL.offer, ())))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (_nowhere, "is nowhere"),
        (_twice, "placed twice"),
        (_too_many, "not room for all"),
        (_unknown, "m9: no such machine"),
        (_for_nobody, "for nobody"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate([job("a", 0, 10), job("b", 0, 10)], Planned(plan))  # type: ignore[arg-type]


def test_a_task_that_fits_no_machine_is_named_with_what_fails() -> None:
    big = job("a", 0, 10)
    huge = Task("a", 0, type(big.tasks[0].resources).of(3, 1, 1), workload="w")
    jobs = [type(big)("a", 0, 10, (huge,))]
    with pytest.raises(SimulationError, match=r"job a: task 0: no offer has 3 GPUs"):
        simulate(jobs, Planned(NoPacking().plan))


@pytest.mark.parametrize(
    ("option", "value"),
    [("period_s", 0), ("period_s", float("nan")), ("migration_delay", -1), ("uniform_throughput", 0)],
)
def test_parameters_that_make_no_sense_are_named(option: str, value: float) -> None:
    with pytest.raises(SimulationError, match=f"^{option}: "):
        simulate([job("a", 0, 10)], Scripted({0: ALONE}), **{option: value})


class Restless:
    """Puts every task anywhere, each time it is asked."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world: PackedWorld | None = None

    def plan(self, situation: Situation) -> Plan:
        """A plan that holds, and no more."""
        assert self.world is not None
        assert all(min(machine.free) >= 0 for machine in self.world._machines.values())
        room = {rented.id: rented.offer.resources.gpus for rented in situation.instances}
        kept: dict[str, list[Task]] = {name: [] for name in room}
        launches: list[tuple[int, list[Task]]] = []
        for task in situation.tasks:
            name = self.random.choice([*room, ""])
            if name and len(kept[name]) < room[name]:
                kept[name].append(task)
            elif launches and len(launches[-1][1]) < launches[-1][0]:
                launches[-1][1].append(task)
            else:
                launches.append((self.random.randint(1, 2), [task]))
        rent = [((SMALL, BIG)[size - 1].offer, tasks) for size, tasks in launches]
        return assemble(situation, kept, rent)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 4000), st.integers(1, 3)), min_size=1, max_size=8
    ),
    st.integers(0, 2**32),
)
def test_however_tasks_are_moved_about_all_jobs_end_with_their_work_done(
    shapes: list[tuple[int, int, int]], seed: int
) -> None:
    jobs = [job(str(n), *shape) for n, shape in enumerate(shapes)]

    def once() -> PackedWorld:
        packer = Restless(seed)
        packer.world = PackedWorld(jobs, [SMALL, BIG], KINDS, PAIRS, packer)
        packer.world.run()
        return packer.world

    meter, again = once().meter, once().meter
    assert sorted(meter.jobs, key=lambda j: j.id) == sorted(again.jobs, key=lambda j: j.id)
    assert meter.bill == again.bill
    assert {outcome.id for outcome in meter.jobs} == {j.id for j in jobs}
    for outcome in meter.jobs:
        work = jobs[int(outcome.id)].duration_s
        assert outcome.end_s - outcome.arrival_s - outcome.idle_s >= work + 20
        assert 0.8**3 - 1e-9 <= outcome.throughput <= 1 + 1e-9
    assert meter.task_s <= 2 * meter.paid_s
