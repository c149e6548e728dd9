"""The desk: what a cluster learns of jobs, and how it hands in those that it found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.app.jobs.intake import JobIntake
from starburst.core.model.events import CancelRequested, RunEnd, RunEnded, RunStarted
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Adopted, Phase, Submission
from starburst.store.quota import Quota
from starburst.store.store import Store
from tests.store.samples import started, step, submission, take_up


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """The scheduler's connection and the desk's own."""
    file = tmp_path / "store.db"
    with Store.open(file) as store, Store.open(file) as intake:
        yield store, intake


def found(job_id: str) -> Submission:
    """A job that lay in the cluster."""
    base = submission(job_id)
    return replace(base, workload=replace(base.workload, adopted=origin(job_id)))


def origin(job_id: str) -> Adopted:
    return Adopted("Job", "default", job_id, f"uid-of-{job_id}")


def end(store: Store, scheduler: Scheduler, job_id: str) -> None:
    """A job runs and ends well."""
    attempt = scheduler.state.jobs[job_id].attempt
    events = [RunStarted(job_id, attempt), RunEnded(job_id, attempt, RunEnd.EXITED, 0)]
    store.commit(step(scheduler, events, 20.0))


def test_a_job_that_is_handed_in_is_heard_of_by_the_scheduler(stores: tuple[Store, Store]) -> None:
    store, intake = stores
    desk = JobIntake(store, intake, started())
    before = store.data_version()
    desk.submit([found("a")])
    assert store.data_version() != before
    assert [request.submission for request in store.requests(9)] == [found("a")]
    assert desk.submission("a") == found("a")
    assert desk.record("a") is None, "it is not taken up yet"


def test_handing_in_twice_is_handing_in_once(stores: tuple[Store, Store]) -> None:
    store, intake = stores
    scheduler = started()
    desk = JobIntake(store, intake, scheduler)
    desk.submit([found("a")])
    desk.submit([found("a")])
    assert [request.job_id for request in store.requests(9)] == ["a"]
    take_up(store, scheduler, 10.0)
    desk.submit([found("a")])
    assert store.requests(9) == [], "not even when it was taken up in between"


def test_a_record_is_the_schedulers_own_while_the_job_lives_and_the_stores_afterwards(
    stores: tuple[Store, Store],
) -> None:
    store, intake = stores
    scheduler = started()
    desk = JobIntake(store, intake, scheduler)
    desk.submit([found("a")])
    take_up(store, scheduler, 10.0)
    assert desk.record("a") is scheduler.state.jobs["a"]
    end(store, scheduler, "a")
    assert "a" not in scheduler.state.jobs
    record = desk.record("a")
    assert record is not None
    assert (record.phase, record.exit_code) == (Phase.SUCCEEDED, 0)
    assert desk.record("nobody") is None


def test_jobs_found_in_the_cluster_are_listed_until_they_are_over(stores: tuple[Store, Store]) -> None:
    store, intake = stores
    scheduler = started()
    desk = JobIntake(store, intake, scheduler)
    for job_id in ("ended", "runs", "waits"):
        desk.submit([found(job_id)])
    take_up(store, scheduler, 10.0)
    assert desk.adopted() == {job_id: origin(job_id) for job_id in ("ended", "runs", "waits")}
    store.commit(step(scheduler, [CancelRequested("waits")], 15.0))
    end(store, scheduler, "ended")
    desk.submit([found("new")])
    assert desk.adopted().keys() == {"runs", "new"}, "taken up or not"


def test_submitted_jobs_are_not_among_them_whatever_their_manifests_say(stores: tuple[Store, Store]) -> None:
    store, intake = stores
    base = submission("a")
    boast = json.dumps({"adopted": {"kind": "Job"}}, separators=(",", ":"))
    store.submit([replace(base, workload=replace(base.workload, manifest=boast)), submission("b")], 1.0)
    desk = JobIntake(store, intake, scheduler := started())
    assert desk.adopted() == {}
    take_up(store, scheduler, 10.0)
    assert desk.adopted() == {}


def test_jobs_handed_in_together_are_all_taken_but_those_for_which_there_is_no_room(
    stores: tuple[Store, Store],
) -> None:
    desk = JobIntake(*stores, started(), Quota(of_queue={"small": 1}))
    small = [replace(each, job=replace(each.job, queue="small")) for each in map(found, ("s1", "s2", "s3"))]
    desk.submit([found("a")])
    refused = desk.submit([found("a"), *small, found("b")])
    assert refused.keys() == {"s2", "s3"}
    assert "max_pending is 1" in refused["s3"]
    assert desk.adopted().keys() == {"a", "s1", "b"}
    assert desk.submit([found("a"), small[0], found("b")]) == {}, "again, as after a crash"
