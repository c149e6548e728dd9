"""Suspended Jobs and gated pods are held, and go on when their users let them (Kubernetes 1.24 and 1.30)."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.core.model.events import ReleaseRequested
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.scene import NS, Scene, a_job, a_pod, play
from tests.kube_unit.store import Object

GATES = [{"name": "example.org/quota"}]


def released(scene: Scene) -> list[str]:
    """Jobs that were released, each once."""
    found = [event.job_id for event in scene.reports if isinstance(event, ReleaseRequested)]
    return list(dict.fromkeys(found))


def hold(scene: Scene, job_id: str) -> None:
    """The core holds a job that was handed in to be held."""
    assert scene.desk.submissions[job_id].job.hold
    scene.desk.records[job_id].phase = Phase.HELD
    scene.told(scene.desk.records[job_id])


def let_go(scene: Scene, job_id: str) -> None:
    """The core carries the release out."""
    scene.desk.records[job_id].phase = Phase.QUEUED
    scene.told(scene.desk.records[job_id])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_suspended_job_is_held_until_it_is_resumed(tmp_path: Path, restarted: bool) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(suspend=True))
        hold(scene, job_id)
        await scene.pass_time(60)
        assert (released(scene), scene.world.ran, scene.marks("train")[names.KEPT]) == ([], [], "suspended")
        if restarted:
            await scene.die()
        scene.world.change(JOBS, NS, "train", {"spec": {"suspend": False}})
        if restarted:
            await scene.watch()
        await scene.until(lambda: released(scene) == [job_id])
        let_go(scene, job_id)
        await scene.until(lambda: names.KEPT not in scene.marks("train"))
        hold(scene, job_id)  # its user does, by Starburst's means
        before = len(scene.reports)
        await scene.pass_time(10)
        assert not [each for each in scene.reports[before:] if isinstance(each, ReleaseRequested)]
        let_go(scene, job_id)
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]

    play(tmp_path, act, minor="31")


def test_one_that_its_user_holds_by_both_means_is_not_released_with_the_job(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = a_job(suspend=True)
        job["metadata"]["annotations"] = {"starburst.io/hold": "true"}
        job_id = await scene.adopt(job)
        hold(scene, job_id)
        scene.world.change(JOBS, NS, "train", {"spec": {"suspend": False}})
        await scene.pass_time(10)
        assert released(scene) == []

    play(tmp_path, act, minor="31")


def test_a_gated_pod_is_held_until_its_gates_are_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        pod = a_pod("alone")
        pod["spec"]["schedulingGates"] = GATES
        job_id = await scene.adopt(pod)
        hold(scene, job_id)
        await scene.pass_time(10)
        assert (released(scene), scene.events("NotQueued")) == ([], [])
        open_gates(scene, scene.the(PODS, "alone"))
        await scene.until(lambda: released(scene) == [job_id])
        let_go(scene, job_id)
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)

    play(tmp_path, act, minor="31")


def test_a_job_of_gated_pods_is_held_until_all_of_them_may_go(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = a_job(tasks=2)
        job["spec"]["template"]["spec"]["schedulingGates"] = GATES
        job_id = await scene.adopt(job)
        hold(scene, job_id)
        await scene.until(lambda: len(scene.pods()) == 2)
        first, second = scene.pods()
        open_gates(scene, first)
        await scene.pass_time(10)
        assert released(scene) == []
        open_gates(scene, second)
        await scene.until(lambda: released(scene) == [job_id])
        let_go(scene, job_id)
        await scene.start(job_id, "n0", "n1")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]

    play(tmp_path, act, minor="31")


def open_gates(scene: Scene, pod: Object) -> None:
    """As whoever set them does."""
    scene.world.change(PODS, NS, pod["metadata"]["name"], {"spec": {"schedulingGates": None}})
