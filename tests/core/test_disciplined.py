"""Orders that are disciplines: who starts where on a real cluster, and that nothing is lost beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.actions import Slot, StartRun
from starburst.core.model.events import Event, JobSubmitted, NodesChanged, RunEnd, RunEnded
from starburst.core.model.settings import Settings
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.discipline_pass import Disciplined
from starburst.core.scheduler import Scheduler
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Facts, facts
from starburst.domain.job import Job
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.policy.disciplines.discipline import ServerStart
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.placement import best_fit
from starburst.store import codec
from tests.builders import HOUR, Desk, Watched, job, launches, node, nodes, snapshot, starts
from tests.core.test_chaos import THINGS, Chaos
from tests.core.test_queue import Counting
from tests.policy.disciplines.drive import History, histories, slots

ORDERS = sorted(DISCIPLINES)
FILLING = sorted(name for name, order in DISCIPLINES.items() if not order.keeps_room)


class Live:
    """A scheduler behind the face of a discipline: nodes with GPUs only, and nobody ever leaves."""

    def __init__(self, order: str, servers: int, capacity: int) -> None:
        self.scheduler = Watched(Settings(waiting="infinite", order=order))
        self.now = 0.0
        self.events: list[Event] = [
            NodesChanged(tuple(Node(f"n{n}", Resources(capacity)) for n in range(servers)))
        ]

    def __len__(self) -> int:
        return len(self.scheduler.state.queue)

    def arrive(self, number: int, size: int) -> None:
        self.events.append(JobSubmitted(Job(str(number), "", (Resources(size),))))

    def leave(self, number: int, server: int) -> None:
        self.events.append(RunEnded(str(number), 1, RunEnd.EXITED, 0))

    def start(self) -> list[ServerStart]:
        self.now += 1
        actions = self.scheduler.handle(self.events, self.now)
        self.events = []
        self.scheduler.take_changes()
        begun = [(action.job_id, action.slots[0].where) for action in actions if isinstance(action, StartRun)]
        return [(int(name), int(where[1:])) for name, where in begun]


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=25)
@given(history=histories())
def test_with_one_resource_and_nodes_alike_the_scheduler_is_the_discipline(
    order: str, history: History
) -> None:
    pure = DISCIPLINES[order].make(history.servers, history.capacity)
    live = Live(order, history.servers, history.capacity)
    for ours, theirs in zip(slots(history, live), slots(history, pure), strict=True):
        assert ours.starts == theirs.starts


class Twinned(Chaos):
    """Before every step a second scheduler is restored from the first: both must decide the same."""

    def tell(self, *events: Event) -> None:
        twin = restore(self.scheduler.state.settings, snapshot(self.scheduler))
        actions = twin.handle(events, self.now)
        decided = [*twin.take_changes().decisions]
        before = len(self.scheduler.log)
        super().tell(*events)
        assert self.scheduler.log[before:] == decided
        assert not starts(actions) or starts(actions)[-1] in self.scheduler.state.jobs

    def _nodes(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        """Nodes are cordoned and come back; none leaves for good, which a snapshot cannot tell apart."""
        there = enumerate(nodes(4, 4, 4))
        self.tell(NodesChanged(tuple(replace(n, schedulable=bool(pick & 1 << rank)) for rank, n in there)))


CALM = [thing for thing in THINGS if thing != "restart"]


@st.composite
def tellings(draw: st.DrawFn) -> Settings:
    """Settings under which jobs wait, leave, come home and are cut off."""
    return Settings(
        order=draw(st.sampled_from(ORDERS)),
        waiting=draw(st.sampled_from(["constant", "star"])),
        factor=draw(st.sampled_from([0.2, 1.0])) * HOUR,
        queue_limit=draw(st.sampled_from([None, None, 2])),
        returns=draw(st.sampled_from(["never", "t-max", "if-it-pays"])),
        t_max_s=300.0,
        offload_cpu_only=draw(st.booleans()),
    )


@settings(max_examples=30)
@given(
    told=tellings(),
    script=st.lists(st.tuples(st.sampled_from(CALM), st.integers(0, 60)), min_size=10, max_size=40),
)
def test_a_restored_scheduler_decides_the_same_whatever_happens(told: Settings, script: Any) -> None:
    chaos = Twinned(told)
    for what, pick in script:
        chaos.step(what, pick)
    chaos.settle()
    assert sorted(chaos.ended) == sorted(f"j{n + 1}" for n in range(chaos.jobs))


@settings(max_examples=30)
@given(
    told=tellings(),
    script=st.lists(st.tuples(st.sampled_from(THINGS), st.integers(0, 60)), min_size=10, max_size=60),
)
def test_whatever_happens_every_job_ends_once(told: Settings, script: Any) -> None:
    chaos = Chaos(told)
    for what, pick in script:
        chaos.step(what, pick)
    chaos.settle()
    assert sorted(chaos.ended) == sorted(f"j{n + 1}" for n in range(chaos.jobs))


def test_under_bf_js_the_largest_job_that_fits_a_freed_node_goes_first() -> None:
    desk = Desk(4, order="bf-js")
    desk.submit(job("busy", 4))
    desk.submit(job("one"), job("three", 3), job("two", 2))
    assert starts(desk.ended("busy")) == ["three", "one"]


def test_under_bf_js_an_arrival_goes_to_the_tightest_node() -> None:
    desk = Desk(4, 4, 4, order="bf-js")
    desk.submit(job("a", 1), job("b", 4), job("c", 2))
    assert [desk.nodes_of(name) for name in "abc"] == [["n0"], ["n1"], ["n0"]]


def test_of_equal_sizes_the_first_to_come_goes_first_also_after_it_came_back() -> None:
    desk = Desk(1, order="bf-js", waiting="infinite")
    desk.submit(job("a"), job("b"), job("c"))
    desk.started("a")
    assert starts(desk.lost("a")) == ["a"]
    assert starts(desk.ended("a")) == ["b"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_whose_wait_is_over_leaves_and_is_never_started_here(order: str) -> None:
    desk = Desk(2, order=order)
    desk.submit(job("busy", 2))
    desk.submit(job("late"), job("patient", max_wait_s=3 * HOUR))
    assert launches(desk.wait(HOUR)) == ["small"]
    assert desk.phase("late") == "offloading"
    assert starts(desk.ended("busy")) == ["patient"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_that_is_cancelled_is_never_started(order: str) -> None:
    desk = Desk(2, order=order)
    desk.submit(job("busy", 2))
    desk.submit(job("a"), job("b"))
    desk.cancel("a")
    assert starts(desk.ended("busy")) == ["b"]


@pytest.mark.parametrize("order", ORDERS)
def test_beyond_the_longest_queue_the_last_to_come_leaves(order: str) -> None:
    desk = Desk(2, order=order, queue_limit=2)
    desk.submit(job("busy", 2))
    desk.submit(job("a"), job("b"), job("c", 2))
    assert desk.phase("c") == "offloading"
    assert starts(desk.ended("busy")) == ["a", "b"]


@pytest.mark.parametrize("order", ORDERS)
def test_gangs_go_before_what_would_take_their_nodes(order: str) -> None:
    desk = Desk(2, 2, order=order)
    desk.submit(job("busy", gang=(2, 2)), job("small"), job("gang", gang=(2, 2)))
    assert starts(desk.ended("busy")) == ["gang"]
    assert starts(desk.ended("gang")) == ["small"]


@pytest.mark.parametrize("order", FILLING)
def test_what_fits_starts_though_its_size_does_not(order: str) -> None:
    """Most of the GPUs and an eighth of the CPUs, and the other way round: too much by largest shares."""
    desk = Desk(order=order)
    desk.tell(NodesChanged((node(gpus=4, cpus=64),)))
    assert starts(desk.submit(job("gpus", 3, cpus=8), job("cpus", 1, cpus=40))) == ["gpus", "cpus"]


@pytest.mark.parametrize("order", FILLING)
def test_a_job_without_gpus_does_not_wait_for_gpus(order: str) -> None:
    desk = Desk(4, order=order, offload_cpu_only=False)
    desk.submit(job("busy", 4))
    assert starts(desk.submit(job("cpus", 0, cpus=8))) == ["cpus"]


@pytest.mark.parametrize("order", ORDERS)
def test_every_kind_of_node_has_its_discipline_and_a_job_waits_for_all_that_hold_it(order: str) -> None:
    desk = Desk(order=order, waiting="infinite")
    kinds = (node("v", 2, gpu_type="V100"), node("a", 4, gpu_type="A100"))
    desk.tell(NodesChanged(kinds))
    desk.submit(job("a4", 4, gpu_type="A100"), job("v2", 2))
    assert (desk.nodes_of("a4"), desk.nodes_of("v2")) == (["a"], ["v"])
    desk.submit(job("any"), job("v1", gpu_type="V100"))
    assert starts(desk.ended("a4")) == ["any"]
    assert starts(desk.ended("v2")) == ["v1"]


def test_a_job_that_names_its_nodes_goes_there_past_the_discipline() -> None:
    desk = Desk(order="vqs")
    desk.tell(NodesChanged((node("n0", 2), node("n1", 2, labels=(("disk", "ssd"),)))))
    desk.submit(job("picky", 2, node_selector=(("disk", "ssd"),)), job("any", 2))
    assert (desk.nodes_of("picky"), desk.nodes_of("any")) == (["n1"], ["n0"])


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_placed_on_a_node_that_takes_no_jobs(order: str) -> None:
    desk = Desk(order=order)
    down, up = (Node("n0", Resources.of(2, 8, 8), schedulable=ready) for ready in (False, True))
    desk.tell(NodesChanged((down,)))
    assert not starts(desk.submit(job("a")))
    assert starts(desk.tell(NodesChanged((up,)))) == ["a"]
    desk.tell(NodesChanged((down,)))
    desk.submit(job("b"))
    assert not starts(desk.ended("a"))
    assert not starts(desk.tell(NodesChanged(())))
    assert starts(desk.tell(NodesChanged((up,)))) == ["b"]


def test_vqs_keeps_room_for_the_sizes_that_most_wait_with_and_the_explanation_says_so() -> None:
    desk = Desk(4, order="vqs")
    desk.submit(*(job(f"one{n}") for n in range(3)))
    desk.submit(job("two", 2), job("large", 4))
    assert desk.phase("two") == "queued"
    desk.ended("one0")
    told = explain(desk.scheduler.state, desk["two"], lambda at: f"{at:g}").sentence
    assert "there is room for it, but under VQS an empty node is kept for the sizes that most" in told
    told = explain(desk.scheduler.state, desk["large"], lambda at: f"{at:g}").sentence
    assert "under VQS an empty node" in told
    assert "there is room" not in told


def test_under_bf_js_the_explanation_of_a_wait_says_who_goes_first() -> None:
    desk = Desk(4, order="bf-js")
    desk.submit(job("busy", 4), job("a", 2))
    told = explain(desk.scheduler.state, desk["a"], lambda at: f"{at:g}").sentence
    assert "1st in line for 2 GPUs; under BF-J/S the largest job that fits a node goes first" in told


def test_a_start_names_an_earlier_job_only_if_that_does_not_fit() -> None:
    desk = Desk(4, order="bf-js")
    desk.submit(job("busy", 2), job("busy2", 2))
    desk.submit(job("large", 4), job("one"), job("two", 2))
    desk.ended("busy")
    assert "passed large, which does not fit yet" in desk.why("two", "placed")
    desk.cancel("large")
    desk.submit(job("tiny"), job("pair", 2))
    desk.ended("two")
    assert desk.log("pair", "placed")[-1].numbers["passed"] == "", "one would fit, it is only smaller"


def test_the_capacity_has_the_last_word() -> None:
    class Stubborn(Capacity):
        """One node never holds anything, whatever is free there."""

        def holds(self, slots: Any) -> bool:
            return super().holds(slots) and all(slot.where != "n0" for slot in slots)

        def place(self, item: Job) -> tuple[Slot, ...] | None:
            return None

    desk = Desk(order="bf-js")
    desk.scheduler.state.capacity = Stubborn((), best_fit)
    desk.tell(NodesChanged(nodes(2, 2)))
    desk.submit(job("a"), job("b"))
    assert desk.nodes_of("a") == desk.nodes_of("b") == ["n1"]
    assert not starts(desk.submit(job("c")))


def test_a_walk_over_ten_thousand_jobs_tries_a_handful() -> None:
    scheduler = Scheduler(Settings(waiting="infinite", order="bf-js"))
    scheduler.state.capacity = Counting((), best_fit)
    scheduler.handle(NodesChanged(nodes(8, 8)), 0)
    scheduler.handle([JobSubmitted(job(f"busy{n}", 1)) for n in range(16)], 0)
    scheduler.handle([JobSubmitted(job(f"j{n}", 1 + n % 5)) for n in range(10_000)], 1)
    assert len(scheduler.state.queue) == 10_000
    scheduler.state.capacity.attempts = 0
    scheduler.handle(RunEnded("busy7", 1, RunEnd.EXITED, 0), 2)
    assert len(scheduler.state.queue) == 9_999
    assert scheduler.state.capacity.attempts <= 6, (
        "each shape once, and whether the first in the queue is passed"
    )


def test_nodes_that_are_reported_again_as_they_were_cost_nothing() -> None:
    desk = Desk(4, order="vqs-bf")
    walk = desk.scheduler.state.walk
    assert isinstance(walk, Disciplined)
    before = walk._pools
    desk.tell(NodesChanged(desk.scheduler.state.capacity.nodes))  # type: ignore[arg-type]
    assert walk._pools is before


def test_configurations_survive_in_the_store() -> None:
    desk = Desk(4, 4, order="vqs")
    desk.submit(job("a"), job("b"))
    known = facts(desk.scheduler.state)
    assert set(known.configurations) == {"n0"}
    again = codec.decode(Facts, codec.encode(known))
    assert again.configurations == known.configurations
    assert codec.decode(Facts, "{}").configurations == {}, "as stores of before have it"


def test_the_order_may_change_with_a_restart() -> None:
    for before, after in zip(["fifo", *ORDERS], [*ORDERS, "fifo"], strict=True):
        desk = Desk(4, order=before)
        desk.submit(job("busy", 3))
        desk.submit(job("a", 2), job("b", 2, cloud="never"))
        again = restore(Settings(order=after), snapshot(desk.scheduler))
        assert starts(again.handle(RunEnded("busy", 1, RunEnd.EXITED, 0), 10)) == ["a", "b"]
