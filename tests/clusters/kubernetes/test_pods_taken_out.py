"""Pods that are taken out of their Job: they are part of their run for as long as they run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunStalled
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.run_reader import Reader, ended
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play
from tests.clusters.kubernetes.views import ME, a_pod, running
from tests.clusters.kubernetes.views import a_job as a_job_view


def take_out(scene: Scene) -> None:
    """As `kubectl label pod P controller-uid-` does; no Job controller makes another one."""
    scene.world.controller = False
    for pod in scene.pods():
        scene.world.change(PODS, NS, pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})


def orphan(scene: Scene, name: str) -> None:
    """As `kubectl delete job --cascade=orphan` does."""
    take_out(scene)
    scene.world.remove(JOBS, NS, name)


@pytest.mark.parametrize("kind", ["submitted", "adopted"])
def test_a_job_that_is_deleted_without_its_pods_is_cancelled_and_ends_with_them(
    tmp_path: Path, kind: str
) -> None:
    async def act(scene: Scene) -> None:
        if kind == "submitted":
            job_id = scene.submit(args=("500", "0")).id
        else:
            job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        orphan(scene, "a-1" if kind == "submitted" else "train")
        await scene.until(lambda: scene.cancels)
        assert (set(scene.cancels), scene.ends) == ({job_id}, []), "its pod lives"
        scene.desk.records[job_id].phase = Phase.STOPPING
        with suppress(RuntimeError):  # its pod is still there: the stop is repeated
            await scene.cluster.stop(job_id, 1, 1.0)
        await scene.until(lambda: scene.ends)
        assert (scene.pods(), scene.ends) == ([], [(job_id, 1, "stopped")])

    play(tmp_path, act)


def test_one_that_loses_its_job_while_starburst_is_down_is_not_lost_before_it_is_ended(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.die()
        orphan(scene, "a-1")
        await scene.watch()
        assert scene.synced[-1].known == {("a", 1)}, "it is not lost: its pod lives"
        await scene.until(lambda: scene.ends)
        assert (scene.pods(), scene.ends) == ([], [("a", 1, "stopped")])

    play(tmp_path, act)


def test_one_that_its_user_keeps_is_left_alone_and_its_run_is_over_when_it_is(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("100", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        take_out(scene)
        scene.world.change(
            JOBS, NS, "a-1", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
        )
        await scene.pass_time(60.0)
        assert (scene.running(), scene.ends) == (1, [])
        why = [event.why for event in scene.reports if isinstance(event, RunStalled)]
        assert len(why) == 1
        assert "was taken out of its Job and runs on" in why[0]
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]
        assert len(scene.pods()) == 1

    play(tmp_path, act)


def test_the_end_of_a_job_in_the_cloud_is_written_once_such_a_pod_is_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        take_out(scene)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.pass_time(10.0)
        assert "Complete" not in scene.conditions("train")
        (pod,) = scene.pods()
        scene.world.remove(PODS, NS, pod["metadata"]["name"])
        await scene.until(lambda: "Complete" in scene.conditions("train"))

    play(tmp_path, act)


def test_it_belongs_to_its_run_whoever_owns_it_next_and_also_when_its_job_is_gone() -> None:
    reader, job = Reader(), a_job_view()
    pod = running(a_pod(job=job, labels={names.JOB: "a", names.CONTROLLER: ME}))
    reader.see(job, pod)
    another = a_job_view("b")
    for owner in (None, replace(running(a_pod(job=another))).owner):
        assert reader.see(replace(pod, owner=owner)) == []
        assert reader.book.run_of(replace(pod, owner=owner)) == ("a", 1)
    reader.lose(job)
    assert reader.lose(pod)[-1] == ended(RunEnd.STOPPED, message="it was deleted in the cluster")
    assert reader.book.known() == frozenset()


def test_a_pod_that_only_bears_the_marks_of_a_run_takes_room_and_does_not_keep_that_from_ending() -> None:
    reader, job = Reader(), a_job_view()
    labels, marks = {names.JOB: "a", names.CONTROLLER: ME}, {names.ATTEMPT: "1"}
    forged = running(a_pod("forged", labels=labels, annotations=marks))
    reader.see(job, forged, running(a_pod(job=job)))
    assert (reader.book.run_of(forged), reader.book.orphans()) == (None, frozenset())
    reader.lose(a_pod(job=job))
    assert reader.see(replace(job, end="Complete"))[-1] == ended(RunEnd.EXITED, 0)
    reader.lose(job)
    assert reader.book.orphans() == {("a", 1)}, "it may be what is left of the run"
    reader.lose(forged)
    assert reader.book.orphans() == frozenset()
