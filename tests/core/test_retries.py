"""A command that fails soon after its start, in the cloud: its pauses, what it may cost, what is said."""

from __future__ import annotations

import pytest

from starburst.core.model.actions import StartRun, TerminateInstance
from starburst.core.model.events import (
    Event,
    InstanceReady,
    InstanceUnfit,
    InstanceUnreachable,
    RunStalled,
    SiteSynced,
    Tick,
)
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.domain.job import Job, Site
from starburst.domain.money import Money
from starburst.policy.backoff import MOST_RENTED_S
from starburst.policy.caps import Cap
from starburst.store.rows import job_progress
from tests.builders import HOUR, MINUTE, Desk, job, launches, snapshot
from tests.core.capped import cap, capped, cloud

BOOT_S = 6 * MINUTE


def starts(desk: Desk) -> None:
    """The job's machine comes up after `BOOT_S`, unless it is there already, and the job starts on it."""
    (name,) = desk.instances
    if desk.phase("a") == "offloading":
        desk.wait(BOOT_S)
        desk.tell(InstanceReady(name, desk.now - BOOT_S, None))
    desk.started("a")


def fails(desk: Desk, after_s: float = 1.0) -> None:
    """The command fails; a machine that is given back is gone at once."""
    desk.wait(after_s)
    desk.ended("a", code=1)
    for action in desk.actions:
        if isinstance(action, TerminateInstance):
            desk.gone(action.instance_id)


def tries(desk: Desk, job_: Job, *, most: int = 100, after_s: float = 1.0) -> int:
    """Let the job fail until it is over; how often it was tried."""
    desk.submit(job_)
    for number in range(1, most + 1):
        starts(desk)
        fails(desk, after_s)
        if desk.phase("a") == "failed":
            return number
        desk.wait(desk["a"].not_before - desk.now)
    raise AssertionError("it is tried for ever")


def test_failures_in_the_cloud_pause_longer_and_longer_up_to_an_hour() -> None:
    desk = capped()
    tries(desk, cloud("a", retries=11))
    pauses = [row.numbers["pause_s"] for row in desk.log("a", "retries")]
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, MOST_RENTED_S, MOST_RENTED_S]


def test_a_machine_is_kept_for_the_next_try_as_long_as_another_would_take_to_come_up() -> None:
    """Six minutes: pauses of 10 s to 320 s. Seven tries share one machine, each later one rents its own."""
    desk = capped()
    assert tries(desk, cloud("a", retries=9)) == 10
    assert len(desk.log("i-000001", "launched")) == 1
    kept = [bool(row.numbers.get("on")) for row in desk.log("a", "retries")]
    assert kept == [True] * 6 + [False] * 3
    assert desk.scheduler.state.fleet.launches == 4
    assert not desk.instances


def test_what_fails_soon_again_and_again_is_over_when_that_has_cost_the_bound() -> None:
    """$10 an hour: a dollar until the first failure, $1.75 for the pauses there, a dollar for the next."""
    desk = capped(max_failing=Money.of(3))
    assert tries(desk, cloud("a", retries=50)) == 8
    assert desk.why("a", "failed") == (
        "its command ended with exit code 1 soon after its start (try 8 of 51); such tries have cost $3.77, "
        "and cloud.max_usd_on_failures is $3.00"
    )
    assert not desk.instances
    assert desk["a"].cloud_micro_usd >= Money.of(3).micro_usd


def test_the_cost_is_said_while_the_job_pauses_also_after_a_restart() -> None:
    desk = capped(max_failing=Money.of(3))
    desk.submit(cloud("a", retries=50))
    starts(desk)
    fails(desk)
    assert desk.why("a", "retries") == (
        "fails (exit 1); try 2 of 51 in 10 s on i-000001, which is kept for it; its tries that failed soon "
        "have cost $1.00"
    )
    for scheduler in (desk.scheduler, restore(desk.scheduler.state.settings, snapshot(desk.scheduler))):
        said = explain(scheduler.state, scheduler.state.jobs["a"], lambda at: f"{at:.0f}").sentence
        assert said == (
            "pauses before try 2 of 51, as its last run failed; its tries that failed soon have cost $1.00 "
            "of at most $3.00 (cloud.max_usd_on_failures); until 371 i-000001 (m, $10.00/h) is kept for it"
        )


def test_a_listing_says_the_cost_until_the_next_try_begins() -> None:
    desk = capped(max_failing=Money.of(30))
    desk.submit(cloud("a", retries=50))
    for number in range(2, 10):  # the machine is kept at first; at last each try rents one
        starts(desk)
        assert desk["a"].message == ""
        fails(desk)
        cost = Money(desk["a"].failing_micro_usd)
        assert desk["a"].message == (
            f"pauses before try {number} of 51, as its last run failed; its tries that failed soon have "
            f"cost {cost}"
        )
        if number < 9:
            desk.wait(desk["a"].not_before - desk.now)
    assert desk.phase("a") == "blocked"
    record = desk["a"]
    assert explain(desk.scheduler.state, record, str).sentence == (
        f"{record.message} of at most $30.00 (cloud.max_usd_on_failures); until {record.not_before}"
    )


def test_a_cloud_job_whose_image_is_not_to_be_had_says_so_and_what_its_machine_costs() -> None:
    desk = capped()
    desk.submit(cloud("a"))
    desk.wait(BOOT_S)
    desk.tell(InstanceReady(*desk.instances, desk.now - BOOT_S, None))
    why = "ImagePullBackOff: Back-off pulling image; pulled again after 20 s"
    desk.tell(RunStalled("a", 1, why))
    said = explain(desk.scheduler.state, desk["a"], lambda at: f"{at:.0f}").sentence
    assert said == (
        "is being started in the cloud on i-000001 (m), 6 min after it was submitted; $1.00 so far at "
        f"$10.00/h; held up: {why}"
    )
    assert job_progress(desk["a"])["message"] == why
    desk.started("a")
    assert job_progress(desk["a"])["message"] == ""


def test_a_run_that_failed_after_long_work_does_not_count() -> None:
    desk = capped(max_failing=Money.of(3))
    assert tries(desk, cloud("a", retries=9), after_s=HOUR) == 10
    assert desk["a"].cloud_micro_usd > Money.of(90).micro_usd
    assert desk["a"].failing_micro_usd == 0


def test_work_that_earlier_runs_saved_does_not_make_a_run_that_fails_at_once_a_long_one() -> None:
    """An hour with checkpoints, queued again by its user; since then its command fails at once."""
    desk = capped(max_failing=Money.of(3))
    desk.submit(cloud("a", hours=9.0, checkpoint=True, retries=50))
    starts(desk)
    desk.wait(HOUR)
    desk.requeue("a")
    desk.stopped("a")
    desk.gone("i-000001")
    assert desk["a"].saved_s == HOUR
    for _ in range(12):
        starts(desk)
        fails(desk)
        if desk.phase("a") == "failed":
            break
        desk.wait(desk["a"].not_before - desk.now)
    assert "such tries have cost $3.77" in desk.why("a", "failed")


def test_what_was_lost_before_a_first_failure_is_not_counted_as_its_cost() -> None:
    """Ten hours on a spot machine that is taken away, then a command that fails at once."""
    desk = capped(max_failing=Money.of(3))
    desk.submit(cloud("a", retries=2))
    starts(desk)
    desk.wait(10 * HOUR)
    desk.gone(desk.instances[0], preempted=True)
    starts(desk)
    fails(desk)
    assert desk["a"].failing_micro_usd < Money.of(2).micro_usd


def pausing(*caps: Cap) -> Desk:
    """The job has failed once, and its machine is kept for the next try."""
    desk = capped(*caps)
    desk.submit(cloud("a", hours=0.001, retries=3))
    starts(desk)
    fails(desk)
    assert desk.instances == ["i-000001"]
    return desk


def test_a_restart_in_the_pause_keeps_the_machine_and_starts_there_at_its_end() -> None:
    desk = pausing()
    scheduler = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    scheduler.handle(SiteSynced(Site.CLOUD, frozenset(), frozenset({"i-000001"})), desk.now)
    assert scheduler.next_wakeup() == desk["a"].not_before
    (run,) = scheduler.handle(Tick(), desk["a"].not_before)
    assert isinstance(run, StartRun)
    assert (run.attempt, run.slots[0].where) == (2, "i-000001")


def test_a_job_that_is_cancelled_in_its_pause_gives_its_machine_back() -> None:
    desk = pausing()
    assert desk.cancel("a") == [TerminateInstance("i-000001")]
    assert desk.phase("a") == "cancelled"


def test_a_machine_that_goes_in_the_pause_is_replaced() -> None:
    desk = pausing()
    desk.gone("i-000001", preempted=True)
    assert desk.phase("a") == "offloading"
    assert desk.instances == ["i-000002"]
    assert not desk.wait(MINUTE)  # the end of the pause starts nothing on a machine that is not up


@pytest.mark.parametrize("trouble", [InstanceUnreachable("i-000001"), InstanceUnfit("i-000001", "no GPUs")])
def test_a_machine_in_trouble_at_the_end_of_the_pause_is_given_back(trouble: Event) -> None:
    desk = pausing()
    desk.tell(trouble)
    assert TerminateInstance("i-000001") in desk.wait(10)
    assert desk["a"].attempt == 1


def test_a_cap_that_is_spent_in_the_pause_takes_the_machine() -> None:
    desk = pausing(cap(1.02))
    assert desk.wait(10) == [TerminateInstance("i-000001")]
    assert desk.phase("a") == "queued"


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
