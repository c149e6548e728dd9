"""A user's Job or Pod that was taken is cancelled by deleting it, and ends when its job is cancelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.clusters.kubernetes.adoption.offload_rights import OffloadRights
from starburst.core.model.events import CancelRequested
from starburst.domain.job import Phase, Submission
from starburst.kube import names
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.kinds import KINDS, an_object
from tests.clusters.kubernetes.scene import NS, Scene, a_job, a_pod, play


@KINDS
@pytest.mark.parametrize("where", ["queue", "cluster", "cloud"])
def test_deleting_it_cancels_it_wherever_it_is(tmp_path: Path, kind: str, where: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind, "500", "0")
        job_id = await scene.adopt(item)
        if where == "cluster":
            await scene.start(job_id, "n0")
            await scene.until(scene.running)
        elif where == "cloud":
            scene.away(job_id, Phase.RUNNING)
        scene.world.delete(resource, NS, "train")
        await scene.until(lambda: scene.cancels)
        if where == "cluster":
            await scene.cluster.stop(job_id, 1, 5.0)
            await scene.until(lambda: scene.ends)
            assert set(scene.ends) == {(job_id, 1, "stopped")}
        assert set(scene.cancels) == {job_id}
        await scene.until(lambda: scene.find(resource, "train") is None)
        assert scene.pods() == []

    play(tmp_path, act)


@KINDS
def test_a_stop_of_an_object_that_vanishes_under_it_is_done(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind, "500", "0")
        job_id = await scene.adopt(item)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.fail("PATCH", says=names.STOPPING, status=404, reason="NotFound", name="train")
        scene.world.delete(resource, NS, "train")
        for _ in range(100):
            try:
                await scene.cluster.stop(job_id, 1, 5.0)
            except RuntimeError:  # its pods are still there: the performer asks again after a pause
                await scene.pass_time(1.0)
            else:
                break
        await scene.until(lambda: scene.ends)
        assert set(scene.ends) == {(job_id, 1, "stopped")}
        assert scene.pods() == []

    play(tmp_path, act)


@KINDS
@pytest.mark.parametrize("where", ["new", "queue", "cluster", "cloud"])
def test_deleting_it_while_nobody_watches_does_too(tmp_path: Path, kind: str, where: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind, "500", "0")
        job_id = await scene.adopt(item)
        if where == "cluster":
            await scene.start(job_id, "n0")
            await scene.until(lambda: scene.desk.records[job_id].phase is Phase.RUNNING)
        elif where == "cloud":
            scene.away(job_id, Phase.RUNNING)
        elif where == "new":
            del scene.desk.records[job_id]
        await scene.die()
        scene.world.delete(resource, NS, "train")
        await scene.until(lambda: scene.find(resource, "train") is None)
        before = len(scene.cancels)
        await scene.watch()
        assert scene.cancels[before:] == [job_id]
        if where == "new":  # the core passed that over
            scene.take_up(job_id)
            assert scene.cancels[before:] == [job_id] * 2

    play(tmp_path, act)


def test_one_that_is_deleted_before_it_is_marked_is_cancelled(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("PATCH", times=10**6)
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: scene.desk.submissions)
        scene.world.delete(JOBS, NS, "train")
        await scene.until(lambda: scene.cancels)
        assert scene.cancels == list(scene.desk.submissions)

    play(tmp_path, act)


@pytest.mark.parametrize("stays", [True, False], ids=["deleting", "gone"])
def test_one_that_is_deleted_before_its_job_is_handed_in_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    async def act(scene: Scene) -> None:
        asked: list[str] = []

        async def slow(_rights: OffloadRights, submission: Submission) -> str:
            asked.append(submission.job.id)
            scene.world.controller = not stays  # its finalizer is left
            scene.world.delete(JOBS, NS, "train")
            await scene.pass_time(5)
            assert (scene.find(JOBS, "train") is not None) is stays
            return ""

        monkeypatch.setattr(OffloadRights, "why_confined", slow)
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: asked)
        await scene.pass_time(20)
        assert (len(asked), scene.desk.submissions) == (1, {})

    play(tmp_path, act)


def test_a_cancel_of_a_job_that_the_core_does_not_know_yet_is_said_again_when_it_does(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: names.ADOPTED in scene.marks("train"))
        (job_id,) = scene.desk.submissions
        scene.world.delete(JOBS, NS, "train")
        await scene.until(lambda: scene.cancels)
        assert scene.cancels == [job_id]
        scene.take_up(job_id)
        assert scene.cancels == [job_id] * 2
        assert CancelRequested(job_id) in scene.reports

    play(tmp_path, act)


def test_a_pod_that_was_deleted_before_its_first_run_began_is_not_made_anew(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod())
        await scene.die()
        scene.world.delete(PODS, NS, "alone")
        await scene.start(job_id, "n0")  # it was owed
        assert (scene.pods(), scene.ends) == ([], [])
        await scene.watch()
        assert scene.ends == [(job_id, 1, "stopped")]
        assert job_id in scene.cancels

    play(tmp_path, act)


@KINDS
def test_one_of_its_name_that_was_made_anew_is_another_job(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind)
        job_id = await scene.adopt(item)
        await scene.die()
        scene.world.remove(resource, NS, "train")
        item, _ = an_object(kind, "500", "0")
        scene.world.add(resource, item)
        await scene.start(job_id, "n0")
        await scene.watch()
        assert (job_id, 1, "stopped") in scene.ends
        assert job_id in scene.cancels
        await scene.until(lambda: len(scene.desk.submissions) == 2)
        assert scene.world.ran == []

    play(tmp_path, act)


def test_a_cancel_of_a_waiting_one_ends_it_failed_once_its_pods_are_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        await scene.until(scene.pods)
        scene.world.controller = False
        scene.end(job_id, Phase.CANCELLED)
        await scene.until(lambda: scene.the(JOBS, "train")["spec"].get("parallelism") == 0)
        await scene.pass_time(10)
        assert "Failed" not in scene.conditions("train"), "a pod may be alive"
        scene.world.controller = True
        scene.world.nudge()
        await scene.until(lambda: "Failed" in scene.conditions("train"))
        assert scene.pods() == []

    play(tmp_path, act)
