"""Arrays: jobs that differ in their index, and may take turns."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.events import JobSubmitted, SiteSynced
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.domain.job import Job, Member, Site
from tests.builders import HOUR, Desk, job, snapshot, starts


def array(size: int, at_once: int | None = None, **more: object) -> list[Job]:
    """Jobs x-0, x-1, …"""
    return [job(f"x-{n}", array=Member("x", n, size, at_once), **more) for n in range(size)]  # type: ignore[arg-type]


def blocked(desk: Desk) -> list[str]:
    return [name for name, record in desk.scheduler.state.jobs.items() if record.phase.value == "blocked"]


def test_without_a_limit_all_run_that_fit() -> None:
    desk = Desk(4)
    assert starts(desk.submit(*array(4))) == ["x-0", "x-1", "x-2", "x-3"]


def test_with_a_limit_the_next_has_its_turn_when_one_is_over() -> None:
    desk = Desk(4)
    assert starts(desk.submit(*array(4, 2))) == ["x-0", "x-1"]
    assert desk.why("x-2", "turn") == "waits for its turn: at most 2 jobs of x at a time"
    assert not desk.wait(9 * HOUR)
    assert starts(desk.ended("x-1")) == ["x-2"]
    assert starts(desk.ended("x-0", code=1)) == ["x-3"]


def test_a_job_that_is_taken_up_late_was_submitted_when_its_array_was() -> None:
    desk = Desk(4)
    desk.wait(HOUR)
    early, late = (JobSubmitted(job(name), submitted_at=at) for name, at in (("a", 5.0), ("b", 2.0 * HOUR)))
    desk.tell(early, late)
    assert (desk["a"].submitted_at, desk["b"].submitted_at) == (5.0, HOUR), "never in the future"
    assert (desk["a"].queued_at, desk["b"].queued_at) == (HOUR, HOUR), "its wait begins now"


def test_a_turn_is_had_in_the_queue_and_in_the_cloud_too() -> None:
    desk = Desk(1)
    desk.submit(*array(4, 2))
    assert [desk.phase(f"x-{n}") for n in range(4)] == ["starting", "queued", "blocked", "blocked"]
    desk.wait(HOUR)
    assert [desk.phase(f"x-{n}") for n in range(4)] == ["starting", "offloading", "blocked", "blocked"]


def test_who_is_held_or_pauses_gives_its_turn_away() -> None:
    desk = Desk(1)
    desk.submit(*array(4, 2, retries=1))
    desk.hold("x-1")
    assert desk.phase("x-2") == "queued"
    assert starts(desk.ended("x-0", code=1)) == ["x-2"]
    assert desk.phase("x-3") == "queued"
    desk.wait(10)
    desk.release("x-1")
    assert sorted(blocked(desk)) == ["x-0", "x-1"]
    assert explain(desk.scheduler.state, desk["x-0"], str).sentence.startswith(
        "waits for its turn: at most 2 jobs of x"
    )


def test_one_that_waits_for_its_turn_can_be_cancelled() -> None:
    desk = Desk(1)
    desk.submit(*array(3, 1))
    desk.cancel("x-1")
    assert starts(desk.ended("x-0")) == ["x-2"]


def test_a_restart_goes_on_with_the_turns_and_decides_nothing_anew() -> None:
    desk = Desk(4)
    desk.submit(*array(5, 2))
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    again.handle(SiteSynced(Site.CLUSTER, frozenset({("x-0", 1), ("x-1", 1)})), 0.0)
    validate(again.state)
    assert not again.take_changes().decisions
    assert starts(again.handle([desk.end_of("x-0"), desk.end_of("x-1")], 1.0)) == ["x-2", "x-3"]


deeds = st.lists(st.tuples(st.sampled_from(["end", "fail", "hold", "release", "cancel"]), st.integers(0, 9)))


@settings(max_examples=40)
@given(st.integers(1, 4), deeds)
def test_whatever_happens_turns_are_kept_to_and_every_job_gets_one(at_once: int, script: list) -> None:
    desk = Desk(16)
    desk.submit(*array(10, at_once, retries=1, cloud="never"))
    for deed, number in script:
        name = f"x-{number}"
        if deed in ("hold", "release", "cancel"):
            getattr(desk, deed)(name)
        elif desk[name].alive:
            desk.ended(name, code=int(deed == "fail"))
        while desk[name].stop_why == "cancel" and desk[name].alive:
            desk.stopped(name)
    desk.release(*(f"x-{n}" for n in range(10)))
    while desk.scheduler.state.jobs:
        desk.wait(HOUR)
        alive = [name for name, record in desk.scheduler.state.jobs.items() if record.alive]
        assert 0 < len(alive) <= at_once
        desk.ended(alive[0])
    assert not desk.scheduler.state.turns.active()
