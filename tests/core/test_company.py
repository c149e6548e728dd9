"""How fast jobs run beside each other is learnt from what they report, and decides who shares machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from starburst.core.model.events import Progress
from starburst.core.steps.interference import AGAIN_S, SETTLED_S
from starburst.core.steps.progress import is_news
from starburst.core.views.restoring import restore
from starburst.domain.cloud import Offer
from starburst.domain.job import Job
from starburst.policy.packing.throughput import throughputs
from tests.builders import HOUR, Desk, job, launches, offer, snapshot

BIG, SMALL = offer("big", 4, 3), offer("small", 2, 2)


def cloud_job(name: str, gpus: int = 2, **more: Any) -> Job:
    return job(name, gpus, cloud="only", hours=more.pop("hours", 10), **more)


def report(desk: Desk, name: str, per_s: float) -> bool:
    """A job reports its rate; whether that was worth a step."""
    event = Progress(name, desk[name].attempt, 1.0, None, per_s)
    news = is_news(desk.scheduler.state, event, desk.now)
    if news:
        desk.tell(event)
    return news


def pair(desk: Desk, workload: str, beside: str) -> float:
    """What is known of a workload beside another."""
    return throughputs(desk.scheduler.state.fleet.speeds.table, [workload, beside])[0]


def together(*jobs: Job, offers: Sequence[Offer] = (BIG, SMALL)) -> Desk:
    """Jobs that fit one machine run there, for long enough that what they report counts."""
    desk = Desk(offers=offers, packer="eva")
    desk.submit(*jobs)
    assert desk.instances == ["i-000001"]
    desk.ready("i-000001")
    desk.started(*(each.id for each in jobs))
    desk.now += SETTLED_S
    return desk


def test_a_rate_beside_others_counts_as_a_share_of_the_rate_alone() -> None:
    desk = together(cloud_job("a", alone_per_s=10.0), cloud_job("b", alone_per_s=4.0))
    assert (pair(desk, "a", "b"), pair(desk, "b", "a")) == (1.0, 1.0), "nobody has seen them yet"
    assert report(desk, "a", 5.0)
    assert report(desk, "b", 3.0)
    assert (pair(desk, "a", "b"), pair(desk, "b", "a")) == (0.5, 0.75)


def test_the_rate_alone_is_seen_where_a_job_has_its_machine_to_itself() -> None:
    desk = together(cloud_job("a", workload="train"), offers=[BIG])
    assert report(desk, "a", 10.0)
    desk.submit(cloud_job("b", hours=1, workload="other"))  # joins it
    assert desk.nodes_of("b") == ["i-000001"]
    desk.started("b")
    desk.now += SETTLED_S
    report(desk, "a", 8.0)
    assert pair(desk, "train", "other") == 0.8


def test_what_was_seen_on_these_gpus_counts_more_than_what_its_user_measured() -> None:
    desk = together(cloud_job("a", alone_per_s=100.0), offers=[BIG])
    report(desk, "a", 10.0)
    desk.submit(cloud_job("b", hours=1))
    desk.started("b")
    desk.now += SETTLED_S
    report(desk, "a", 9.0)
    assert pair(desk, "a", "b") == 0.9


def test_who_was_never_alone_and_was_not_measured_teaches_nothing() -> None:
    desk = together(cloud_job("a"), cloud_job("b"))
    assert not report(desk, "a", 5.0)


def test_a_report_counts_only_when_nobody_has_come_or_gone_for_a_while() -> None:
    desk = together(cloud_job("a", 1, alone_per_s=10.0), cloud_job("b", 3))
    desk.ended("b")
    desk.now += SETTLED_S - 1
    assert not report(desk, "a", 10.0)
    desk.submit(cloud_job("c", 3, hours=1))
    desk.now += 1
    desk.started("c")
    assert not report(desk, "a", 7.0), "its window reaches back to before c began"
    desk.now += SETTLED_S
    assert report(desk, "a", 5.0)
    assert (pair(desk, "a", "b"), pair(desk, "a", "c")) == (1.0, 0.5)


def test_a_job_whose_company_stays_the_same_is_looked_at_every_so_often_only() -> None:
    desk = together(cloud_job("a", alone_per_s=10.0), cloud_job("b"))
    assert report(desk, "a", 5.0)
    desk.now += AGAIN_S - 1
    assert not report(desk, "a", 6.0)
    desk.now += 1
    assert report(desk, "a", 6.0)
    assert 0.5 < pair(desk, "a", "b") < 0.6, "older observations count, too"


def test_on_the_cluster_nothing_is_learnt() -> None:
    desk = Desk(4, packer="eva")
    desk.submit(job("a", alone_per_s=10.0), job("b"))
    desk.started("a", "b")
    desk.now += SETTLED_S
    assert not report(desk, "a", 5.0)


def test_where_machines_are_not_shared_nothing_is_learnt() -> None:
    desk = Desk(offers=[BIG])
    desk.submit(cloud_job("a"))
    desk.offload("a")
    desk.now += SETTLED_S
    assert not report(desk, "a", 5.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_what_cannot_be_teaches_nothing(bad: float) -> None:
    desk = together(cloud_job("a", alone_per_s=10.0), cloud_job("b"))
    assert not report(desk, "a", bad)
    desk.tell(Progress("a", 1, 1.0, None, bad))
    assert pair(desk, "a", "b") == 1.0


def test_jobs_that_disturb_each_other_too_much_get_machines_of_their_own() -> None:
    """At half speed each, the large machine does for $3/h what the small ones do for $2/h."""
    desk = together(
        cloud_job("a", alone_per_s=10.0, workload="x"), cloud_job("b", alone_per_s=10.0, workload="y")
    )
    report(desk, "a", 5.0)
    report(desk, "b", 5.0)
    more = cloud_job("c", workload="x"), cloud_job("d", workload="y")
    assert launches(desk.submit(*more)) == ["small", "small"]
    others = cloud_job("e", workload="v"), cloud_job("f", workload="w")
    assert launches(desk.submit(*others)) == ["big"], "of whom nothing is known"


def test_nobody_joins_a_machine_that_would_do_less_with_it() -> None:
    desk = together(
        cloud_job("a", 1, alone_per_s=10.0, workload="x"),
        cloud_job("b", 3, hours=1, alone_per_s=10.0, workload="y"),
    )
    report(desk, "a", 2.0)
    report(desk, "b", 2.0)
    desk.now = HOUR
    desk.ended("b")
    desk.submit(cloud_job("c", 2, hours=1, workload="y"))
    assert desk.nodes_of("c") == ["i-000002"]
    desk.submit(cloud_job("d", 2, hours=1, workload="z"))
    assert desk.nodes_of("d") == ["i-000001"], "of which nothing is known"


def test_a_restart_forgets_nothing_of_it() -> None:
    desk = together(cloud_job("a", alone_per_s=10.0), cloud_job("b"))
    report(desk, "a", 5.0)
    kept = snapshot(desk.scheduler)
    again = restore(desk.scheduler.state.settings, kept)
    assert again.state.fleet.speeds.snapshot() == desk.scheduler.state.fleet.speeds.snapshot()
    assert throughputs(again.state.fleet.speeds.table, ["a", "b"]) == [0.5, 1.0]
