"""What a run says of itself takes the place of what was estimated of it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from starburst.core.model.events import Progress
from starburst.core.model.jobs import JobRecord
from starburst.core.steps.offload import busy_until
from starburst.core.views.explain import explain
from starburst.store import codec
from tests.builders import HOUR, MINUTE, Desk, job, offer, starts, stops


def says(desk: Desk, name: str, left_s: float, attempt: int = 1) -> None:
    """It reports that so much is left: it does one iteration a second."""
    desk.tell(Progress(name, attempt, done=100.0, total=100.0 + left_s, per_s=1.0))


def test_it_is_known_when_the_run_ends_and_nothing_is_decided_for_that() -> None:
    desk = Desk(1)
    desk.submit(job("a", hours=2))
    desk.started("a")
    said = len(desk.scheduler.log)
    desk.wait(MINUTE)
    says(desk, "a", 5 * MINUTE)
    assert desk["a"].ends_at == 6 * MINUTE
    assert len(desk.scheduler.log) == said
    sentence = explain(desk.scheduler.state, desk.scheduler.state.jobs["a"], str).sentence
    assert "by its own account until about 360" in sentence


@pytest.mark.parametrize(
    "report",
    [
        Progress("a", 2, 1, 2, 1.0),
        Progress("b", 1, 1, 2, 1.0),
        Progress("a", 1, 3, 2, 1.0),
        Progress("a", 1, -1, 2, 1.0),
        Progress("a", 1, 1, 2, 0.0),
        Progress("a", 1, 1, 2, float("nan")),
        Progress("a", 1, 1, float("inf"), 1.0),
        Progress("a", 1, 1, 1e15, 1e-12),
    ],
)
def test_of_another_attempt_or_of_no_sense_it_changes_nothing(report: Progress) -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    before = deepcopy(desk["a"])
    desk.tell(report)
    assert desk.scheduler.state.jobs["a"] == before


def test_a_new_attempt_has_said_nothing_yet() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    says(desk, "a", HOUR)
    desk.lost("a")
    assert (desk["a"].attempt, desk["a"].ends_at) == (2, None)


def away(**settings: Any) -> Desk:
    """ "busy" has the cluster's one GPU; "a", of an hour by its user, runs in the cloud. T_max is 15 min."""
    told = {"waiting": "no-wait", "returns": "if-it-pays", "t_max_s": 15 * MINUTE, **settings}
    desk = Desk(1, **told)
    desk.submit(job("busy"), job("a", hours=1))
    desk.started("busy")
    desk.offload("a")
    return desk


def test_a_cloud_run_that_is_all_but_done_does_not_come_home_whatever_its_user_thought() -> None:
    desk = away()
    desk.ended("busy")
    desk.wait(14 * MINUTE)
    says(desk, "a", 5 * MINUTE)
    assert not stops(desk.wait(MINUTE))
    assert "to save 4 min of rent" in desk.why("a", "stays-away")


def test_one_that_has_hours_to_go_does_come_home() -> None:
    desk = away()
    desk.submit(job("other", hours=0.2), job("b", hours=0.2))
    desk.ended("busy")
    desk.wait(14 * MINUTE)
    says(desk, "a", 3 * HOUR)
    desk.wait(MINUTE)
    assert "about 2.98 h still to run" in desk.why("a", "returning")


def test_backfill_goes_by_what_runs_say() -> None:
    desk = Desk(2, out_of_order=False, backfill=True)
    desk.submit(job("a", 1, hours=1))
    desk.started("a")
    desk.submit(job("wide", 2, hours=1))
    assert not starts(desk.submit(job("long", 1, hours=2)))
    says(desk, "a", 4 * HOUR)
    assert desk.phase("long") == "running" or starts(desk.actions) == ["long"]


def test_until_when_a_machine_is_needed_is_what_its_jobs_say() -> None:
    desk = Desk(0, offers=[offer("big", 4)], waiting="no-wait")
    desk.submit(job("a", hours=1))
    desk.offload("a")
    (machine,) = desk.scheduler.state.fleet.instances
    assert busy_until(desk.scheduler.state) == {machine: desk.now + HOUR}
    says(desk, "a", 3 * HOUR)
    assert busy_until(desk.scheduler.state) == {machine: desk.now + 3 * HOUR}


def test_who_waits_is_not_told_to_go_on_hoping_when_the_run_before_it_takes_longer() -> None:
    desk = Desk(1, waiting="constant", factor=HOUR, hopeless="leave")
    desk.submit(job("a", hours=0.5))
    desk.started("a")
    desk.submit(job("b"))
    assert desk.phase("b") == "queued"
    says(desk, "a", 2 * HOUR)
    assert desk.phase("b") == "offloading"


def test_it_survives_a_restart() -> None:
    record = JobRecord(job("a"), 1, 0.0, ends_at=7.5)
    assert codec.decode(JobRecord, codec.encode(record)) == record
    old = codec.encode(record).replace(',"ends_at":7.5', "")
    assert codec.decode(JobRecord, old).ends_at is None
