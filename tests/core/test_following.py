"""After others: out of the queue until they are over, and over if it never can run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.events import JobSubmitted, RunEnd, SiteSynced
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.domain.job import Site
from tests.builders import HOUR, Desk, Watched, job, snapshot, starts


def test_it_waits_for_no_place_until_the_other_has_succeeded() -> None:
    desk = Desk(2)
    desk.submit(job("a"), job("b", after_ok=("a",)))
    assert starts(desk.actions) == ["a"]
    assert desk.why("b", "awaits") == "does not wait for a place yet: it comes after a if that succeeds"
    assert not desk.wait(9 * HOUR)
    assert starts(desk.ended("a")) == ["b"]


def test_its_wait_begins_when_the_last_of_them_is_over() -> None:
    desk = Desk(2)
    desk.submit(job("a"), job("b"), job("c", 2, after_ok=("a",), after_any=("b",)))
    desk.wait(HOUR)
    desk.ended("a")
    assert desk.phase("c") == "blocked"
    desk.submit(job("busy"))
    desk.ended("b", code=1)
    assert (desk.phase("c"), desk["c"].deadline) == ("queued", pytest.approx(2 * HOUR))


def test_after_a_failure_all_that_come_after_it_are_cancelled_each_with_its_reason() -> None:
    desk = Desk(1)
    desk.submit(
        job("a"), job("b", after_ok=("a",)), job("c", after_ok=("b",), hold=True), job("d", after_any=("c",))
    )
    assert starts(desk.ended("a", code=3)) == ["d"]
    assert [desk.phase(name) for name in "abc"] == ["failed", "cancelled", "cancelled"]
    assert desk["b"].message == "cancelled, as a, which it comes after, did not succeed"
    assert desk["c"].message == "cancelled, as b, which it comes after, did not succeed"


def test_a_retry_is_no_failure_yet() -> None:
    desk = Desk(1)
    desk.submit(job("a", retries=1), job("b", after_ok=("a",)))
    desk.ended("a", code=1)
    assert desk.phase("b") == "blocked"
    desk.wait(10)
    assert starts(desk.ended("a")) == ["b"]


def test_a_cancelled_job_dooms_its_followers_wherever_it_was() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b"), job("c", after_ok=("b",)))
    desk.cancel("b")
    assert desk.phase("c") == "cancelled"
    assert not desk.scheduler.state.dependants


def test_one_of_those_that_are_over_already_counts_as_it_ended() -> None:
    desk = Desk(1)
    desk.tell(
        *(
            JobSubmitted(job(name, cloud="never", **{after: (other,)}), ((other, phase),))
            for name, after, other, phase in (
                ("d", "after_not_ok", "bad", "failed"),
                ("e", "after_not_ok", "old", "succeeded"),
                ("f", "after_start", "bad", "cancelled"),
            )
        )
    )
    assert [desk.phase(name) for name in "def"] == ["starting", "cancelled", "queued"]
    desk.cancel("d")
    desk.cancel("f")
    desk.stopped("d")
    past = (("old", "succeeded"), ("bad", "failed"))
    after = {"a": {"after_ok": ("old",)}, "b": {"after_ok": ("bad",)}, "c": {"after_any": ("bad",)}}
    desk.tell(*(JobSubmitted(job(name, **more), past) for name, more in after.items()))
    assert [desk.phase(name) for name in "abc"] == ["starting", "cancelled", "queued"]


def test_what_is_for_a_failure_runs_after_one_and_is_cancelled_after_a_success() -> None:
    desk = Desk(2)
    desk.submit(job("a"), job("b"), job("mend", after_not_ok=("a",)), job("alarm", after_not_ok=("a", "b")))
    assert desk.why("mend", "awaits") == (
        "does not wait for a place yet: it comes after a if that does not succeed"
    )
    assert desk.why("alarm", "awaits").endswith("it comes after a, b if none of them succeeds")
    assert starts(desk.ended("a", code=3)) == ["mend"]
    assert not starts(desk.ended("b"))
    assert desk["alarm"].message == "cancelled, as b, which it comes after, succeeded"


def test_a_cancelled_job_did_not_succeed() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b"), job("c", after_not_ok=("b",), cloud="never"))
    desk.cancel("b")
    assert desk.phase("c") == "queued"


def test_what_comes_after_a_start_waits_for_no_end() -> None:
    desk = Desk(2)
    desk.submit(job("a"), job("b", after_start=("a",)), job("c", after_start=("a",), after_any=("a",)))
    assert desk.why("b", "awaits") == "does not wait for a place yet: it comes after a once that has started"
    assert (desk.phase("a"), desk.phase("b")) == ("starting", "blocked")
    assert starts(desk.started("a")) == ["b"]
    assert desk.phase("c") == "blocked"
    desk.submit(job("d", after_start=("a", "b"), cloud="never"))
    assert desk["d"].awaits == ("b",)
    desk.started("b")
    assert desk.phase("d") == "queued"
    assert starts(desk.ended("a")) == ["c"]


def test_what_comes_after_a_start_may_go_when_the_other_is_cancelled_instead() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b", cloud="never"), job("c", after_start=("b",), cloud="never"))
    desk.cancel("b")
    assert desk.phase("c") == "queued"
    assert not desk.scheduler.state.dependants


def test_a_restart_knows_what_has_started() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b", after_start=("a",), cloud="never"), job("c", after_not_ok=("a",)))
    desk.started("a")
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    again.handle(SiteSynced(Site.CLUSTER, frozenset({("a", 1)})), 0.0)
    assert [again.state.jobs[name].phase.value for name in "bc"] == ["queued", "blocked"]
    assert starts(again.handle(desk.end_of("a", code=1), 1.0)) == ["b"]


def test_one_that_ends_in_the_very_step_in_which_its_follower_comes() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.tell(JobSubmitted(job("b", after_ok=("a",))), desk.end_of("a"))
    assert desk.phase("b") == "starting"


def test_held_it_stays_held_when_it_is_free() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b", after_ok=("a",)))
    desk.hold("b")
    assert not desk.ended("a")
    assert desk.phase("b") == "held"
    assert starts(desk.release("b")) == ["b"]


def test_explain_says_how_those_stand_that_it_waits_for() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b"), job("c", after_ok=("a",), after_any=("b",)))
    told = explain(desk.scheduler.state, desk["c"], str).sentence
    assert told == (
        "does not wait for a place yet: it comes after a if that succeeds and b, however that ends; "
        "a is starting, b is queued"
    )


def test_a_restart_knows_who_comes_after_whom() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b", after_ok=("a",)))
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    again.handle(SiteSynced(Site.CLUSTER, frozenset({("a", 1)})), 0.0)
    assert starts(again.handle(desk.end_of("a"), 1.0)) == ["b"]


#: For each job: which earlier ones it comes after, if they succeed or at all, and whether it succeeds.
plans = st.lists(
    st.tuples(st.frozensets(st.integers(0, 9)), st.frozensets(st.integers(0, 9)), st.booleans()),
    min_size=1,
    max_size=10,
)


@settings(max_examples=30)
@given(plans)
def test_each_runs_if_and_only_if_it_may_and_after_all_that_it_comes_after(plan: list[tuple]) -> None:
    desk = Desk(16)
    ok = [tuple(f"j{n}" for n in sorted(some) if n < number) for number, (some, _, _) in enumerate(plan)]
    any_ = [tuple(f"j{n}" for n in sorted(some) if n < number) for number, (_, some, _) in enumerate(plan)]
    jobs = (
        job(f"j{number}", after_ok=ok[number], after_any=any_[number], cloud="never")
        for number in range(len(plan))
    )
    desk.submit(*jobs)
    assert isinstance(desk.scheduler, Watched)
    order: list[str] = []
    while running := [name for name, record in desk.scheduler.state.jobs.items() if record.alive]:
        name = running[-1]
        assert not {*desk[name].job.after_ok, *desk[name].job.after_any} & set(desk.scheduler.state.jobs)
        order.append(name)
        desk.ended(name, RunEnd.EXITED, 0 if plan[int(name[1:])][2] else 1)
    assert not desk.scheduler.state.jobs
    for number, (_, _, good) in enumerate(plan):
        runs = all(desk.phase(name) == "succeeded" for name in ok[number])
        expected = ("succeeded" if good else "failed") if runs else "cancelled"
        assert desk.phase(f"j{number}") == expected
        assert (f"j{number}" in order) == runs
