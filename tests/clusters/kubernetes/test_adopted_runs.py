"""What the objects that users made say of their runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starburst.clusters.kubernetes.runs.run_object import DELETED
from starburst.core.model.events import CancelRequested, RunEnd, RunEnded, RunStarted
from starburst.kube import names
from starburst.kube.objects import PodView
from tests.clusters.kubernetes.run_reader import ADOPTED, Reader, adopted, ended
from tests.clusters.kubernetes.views import ME, a_pod, failed, marked, running, succeeded


def test_an_adopted_job_that_is_withdrawn_has_ended_its_run_when_its_pods_are_gone() -> None:
    reader, job = Reader(), adopted()
    pod = running(a_pod(job=job))
    reader.see(job, pod)
    assert reader.see(marked(job, "displaced", parallelism=0)) == []
    assert reader.lose(pod) == [ended(RunEnd.DISPLACED)]
    assert reader.see(marked(job, "displaced", parallelism=0, started_at=2.0)) == []


def test_one_that_did_not_start_and_ran_in_the_cloud_then_has_not_begun_here() -> None:
    job = marked(adopted(), "not-started", suspended=True, end="Complete", end_reason="RanInCloud")
    assert not any(isinstance(event, RunStarted) for event in Reader().see(job))


def test_its_next_run_is_another_one_even_if_news_of_the_last_one_came_in_the_same_moment() -> None:
    reader, job = Reader(), adopted()
    old, new = failed(a_pod("old", job), deleting=True), a_pod("new", job)
    assert reader.see(marked(job, "displaced", parallelism=0), old)[-1] == ended(RunEnd.DISPLACED)
    reader.book.pod_changed(old, replace(old, message="more"))  # news of the first run
    assert reader.see(adopted(attempt=2)) == []
    assert reader.lose(old) == []
    assert reader.see(running(new)) == [RunStarted("a", 2)]
    done = reader.see(succeeded(new), adopted(attempt=2, end="Complete"))
    assert done == [ended(RunEnd.EXITED, 0, key=("a", 2))]


@pytest.mark.parametrize("how", ["", "displaced"])
def test_an_adopted_job_whose_pod_was_taken_is_displaced_though_kubernetes_says_failed(how: str) -> None:
    job = adopted(end="Failed", end_reason="BackoffLimitExceeded")
    pod = failed(a_pod(job=job), None, "OutOfnvidia.com/gpu", message="no room")
    (end,) = Reader().see(marked(job, f"{how} no room") if how else job, pod)[-1:]
    assert isinstance(end, RunEnded)
    assert (end.end, "no room" in end.message) == (RunEnd.DISPLACED, True)


@pytest.mark.parametrize("how", ["", "displaced"])
def test_but_one_that_another_controller_made_has_failed(how: str) -> None:
    job = adopted(end="Failed", end_reason="BackoffLimitExceeded", owned=True)
    pod = failed(a_pod(job=job), None, "Evicted", message="low on memory")
    end = ended(RunEnd.EXITED, 1, "Evicted: low on memory")
    assert Reader().see(marked(job, how) if how else job, pod)[-1] == end


def test_but_one_that_was_told_to_stop_has_stopped() -> None:
    assert Reader().see(marked(adopted(end="Failed"), "stopped")) == [ended(RunEnd.STOPPED)]


def bare(**more: object) -> PodView:
    marks = {names.ATTEMPT: "1", **ADOPTED, **more.pop("annotations", {})}  # type: ignore[dict-item]
    return a_pod(labels={names.JOB: "a", names.CONTROLLER: ME}, annotations=marks, **more)


def test_a_bare_pod_is_a_run_too() -> None:
    reader, pod = Reader(), bare()
    assert reader.see(pod) == []
    assert reader.see(running(pod)) == [RunStarted("a", 1)]
    assert reader.see(failed(pod, 9)) == [ended(RunEnd.EXITED, 9)]
    assert reader.lose(pod) == []
    assert reader.book.known() == frozenset()


def test_a_bare_pod_that_was_evicted_is_displaced() -> None:
    assert Reader().see(failed(bare(), None, "Evicted"))[-1] == ended(RunEnd.DISPLACED, None, "Evicted")


def test_a_bare_pod_that_its_user_deletes_is_cancelled_though_it_fails_of_it() -> None:
    reader, pod = Reader(), running(bare())
    reader.see(pod)
    assert reader.see(failed(pod, 143, deleting=True)) == []
    assert reader.lose(pod) == [], "who deleted it is not known yet"
    reader.book.taken(pod, "")
    assert reader.book.take_events() == [CancelRequested("a"), ended(RunEnd.STOPPED, None, DELETED)]


def test_a_bare_pod_that_the_cluster_takes_away_is_displaced() -> None:
    reader, pod = Reader(), running(bare())
    reader.see(pod)
    reader.book.taken(pod, "the node n0 is cordoned")
    assert reader.see(failed(pod, 143, deleting=True)) == []
    assert reader.lose(pod) == [ended(RunEnd.DISPLACED, None, "the node n0 is cordoned")]


def test_a_bare_pod_that_we_delete_is_not() -> None:
    reader = Reader()
    pod = running(bare(annotations={names.STOPPING: "1 displaced"}, deleting=True))
    reader.see(pod)
    assert reader.lose(pod) == [ended(RunEnd.DISPLACED)]
