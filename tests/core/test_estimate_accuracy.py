"""Users whose jobs run for less than they estimate: what their next jobs wait, and what stays as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from starburst.core.model.estimates import certain_end
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.domain.job import Job
from tests.builders import HOUR, MINUTE, Desk, job, snapshot
from tests.core.capped import MACHINE, cap, cloud, reserved

#: Of ten jobs that ran for a tenth of their estimates: (10 · 0.1 + 3) / (10 + 3).
FACTOR = 0.308


def tried(
    desk: Desk, *, user: str = "ann", estimate_h: float | None = 10.0, limit_h: float | None = None
) -> Desk:
    """Ten jobs of this user have run for an hour each."""
    names = [f"{user}{n}" for n in range(10)]
    limit_s = None if limit_h is None else limit_h * HOUR
    jobs = [job(name, 0, hours=estimate_h, user=user, cloud="never") for name in names]
    desk.submit(*(replace(item, time_limit_s=limit_s) for item in jobs))
    desk.started(*names)
    desk.now += HOUR
    desk.tell(*(desk.end_of(name) for name in names))
    return desk


def waits(desk: Desk, name: str) -> tuple[float, str]:
    """Seconds that it may wait, and where its run time comes from."""
    numbers = desk.log(name, "waits")[0].numbers
    return numbers["wait_s"], numbers["estimated_by"]


def half(**settings: Any) -> Desk:
    """A cluster that is full, on which jobs may wait for half of their run time."""
    desk = tried(Desk(4, waiting="runtime", factor=0.5, **settings))
    desk.submit(job("busy", 4, cloud="never"))
    desk.started("busy")
    return desk


def test_the_next_job_of_that_user_waits_by_what_past_ones_ran() -> None:
    desk = half()
    desk.submit(job("a", hours=8, user="ann"))
    assert waits(desk, "a") == (pytest.approx(FACTOR * 4 * HOUR, rel=0.001), "user, corrected")
    assert desk.why("a", "waits") == (
        "waits up to 73.9 min for 1 GPU on the cluster (Runtime-Wait with 31% of the 8 h estimated, as past "
        "estimates of ann were too long: 2.46 h × k 0.5)"
    )


@pytest.mark.parametrize("user", ["ben", ""])
def test_nobody_else_is_judged_by_them(user: str) -> None:
    desk = half()
    desk.submit(job("a", hours=8, user=user))
    assert waits(desk, "a") == (4 * HOUR, "user")


def test_jobs_of_no_user_are_not_judged_by_one_another() -> None:
    desk = tried(Desk(4, waiting="runtime", factor=0.5), user="")
    desk.submit(job("busy", 4, cloud="never"), job("a", hours=8))
    assert waits(desk, "a") == (4 * HOUR, "user")


def test_a_job_is_held_to_its_limit_not_to_an_estimate_beyond_it() -> None:
    """Estimates of 10 h with limits of an hour, which the runs took, were right."""
    desk = Desk(4, waiting="runtime", factor=0.5)
    item = replace(job("first", hours=10, user="ann", cloud="never"), time_limit_s=HOUR)
    desk.submit(item)
    desk.started("first")
    desk.now = HOUR
    desk.ended("first")
    desk.submit(job("busy", 4, cloud="never"), job("a", hours=8, user="ann"))
    assert waits(desk, "a") == (4 * HOUR, "user")


def test_jobs_without_an_estimate_teach_nothing_of_estimates() -> None:
    desk = tried(Desk(4, waiting="runtime", factor=0.5), estimate_h=None)
    desk.submit(job("busy", 4, cloud="never"), job("a", hours=8, user="ann"))
    assert waits(desk, "a") == (4 * HOUR, "user")


def limited(name: str, limit_h: float, user: str, **more: Any) -> Job:
    """A job with a time limit."""
    return replace(job(name, user=user, **more), time_limit_s=limit_h * HOUR)


def test_of_a_time_limit_counts_what_jobs_of_that_user_run_for() -> None:
    """Ten jobs of an hour each had limits of 10 h: (10 · 0.1 · 8 h + 3 · 1 h) / 13."""
    desk = tried(Desk(4, waiting="runtime", factor=0.5), estimate_h=None, limit_h=10.0)
    desk.submit(job("busy", 4, cloud="never"))
    desk.submit(limited("a", 8, "ann"), limited("b", 8, "ben"), limited("c", 0.5, "ann"))
    assert waits(desk, "a") == (pytest.approx(0.846 * HOUR / 2, rel=0.001), "time limit, corrected")
    assert waits(desk, "b") == (HOUR / 2, "mean of past jobs of its size")
    assert waits(desk, "c") == (pytest.approx(0.154 * HOUR / 2, rel=0.005), "time limit, corrected")
    assert "Runtime-Wait with 11% of its time limit of 8 h, as past jobs of ann ran for less" in (
        desk.why("a", "waits")
    )


@pytest.mark.parametrize("more", [{"runtime_estimate_s": 0.0}, {"time_limit_s": 0.0}])
def test_an_estimate_or_a_limit_of_nothing_is_nothing(more: dict[str, float]) -> None:
    """Simulated estimates that are wrong by more than 100 % may be."""
    desk = tried(Desk(4, waiting="runtime", factor=0.5), limit_h=10.0)
    desk.submit(job("busy", 4, cloud="never"), replace(job("a", user="ann"), **more))
    assert waits(desk, "a")[0] == 0
    assert "Runtime-Wait: 0 s" in desk.log("a", "waits")[0].numbers["rule"]


def test_an_estimate_counts_before_a_limit() -> None:
    desk = tried(Desk(4, waiting="runtime", factor=0.5), estimate_h=1.0, limit_h=10.0)
    desk.submit(job("busy", 4, cloud="never"), limited("a", 8, "ann", hours=4.0))
    assert waits(desk, "a") == (2 * HOUR, "user")


def test_money_is_set_aside_for_no_less_than_past_jobs_of_its_size_ran() -> None:
    """Of the limit of half an hour 9 minutes are expected, but jobs of all users took an hour."""
    desk = tried(Desk(4, offers=(MACHINE,), caps=(cap(300),)), estimate_h=None, limit_h=10.0)
    desk.submit(replace(cloud("a", hours=None), user="ann", time_limit_s=HOUR / 2))
    assert reserved(desk) == pytest.approx(6)


def test_a_restart_forgets_nothing() -> None:
    desk = half()
    known = desk.scheduler.state.run_times.accuracies
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    validate(again.state)
    assert again.state.run_times.accuracies == known != {}


def test_the_store_is_told_of_the_users_of_the_step_only() -> None:
    desk = tried(Desk(4))
    desk.submit(job("b", hours=1, user="ben"))
    desk.started("b")
    desk.now += MINUTE
    again = desk.scheduler.handle([desk.end_of("b")], desk.now)
    assert not again
    assert set(desk.scheduler.take_changes().accuracies) == {"ben"}


def test_money_is_set_aside_for_the_whole_estimate() -> None:
    """A cap holds whatever estimates are worth; $10 an hour and a tenth of an hour to come up."""
    desk = tried(Desk(4, offers=(MACHINE,), caps=(cap(300),)))
    desk.submit(replace(cloud("a", hours=8), user="ann"))
    assert reserved(desk) == pytest.approx(81)


def test_the_price_of_leaving_is_what_is_expected() -> None:
    desk = half()
    desk.submit(job("a", hours=8, user="ann"))
    told = explain(desk.scheduler.state, desk["a"], str)
    assert "about $2.46 on small" in told.sentence


def test_who_waits_for_a_run_counts_on_the_corrected_end() -> None:
    """The run of 8 h is expected to last for 2.5: a wait of 3 h is not hopeless."""
    desk = tried(Desk(4, waiting="constant", factor=3 * HOUR, hopeless="leave"))
    desk.submit(job("long", 4, hours=8, user="ann", cloud="never"), job("other", hours=1))
    desk.started("long")
    assert certain_end(desk["long"], desk.now) == pytest.approx(desk.now + FACTOR * 8 * HOUR, rel=0.001)
    assert desk.phase("other") == "queued"


def test_who_may_pass_the_first_job_is_held_to_the_whole_estimate() -> None:
    """2 h before the first one can start, of 4 h 1.2 count."""
    desk = tried(Desk(4, out_of_order=False, backfill=True, waiting="infinite"))
    desk.submit(job("running", 1, hours=2))
    desk.started("running")
    desk.submit(job("head", 4, hours=1), job("a", hours=4, user="ann"), job("b", hours=2, user="ann"))
    assert (desk.phase("a"), desk.phase("b")) == ("queued", "starting")


def test_a_run_of_which_little_is_left_is_not_brought_home() -> None:
    """Of 4 h estimated 1.2 count: an hour of work would be done again for 14 min of rent."""
    desk = tried(Desk(1, waiting="no-wait", returns="if-it-pays", t_max_s=HOUR))
    desk.submit(job("busy"), job("a", hours=4, user="ann"))
    desk.started("busy")
    desk.offload("a")
    desk.wait(HOUR)
    assert desk.phase("a") == "running"
    assert desk.why("a", "stays-away") == (
        "stays in the cloud: coming home would repeat 1 h of work to save 13.9 min of rent"
    )
