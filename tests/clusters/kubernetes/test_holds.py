"""Suspended Jobs and gated pods are held, and go on when their users let them (Kubernetes 1.24 and 1.30)."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.core.model.events import HoldRequested, ReleaseRequested
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes import world
from tests.clusters.kubernetes.scene import NS, Scene, a_job, a_pod, play
from tests.kube_unit.store import Object

GATES = [{"name": "example.org/quota"}]


def released(scene: Scene) -> list[str]:
    """Jobs that were released, each once."""
    found = [event.job_id for event in scene.reports if isinstance(event, ReleaseRequested)]
    return list(dict.fromkeys(found))


def hold(scene: Scene, job_id: str, *, asked: bool = True) -> None:
    """The core holds a job; `asked`: one that was handed in to be held, or whose run was suspended."""
    suspended = (job_id, 1, "suspended") in scene.ends
    assert not asked or suspended or scene.desk.submissions[job_id].job.hold
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


def suspend(scene: Scene, name: str = "train", *, to: bool = True) -> None:
    """As `kubectl patch` by its user."""
    scene.world.change(JOBS, NS, name, {"spec": {"suspend": to}})


def held_by_request(scene: Scene) -> list[str]:
    """Jobs that were to be held, each once."""
    found = [event.job_id for event in scene.reports if isinstance(event, HoldRequested)]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_running_job_that_is_suspended_is_held_and_runs_again_once_it_is_resumed(
    tmp_path: Path, restarted: bool
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("40", "0")))
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.running() == 1)
        if restarted:
            await scene.die()
        suspend(scene)
        if restarted:
            await scene.watch()
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "suspended")]
        assert (scene.marks("train")[names.KEPT], scene.pods()) == ("suspended", [])
        hold(scene, job_id)
        await scene.pass_time(60)
        assert (released(scene), scene.marks("train")[names.KEPT]) == ([], "suspended")
        suspend(scene, to=False)
        await scene.until(lambda: released(scene) == [job_id])
        let_go(scene, job_id)
        await scene.start(job_id, "n1")
        await scene.until(lambda: len(scene.ends) == 2)
        assert scene.ends[1] == (job_id, 2, "exited")
        assert names.KEPT not in scene.marks("train")
        assert (scene.cancels, scene.world.broken) == ([], [])

    play(tmp_path, act, minor="31")


def test_one_that_is_resumed_before_its_pods_are_gone_is_only_placed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "END_S", 15.0)

    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("40", "0")))
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.running() == 1)
        suspend(scene)
        await scene.until(lambda: names.STOPPING in scene.marks("train"))
        suspend(scene, to=False)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "displaced")]
        await scene.start(job_id, "n0")
        await scene.until(lambda: len(scene.ends) == 2)
        assert scene.ends[1] == (job_id, 2, "exited")

    play(tmp_path, act, minor="31")


def test_the_job_of_a_submitted_job_that_is_suspended_is_held_too(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("40", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: scene.running() == 1)
        suspend(scene, "a-1")
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.jobs()) == ([("a", 1, "suspended")], [])

    play(tmp_path, act, minor="31")


def test_a_job_that_is_suspended_in_the_queue_is_held_and_its_place_is_not_forced_on_it(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        suspend(scene)
        await scene.until(lambda: held_by_request(scene) == [job_id])
        await scene.start(job_id, "n0")  # it was placed in the same moment
        assert scene.ends == [(job_id, 1, "suspended")]
        assert scene.the(JOBS, "train")["spec"]["suspend"] is True
        hold(scene, job_id, asked=False)
        await scene.until(lambda: scene.marks("train").get(names.KEPT) == "suspended")
        suspend(scene, to=False)
        await scene.until(lambda: released(scene) == [job_id])

    play(tmp_path, act, minor="31")


def test_one_that_is_released_by_starburst_s_means_is_resumed_by_it(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        suspend(scene)
        await scene.until(lambda: held_by_request(scene) == [job_id])
        hold(scene, job_id, asked=False)
        await scene.until(lambda: scene.marks("train").get(names.KEPT) == "suspended")
        before = len(scene.reports)
        let_go(scene, job_id)  # starburst release
        await scene.until(lambda: names.KEPT not in scene.marks("train"))
        await scene.pass_time(10)
        assert not [each for each in scene.reports[before:] if isinstance(each, HoldRequested)]
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]

    play(tmp_path, act, minor="31")


def test_one_that_its_user_holds_and_then_suspends_stays_held_when_it_is_resumed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        hold(scene, job_id, asked=False)  # starburst hold
        suspend(scene)
        await scene.pass_time(10)
        suspend(scene, to=False)
        await scene.pass_time(10)
        assert released(scene) == []

    play(tmp_path, act, minor="31")


def test_a_job_that_starburst_suspended_for_the_cloud_is_not_held(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.away(job_id)
        await scene.until(lambda: scene.the(JOBS, "train")["spec"].get("suspend"))
        scene.desk.records[job_id].phase = Phase.QUEUED  # no machine came up
        scene.told(scene.desk.records[job_id])
        await scene.pass_time(30)
        assert held_by_request(scene) == []

    play(tmp_path, act, minor="31")


def open_gates(scene: Scene, pod: Object) -> None:
    """As whoever set them does."""
    scene.world.change(PODS, NS, pod["metadata"]["name"], {"spec": {"schedulingGates": None}})
