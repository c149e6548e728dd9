"""A run ended when its pods say, if that is long ago; what is noticed at once ended now."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clusters.kubernetes.runs.end_times import LATE_S, EndTimes
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.clock import Pace
from starburst.kube import names
from tests.clusters.kubernetes.run_reader import ADOPTED, Reader, View
from tests.clusters.kubernetes.scene import Scene, play
from tests.clusters.kubernetes.views import a_job, a_pod, failed, marked, running, succeeded

#: Epoch seconds.
NOW = 1_700_000_000.0
HOUR = 3600.0
THEN = NOW - HOUR


def end(*views: View, scheduler: EndTimes | None = None, restarts: bool = False) -> RunEnded:
    """The one end that a Starburst tells which comes up now and finds these."""
    reader = Reader(end_times=scheduler or EndTimes(lambda: NOW), restarts=restarts)
    (told,) = [event for event in reader.see(*views) if isinstance(event, RunEnded)]
    return told


@pytest.mark.parametrize(
    ("ago_s", "told"),
    [(HOUR, THEN), (LATE_S, NOW - LATE_S), (LATE_S - 1, None), (0.0, None), (-HOUR, None)],
    ids=["long ago", "a minute ago", "just now", "now", "by a clock that is fast"],
)
def test_what_is_noticed_at_once_ended_now_and_what_is_not_ended_then(
    ago_s: float, told: float | None
) -> None:
    job = a_job(end="Complete", ended_pods=1)
    pod = replace(succeeded(a_pod(job=job)), ended_at=NOW - ago_s)
    assert end(job, pod) == RunEnded("a", 1, RunEnd.EXITED, 0, ended_at=told)


def test_it_is_told_in_the_seconds_of_the_scheduler() -> None:
    job = a_job(end="Complete", ended_pods=1)
    pod = replace(succeeded(a_pod(job=job)), ended_at=THEN)
    pace = Pace(origin=NOW - 2 * HOUR, speed=60.0, start=0.0)
    assert end(job, pod, scheduler=EndTimes(lambda: NOW, pace.scheduler_time)).ended_at == 60 * HOUR


def test_a_gang_ended_with_the_last_of_its_pods() -> None:
    job = a_job(end="Complete", parallelism=2, completions=2, ended_pods=2)
    one, two = (succeeded(a_pod(name, job)) for name in ("one", "two"))
    assert end(job, replace(one, ended_at=THEN), replace(two, ended_at=THEN - 9)).ended_at == THEN
    assert end(job, replace(one, ended_at=THEN), two).ended_at is None, "that of the other is not known"


def test_a_retry_of_the_job_controller_counts_with_the_last_of_its_pods() -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded", ended_pods=2, ended_at=THEN + 5)
    first, last = (failed(a_pod(name, job), ended_at=at) for name, at in (("a", THEN - HOUR), ("b", THEN)))
    assert end(job, first, last).ended_at == THEN


def test_if_a_pod_is_gone_it_ended_when_its_job_was_told_to_be_over() -> None:
    """The first try failed long before; the second ran into the time limit, and was deleted."""
    job = a_job(end="Failed", end_reason="DeadlineExceeded", ended_pods=2, ended_at=THEN)
    assert end(job, failed(a_pod("first", job), ended_at=THEN - HOUR)).ended_at == THEN
    assert end(job).ended_at == THEN


def test_so_did_one_whose_containers_were_restarted_in_place_too_often() -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded", ended_pods=1, ended_at=THEN)
    assert end(job, restarts=True) == RunEnded("a", 1, RunEnd.EXITED, 1, ended_at=THEN)


def test_without_any_time_it_ended_now() -> None:
    job = a_job(end="Complete", ended_pods=1)
    assert end(job, succeeded(a_pod(job=job))).ended_at is None
    assert end(a_job(end="Complete")).ended_at is None


def test_a_bare_pod_ended_with_its_containers() -> None:
    alone = a_pod("a-1", labels=a_job().labels, annotations={**a_job().annotations, **ADOPTED})
    alone = replace(alone, labels={**alone.labels, names.JOB: adopted_id(alone.name, alone.uid)})
    assert end(replace(succeeded(alone), ended_at=THEN)).ended_at == THEN
    assert end(succeeded(alone)).ended_at is None


def test_a_run_that_was_ended_and_whose_job_is_not_over_ended_now() -> None:
    """A try of it that failed before says nothing of that."""
    job = marked(a_job(), "stopped", parallelism=0)
    assert end(job, failed(a_pod(job=job), ended_at=THEN)) == RunEnded("a", 1, RunEnd.STOPPED)


def test_a_run_seen_to_its_end_has_no_time_however_far_off_the_clock_of_its_node_is() -> None:
    reader, job = Reader(end_times=EndTimes(lambda: NOW)), a_job()
    pod = a_pod(job=job)
    reader.see(job, running(pod))
    told = reader.see(replace(succeeded(pod), ended_at=NOW - 50), replace(job, end="Complete", ended_pods=1))
    assert told == [RunEnded("a", 1, RunEnd.EXITED, 0)]


@pytest.mark.parametrize("away_s", [0.0, HOUR / 4])
def test_a_run_that_ended_while_nobody_watched_is_told_with_the_time_of_its_pod(
    tmp_path: Path, away_s: float
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("5", "0"))
        await scene.start("a", "n1")
        began_at = scene.world.clock()
        if away_s:
            await scene.die()
            await asyncio.sleep(away_s)
            await scene.watch()
        await scene.until(lambda: scene.ends)
        (told,) = scene.reports_of("a")
        assert told.end is RunEnd.EXITED
        assert told.ended_at == (pytest.approx(began_at + 5, abs=3) if away_s else None)

    play(tmp_path, act)
