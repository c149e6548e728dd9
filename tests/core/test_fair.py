"""Queues: turns in proportion to shares, priorities first, a P of their own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.events import SiteSynced
from starburst.core.views.restoring import restore
from starburst.domain.job import Job, Site
from starburst.policy.fair import Queue
from tests.builders import HOUR, Desk, job, snapshot, starts


def fair(gpus: int, *queues: Queue, **more: Any) -> Desk:
    """A cluster that queues share."""
    return Desk(gpus, order="fair", waiting="infinite", queues=queues, **more)


def backlog(queue: str, count: int, hours: float = 1, gpus: int = 1) -> list[Job]:
    """Jobs that come together."""
    return [job(f"{queue}{n}", gpus, queue=queue, hours=hours) for n in range(count)]


def order_of(desk: Desk, first: list[str], rounds: int) -> str:
    """The queues of the jobs that start one after the other; each starts when the last has ended."""
    run, told = list(first), ""
    for _ in range(rounds):
        name = run.pop(0)
        told += name[0]
        run += starts(desk.ended(name))
    return told


def test_queues_take_turns_in_proportion_to_their_shares() -> None:
    desk = fair(1, Queue("a", share=2), Queue("b"))
    began = starts(desk.submit(*backlog("a", 20), *backlog("b", 20)))
    assert Counter(order_of(desk, began, 18)) == {"a": 12, "b": 6}


def test_without_a_config_all_queues_are_alike_whatever_their_names() -> None:
    desk = fair(1)
    began = starts(desk.submit(*backlog("a", 9), *backlog("b", 3), *backlog("c", 3)))
    assert Counter(order_of(desk, began, 9)) == {"a": 3, "b": 3, "c": 3}


def test_turns_count_gpu_hours_not_jobs() -> None:
    desk = fair(2)
    began = starts(desk.submit(*backlog("a", 9, hours=4, gpus=2), *backlog("b", 40, hours=2, gpus=2)))
    assert Counter(order_of(desk, began, 12)) == {"a": 4, "b": 8}


def test_one_that_comes_late_neither_makes_up_nor_waits_for_what_it_missed() -> None:
    desk = fair(1)
    began = starts(desk.submit(*backlog("a", 30)))
    assert order_of(desk, began, 10) == "a" * 10
    desk.submit(*backlog("b", 10))
    running = [name for name, record in desk.scheduler.state.jobs.items() if record.alive]
    assert Counter(order_of(desk, running, 11)[1:]) == {"a": 5, "b": 5}


def test_what_a_queue_had_while_nobody_else_waited_is_not_held_against_it() -> None:
    desk = fair(1)
    for _ in range(5):
        (name,) = starts(desk.submit(job(f"a-{desk.now}", queue="a", hours=9)))
        desk.now += HOUR
        desk.ended(name)
    desk.submit(job("c0", queue="c", hours=1))
    desk.submit(*backlog("a", 4), *backlog("b", 4))
    assert Counter(order_of(desk, ["c0"], 5)) == {"c": 1, "a": 2, "b": 2}


def test_a_higher_priority_goes_first_whatever_the_shares() -> None:
    desk = fair(1, Queue("a", share=100), Queue("z", priority=1))
    began = starts(desk.submit(*backlog("a", 4), *backlog("z", 3)))
    assert order_of(desk, began, 7) == "zzzaaaa"


def test_what_does_not_fit_is_passed() -> None:
    desk = fair(2)
    desk.submit(job("busy", queue="c"))
    assert starts(desk.submit(*backlog("a", 1, gpus=2), *backlog("b", 1))) == ["b0"]


def test_one_that_comes_back_keeps_its_tag_and_is_not_counted_twice() -> None:
    desk = fair(1)
    desk.submit(*backlog("a", 2), *backlog("b", 2))
    tag = desk["a0"].tag
    assert starts(desk.lost("a0")) == ["a0"]
    assert desk["a0"].tag == tag


def test_tags_survive_a_restart() -> None:
    desk = fair(1, Queue("a", share=2), Queue("b"))
    began = starts(desk.submit(*backlog("a", 20), *backlog("b", 20)))
    order_of(desk, began, 5)
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert again.state.tags == desk.scheduler.state.tags
    running = next(record for record in desk.scheduler.state.jobs.values() if record.alive)
    key = (running.id, running.attempt)
    again.handle(SiteSynced(Site.CLUSTER, frozenset({key})), desk.now)
    end = desk.end_of(running.id)
    assert starts(again.handle(end, desk.now)) == starts(desk.tell(end))
    late = job("late", queue="c", hours=1)
    desk.submit(late)
    assert desk["late"].tag == desk.scheduler.state.tags.virtual


services = st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 5)), min_size=20, max_size=60)


@settings(max_examples=30)
@given(services, st.floats(0.2, 5), st.floats(0.2, 5))
def test_while_two_queues_wait_neither_is_ahead_by_more_than_a_job_of_each(
    jobs: list[tuple[str, float]], share_a: float, share_b: float
) -> None:
    """Start-time fair queueing, Theorem 1: |W_f/r_f − W_g/r_g| ≤ l_f/r_f + l_g/r_g of their largest jobs."""
    share = {"a": share_a, "b": share_b}
    desk = fair(1, *(Queue(name, share=r) for name, r in share.items()))
    desk.submit(job("busy", queue="c", hours=1))
    sizes = {f"{queue}{n}": (queue, hours) for n, (queue, hours) in enumerate(jobs)}
    desk.submit(*(job(name, queue=queue, hours=hours) for name, (queue, hours) in sizes.items()))
    left = Counter(queue for queue, _ in jobs)
    most = {q: max((h for queue, h in jobs if queue == q), default=0.0) for q in "ab"}
    bound = sum(most[q] / share[q] for q in "ab")
    had = {"a": 0.0, "b": 0.0}
    running = starts(desk.ended("busy"))
    while min(left["a"], left["b"]) > 0:
        (name,) = running
        queue, hours = sizes[name]
        left[queue] -= 1
        had[queue] += hours
        assert abs(had["a"] / share_a - had["b"] / share_b) <= bound + 1e-9
        running = starts(desk.ended(name))


def test_a_queues_own_p_scales_the_waits_of_its_jobs() -> None:
    desk = Desk(
        1, waiting="compute", factor=None, budget_percent=20.0, queues=(Queue("a", budget_percent=60),)
    )
    desk.submit(job("busy", queue="b", hours=1))
    desk.submit(job("x", queue="a", hours=1), job("y", queue="b", hours=1))
    assert desk["x"].deadline == pytest.approx(3 * desk["y"].deadline)
    assert "P 60 % of queue a" in desk.why("x", "waits")
    assert "P" not in desk.why("y", "waits").removeprefix("waits up to").replace("GPU", "")
