"""No starvation: a job that only the cluster can have starts within a bound, whatever else comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.events import (
    CancelRequested,
    Event,
    JobSubmitted,
    NodesChanged,
    RunEnd,
    RunEnded,
    SiteSynced,
    VolumesRuled,
)
from starburst.core.model.settings import Settings
from starburst.core.parts.capacity import Capacity
from starburst.core.scheduler import Scheduler
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.domain.constraints import NODE_NAME, Requirement, Rules, Term
from starburst.domain.job import Job, Site
from starburst.policy.placement import PLACEMENTS
from tests.builders import HOUR, MINUTE, Desk, arrival, job, node, nodes, snapshot, starts, world


def long_one(gpus: int = 2, **more: Any) -> Job:
    return job("long", gpus, cloud="never", hours=1, **more)


def small(name: object, **more: Any) -> Job:
    return job(f"s{name}", hours=1, cloud="never", **more)


def on(name: str) -> tuple[Term, ...]:
    return ((Requirement(NODE_NAME, "In", (name,)),),)


def passed(desk: Desk, times: int) -> None:
    """Small jobs keep both GPUs of a node busy and go past the long one so many times."""
    desk.submit(small("a"), small("b"), long_one())
    running = ["sa", "sb"]
    for n in range(times):
        desk.submit(small(n))
        assert starts(desk.ended(running.pop(0))) == [f"s{n}"]
        running.append(f"s{n}")


def test_without_a_limit_small_jobs_pass_a_large_one_for_ever() -> None:
    desk = Desk(2, max_passes=0)
    passed(desk, 50)
    assert desk.phase("long") == "queued"


def test_passed_so_many_times_it_goes_first_and_the_room_it_waits_for_is_kept() -> None:
    desk = Desk(2, max_passes=3)
    passed(desk, 3)
    desk.submit(small("late"))
    assert not starts(desk.ended("s1"))
    assert desk.why("long", "protected") == (
        "goes first now: 3 later jobs have started before it; n0 take no other job until it starts"
    )
    told = explain(desk.scheduler.state, desk["long"], str).sentence
    assert "1st in line for 2 GPUs; passed too often, so n0 take no other job" in told
    assert starts(desk.ended("s2")) == ["long"]
    assert starts(desk.ended("long")) == ["slate"]


def test_other_nodes_go_on_taking_jobs() -> None:
    desk = Desk(2, 1, max_passes=1)
    desk.submit(small("a"), small("b"), small("c"), long_one(), small("d"), small("e"), small("f"))
    on_small = next(name for name in ("sa", "sb", "sc") if desk.nodes_of(name) == ["n1"])
    on_big = [name for name in ("sa", "sb", "sc") if name != on_small]
    assert starts(desk.ended(on_big[0])) == ["sd"]
    assert not starts(desk.ended("sd"))
    assert starts(desk.ended(on_small)) == ["se"]
    assert starts(desk.ended(on_big[1])) == ["long"]


@pytest.mark.parametrize("deed", ["cancel", "hold"])
def test_when_it_waits_no_longer_its_nodes_are_open_again(deed: str) -> None:
    desk = Desk(2, max_passes=1)
    passed(desk, 1)
    desk.submit(small("late"))
    assert not starts(desk.ended("sb"))
    assert starts(getattr(desk, deed)("long")) == ["slate"]


def test_an_edit_does_not_take_the_first_place_from_a_job_that_nodes_are_kept_for() -> None:
    """In strict order the next first job would wait for these nodes, and nothing would start any more."""
    desk = Desk(2, order="priority", out_of_order=False, max_passes=1)
    desk.submit(small("a"), long_one())
    desk.submit(small("b", priority=1))
    assert desk.phase("sb") == "starting"
    desk.submit(small("late", priority=1))
    assert desk.scheduler.state.passed.nodes == ("n0",)
    desk.edit("long", runtime_estimate_s=2 * HOUR)
    desk.ended("sa")
    assert starts(desk.ended("sb")) == ["long"]
    assert starts(desk.ended("long")) == ["slate"]


def test_when_its_nodes_leave_others_are_kept() -> None:
    desk = Desk(2, 2, max_passes=1)
    desk.submit(*(small(n) for n in "abcd"), long_one(), small("e"))
    desk.ended("sa")
    desk.submit(small("f"), small("g"))
    (kept,) = desk.scheduler.state.passed.nodes or (None,)
    if kept is None:
        desk.tell()
        (kept,) = desk.scheduler.state.passed.nodes
    rest = tuple(item for item in nodes(2, 2) if item.name != kept)
    desk.tell(NodesChanged(rest))
    assert desk.scheduler.state.passed.nodes == (rest[0].name,)


@pytest.mark.parametrize(
    "change",
    [
        VolumesRuled("long", on("n1")),
        NodesChanged((node("n0", 1), node("n1", 2))),
    ],
)
def test_when_it_fits_there_no_more_others_are_kept_and_these_are_open_again(change: Event) -> None:
    """Its volume turns out to be elsewhere, or a GPU fails."""
    desk = Desk(2, 2, max_passes=1)
    desk.submit(*(small(n) for n in "abcd"), long_one(), small("e"))
    assert desk.nodes_of("sa") == desk.nodes_of("sb") == ["n0"]
    assert starts(desk.ended("sc")) == ["se"]
    desk.tell()
    desk.ended("sa")
    assert desk.scheduler.state.passed.nodes == ("n0",)
    desk.tell(change)
    desk.submit(small("f"))
    assert desk.scheduler.state.passed.nodes == ("n1",)
    desk.ended("sd")
    assert starts(desk.ended("se")) == ["long"]


def test_one_with_a_deadline_is_not_protected_as_it_leaves_anyway() -> None:
    desk = Desk(2, max_passes=1)
    desk.submit(small("a"), small("b"), job("long", 2, hours=1), small("c"), small("d"))
    assert starts(desk.ended("sa")) == ["sc"]
    assert starts(desk.ended("sb")) == ["sd"]
    desk.wait(HOUR)
    assert desk.phase("long") == "offloading"


def test_a_job_that_nothing_could_hold_keeps_nothing() -> None:
    desk = Desk(2, max_passes=1)
    desk.submit(long_one(64), small("a"))
    for n in range(5):
        desk.submit(small(n))
    assert desk.scheduler.state.passed.nodes == ()


def test_a_restart_keeps_what_was_kept() -> None:
    desk = Desk(2, max_passes=2)
    passed(desk, 2)
    desk.submit(small("late"))
    desk.ended("s0")
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    live = [(record.id, record.attempt) for record in desk.scheduler.state.jobs.values() if record.alive]
    again.handle(SiteSynced(Site.CLUSTER, frozenset(live)), desk.now)
    assert starts(again.handle(desk.end_of("s1"), desk.now)) == ["long"]


@pytest.mark.parametrize("change", [{"max_passes": 0}, {"order": "bf-js"}])
def test_a_restart_with_settings_that_keep_nothing_opens_what_was_kept(change: dict[str, Any]) -> None:
    desk = Desk(2, max_passes=2)
    passed(desk, 2)
    desk.submit(small("late", rules=Rules(on("n0"))))
    assert not starts(desk.ended("s0"))
    again = restore(replace(desk.scheduler.state.settings, **change), snapshot(desk.scheduler))
    again.handle(SiteSynced(Site.CLUSTER, frozenset({("s1", 1)})), desk.now)
    again.handle(CancelRequested("long"), desk.now)
    assert again.state.jobs["slate"].alive


@settings(max_examples=12)
@given(
    gpus=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    most=st.integers(1, 10),
    order=st.sampled_from(["fifo", "sjf", "edf", "priority", "fair"]),
    run_times=st.lists(st.floats(1, 30), min_size=4, max_size=8),
    sure=st.booleans(),
)
def test_under_a_stream_of_small_jobs_a_large_one_starts_within_the_bound(
    gpus: list[int], most: int, order: str, run_times: list[float], sure: bool
) -> None:
    """It starts at the latest when `most` later jobs have started and then the longest run has ended.

    A small job arrives every 15 s, more than the cluster can serve; estimates may be all wrong.
    """
    total, step = sum(gpus), 15.0
    estimate = 1.0 if sure else 1e-3
    place = world(*gpus, waiting="infinite", max_passes=most, order=order, offload_cpu_only=False)
    longest = max(run_times) * MINUTE
    gang = (max(gpus),)
    first = [
        arrival(job(f"f{n}", hours=estimate, priority=5), takes=longest * (n + 1) / total)
        for n in range(total)
    ]
    large = arrival(job("large", gang=gang, hours=50, cloud="never"), at=1.0)
    horizon = longest * (most + 3) * 2 + 1000
    stream = [
        arrival(
            job(f"s{n}", hours=estimate, priority=5, queue="many"),
            at=2.0 + n * step,
            takes=run_times[n % len(run_times)] * MINUTE,
        )
        for n in range(int(min(horizon / step, 120)))
    ]
    place.submit([*first, large, *stream])
    place.run()
    started = {d.subject: d.at for d in place.scheduler.log if d.kind == "started"}
    later = sorted(at for name, at in started.items() if name.startswith("s") and at < started["large"])
    if len(later) >= most:
        assert started["large"] <= later[most - 1] + longest + 1e-6


class Counting(Capacity):
    """Counts the attempts to place."""

    attempts = 0

    def place(self, item: Job) -> Any:
        """One more."""
        self.attempts += 1
        return super().place(item)


def test_a_step_still_costs_no_more_attempts_than_there_are_shapes() -> None:
    scheduler = Scheduler(Settings(waiting="infinite", max_passes=10))
    scheduler.state.capacity = Counting((), PLACEMENTS["best-fit"])
    scheduler.handle(NodesChanged(nodes(8, 8)), 0)
    scheduler.handle([JobSubmitted(job(f"busy{n}")) for n in range(16)], 0)
    scheduler.handle([JobSubmitted(job("large", 8)), *(JobSubmitted(job(f"s{n}")) for n in range(5000))], 1)
    running, most = [f"busy{n}" for n in range(16)], 0
    for _ in range(30):
        scheduler.state.capacity.attempts = 0
        ended = running.pop(0)
        running += starts(scheduler.handle(RunEnded(ended, 1, RunEnd.EXITED, 0), 2))
        most = max(most, scheduler.state.capacity.attempts)
    assert scheduler.state.passed.nodes or "large" in running
    assert most <= 4
