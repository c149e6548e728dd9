"""A command that fails soon after its start, in the cloud: its pauses, what it may cost, what is said."""

from __future__ import annotations

from starburst.core.model.events import InstanceReady
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.domain.job import Job
from starburst.domain.money import Money
from starburst.policy.backoff import MOST_RENTED_S
from tests.builders import HOUR, MINUTE, Desk, job, launches, snapshot
from tests.core.capped import capped, cloud

BOOT_S = 6 * MINUTE


def rents(desk: Desk) -> None:
    """What was asked for comes up after `BOOT_S`, and the job starts on it."""
    desk.wait(BOOT_S)
    (name,) = desk.instances
    desk.tell(InstanceReady(name, desk.now - BOOT_S, None))
    desk.started("a")


def fails(desk: Desk, after_s: float = 1.0) -> None:
    """The command fails, and its machine is gone at once."""
    desk.wait(after_s)
    desk.ended("a", code=1)
    for name in desk.instances:
        desk.gone(name)


def tries(desk: Desk, job_: Job, *, most: int = 100, after_s: float = 1.0) -> int:
    """Let the job fail until it is over; how often it was tried."""
    desk.submit(job_)
    for number in range(1, most + 1):
        rents(desk)
        fails(desk, after_s)
        if desk.phase("a") == "failed":
            return number
        assert desk.phase("a") == "blocked"
        desk.wait(max(0.0, desk["a"].not_before - desk.now))
    raise AssertionError("it is tried for ever")


def test_failures_in_the_cloud_pause_longer_and_longer_up_to_an_hour() -> None:
    desk = capped()
    tries(desk, cloud("a", retries=11))
    pauses = [row.numbers["pause_s"] for row in desk.log("a", "retries")]
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, MOST_RENTED_S, MOST_RENTED_S]


def test_what_fails_soon_again_and_again_is_over_when_that_has_cost_the_bound() -> None:
    """$10 an hour and six minutes to come up: about a dollar a try."""
    desk = capped(max_failing=Money.of(3))
    assert tries(desk, cloud("a", retries=50)) == 3
    assert desk.why("a", "failed") == (
        "its command ended with exit code 1 soon after its start (try 3 of 51); such tries have cost $3.01, "
        "and cloud.max_usd_on_failures is $3.00"
    )
    assert desk["a"].cloud_micro_usd >= Money.of(3).micro_usd


def test_the_cost_is_said_while_the_job_pauses_also_after_a_restart() -> None:
    desk = capped(max_failing=Money.of(3))
    desk.submit(cloud("a", retries=50))
    rents(desk)
    fails(desk)
    assert desk.why("a", "retries") == (
        "fails (exit 1); try 2 of 51 in 10 s; its tries that failed soon have cost $1.00"
    )
    for scheduler in (desk.scheduler, restore(desk.scheduler.state.settings, snapshot(desk.scheduler))):
        said = explain(scheduler.state, scheduler.state.jobs["a"], lambda at: f"{at:.0f}").sentence
        assert said == (
            "pauses before try 2 of 51, as its last run failed; until 371; its tries that failed soon have "
            "cost $1.00 of at most $3.00 (cloud.max_usd_on_failures)"
        )


def test_a_run_that_failed_after_long_work_does_not_count() -> None:
    desk = capped(max_failing=Money.of(3))
    assert tries(desk, cloud("a", retries=9), after_s=HOUR) == 10
    assert desk["a"].cloud_micro_usd > Money.of(90).micro_usd
    assert desk["a"].failing_micro_usd == 0


def test_what_was_lost_before_a_first_failure_is_not_counted_as_its_cost() -> None:
    """Ten hours on a spot machine that is taken away, then a command that fails at once."""
    desk = capped(max_failing=Money.of(3))
    desk.submit(cloud("a", retries=2))
    rents(desk)
    desk.wait(10 * HOUR)
    desk.gone(desk.instances[0], preempted=True)
    desk.wait(1)
    rents(desk)
    fails(desk)
    assert desk.phase("a") == "blocked"
    assert desk["a"].failing_micro_usd < Money.of(2).micro_usd


def test_on_the_cluster_pauses_are_those_of_kubernetes_and_nothing_is_counted() -> None:
    desk = Desk(4, max_failing=Money.of(0))
    desk.submit(job("a", 4, cloud="never", retries=12))
    for _ in range(12):
        desk.started("a")
        desk.wait(1)
        assert not launches(desk.ended("a", code=1))
        desk.wait(max(0.0, desk["a"].not_before - desk.now))
    assert max(row.numbers["pause_s"] for row in desk.log("a", "retries")) == 360
    assert desk["a"].failing_micro_usd == 0
