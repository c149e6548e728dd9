"""What users apply for a queue is taken into it once and marked as taken; nothing else is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from starburst.domain.job import Phase, Submission
from starburst.kube import names
from starburst.kube.objects import read_job
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.kinds import KINDS, an_object
from tests.clusters.kubernetes.scene import ME, NS, Scene, a_job, a_pod, play


@KINDS
def test_it_is_taken_once_though_seen_often_and_waits_until_it_has_a_place(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind)
        job_id = await scene.adopt(item)
        await scene.until(lambda: scene.events("Queued"))
        for number in range(3):
            scene.world.change(resource, NS, "train", {"metadata": {"annotations": {"x": str(number)}}})
        await scene.restart()
        await scene.pass_time(20)
        assert list(scene.desk.submissions) == [job_id]
        there = scene.the(resource, "train")
        assert there["metadata"]["labels"][names.CONTROLLER] == ME
        assert (scene.world.ran, scene.ends, scene.cancels) == ([], [], [])
        assert len(scene.events("Queued")) == 1
        await scene.start(job_id, "n1")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]
        assert [node for _, _, node in scene.world.ran] == ["n1"]

    play(tmp_path, act)


def test_what_cannot_be_taken_is_told_why_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = a_job()
        job["metadata"]["annotations"] = {"starburst.io/max-wait": "soon"}
        scene.world.add(JOBS, job)
        await scene.until(lambda: scene.events("NotQueued"))
        for number in range(3):
            scene.world.change(JOBS, NS, "train", {"metadata": {"annotations": {"x": str(number)}}})
            await scene.pass_time(5)
        (event,) = scene.events("NotQueued")
        assert (event["type"], event["count"]) == ("Warning", 1)
        assert "starburst.io/max-wait" in event["message"]
        assert scene.desk.submissions == {}
        mended = {"metadata": {"annotations": {"starburst.io/max-wait": "1h"}}}
        scene.world.change(JOBS, NS, "train", mended)
        await scene.until(lambda: scene.desk.submissions)

    play(tmp_path, act)


def test_one_for_a_queue_that_there_is_not_is_told_which_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scene, "queues", ("papers", "demos"))

    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: scene.events("NotQueued"))
        (event,) = scene.events("NotQueued")
        assert "there is no queue" in event["message"]
        assert event["message"].endswith("the queues are papers, demos")
        assert not scene.desk.submissions

    play(tmp_path, act)


@pytest.mark.parametrize("error", [KeyError("spec"), RecursionError(), MemoryError(), OSError("disk")])
def test_one_that_cannot_be_taken_in_whatever_is_wrong_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    read = Scene._read

    async def failing(scene: Scene, body: str, job_id: str) -> Submission | str:
        if job_id.startswith("odd-"):
            raise error
        return await read(scene, body, job_id)

    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, a_job("odd"))
        await scene.until(lambda: scene.events("NotQueued"))
        await scene.adopt()

    monkeypatch.setattr(Scene, "_read", failing)
    play(tmp_path, act)


def test_one_that_there_is_no_room_for_is_told_so_and_taken_in_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(scene: Scene) -> None:
        submit = scene.desk.submit

        def full(submissions: Sequence[Submission]) -> Mapping[str, str]:
            return {item.job.id: "user 'ada' has 9 jobs waiting" for item in submissions}

        monkeypatch.setattr(scene.desk, "submit", full)
        scene.world.add(JOBS, a_job("train"))
        await scene.until(lambda: scene.events("NotQueued"))
        (event,) = scene.events("NotQueued")
        assert event["message"] == "user 'ada' has 9 jobs waiting"
        await scene.pass_time(100)
        assert len(scene.events("NotQueued")) == 1
        monkeypatch.setattr(scene.desk, "submit", submit)
        await scene.pass_time(40)
        assert len(scene.desk.submissions) == 1

    play(tmp_path, act)


def test_without_a_queue_or_with_another_scheduler_it_is_somebody_elses(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        no_queue, other_scheduler, of_a_job = a_job("one"), a_job("two"), a_pod("three")
        del no_queue["metadata"]["labels"]
        other_scheduler["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
        owner = {"kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        of_a_job["metadata"]["ownerReferences"] = [owner]
        scene.world.add(JOBS, no_queue)
        scene.world.add(JOBS, other_scheduler)
        scene.world.add(PODS, of_a_job)
        await scene.pass_time(20)
        assert scene.desk.submissions == {}
        assert not [call for call in scene.world.asked if call.method == "PATCH"]

    play(tmp_path, act)


def test_objects_of_another_scheduler_are_not_touched(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        theirs = a_job("theirs")
        theirs["metadata"]["labels"] |= {names.JOB: "a", names.CONTROLLER: "store-2"}
        theirs["metadata"]["annotations"] = {names.ATTEMPT: "1", names.ADOPTED: "true"}
        scene.world.add(JOBS, theirs)
        await scene.until(scene.pods)
        scene.submit("a")
        scene.away("a")
        await scene.pass_time(60)
        scene.end("a", Phase.SUCCEEDED, 0)
        await scene.pass_time(60)
        scene.world.delete(JOBS, NS, "theirs")
        await scene.pass_time(5)
        asked = [call.path for call in scene.world.asked if call.method not in ("GET",)]
        written = [path for path in asked if not path.endswith("accessreviews")]
        assert (written, scene.ends, scene.cancels) == ([], [], [])
        assert ME != "store-2"

    play(tmp_path, act)


def test_a_time_limit_is_put_aside_while_it_waits_and_given_back_when_it_starts(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(activeDeadlineSeconds=60))
        assert "activeDeadlineSeconds" not in scene.the(JOBS, "train")["spec"]
        assert scene.marks("train")[names.ACTIVE_DEADLINE] == "60"
        await scene.start(job_id, "n0")
        given = scene.the(JOBS, "train")["spec"]["activeDeadlineSeconds"]
        assert 60 <= given <= 90, "the time it waited is given on top: the Job's clock ran on"

    play(tmp_path, act)


def test_a_time_limit_is_not_taken_off_a_job_that_started_before_it_was_marked(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("PATCH /apis/batch/v1/namespaces/team/jobs/train", status=500)
        scene.world.add(JOBS, a_job(args=("500", "0"), activeDeadlineSeconds=600))
        await scene.until(lambda: scene.desk.submissions)
        (job_id,) = scene.desk.submissions
        scene.take_up(job_id)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await scene.pass_time(20)
        assert scene.the(JOBS, "train")["spec"]["activeDeadlineSeconds"] >= 600
        assert scene.the(JOBS, "train")["metadata"]["labels"][names.JOB] == job_id

    play(tmp_path, act)


def test_nor_off_one_that_runs_and_whose_marks_the_watch_has_not_told_of_yet(tmp_path: Path) -> None:
    """An event from before its marks has it looked at once more, and the object is read anew for that."""

    async def act(scene: Scene) -> None:
        before = read_job(scene.world.add(JOBS, a_job(args=("500", "0"), activeDeadlineSeconds=600)))
        await scene.until(lambda: names.ADOPTED in scene.marks("train"))
        (job_id,) = scene.desk.submissions
        scene.take_up(job_id)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        assert scene.cluster._watcher is not None
        adoption = scene.cluster._watcher._adoption
        adoption.objects.forget(before.uid)
        adoption.changed(before, before)
        await scene.pass_time(20)
        assert scene.the(JOBS, "train")["spec"]["activeDeadlineSeconds"] >= 600
        assert scene.desk.submissions.keys() == {job_id}

    play(tmp_path, act)


@pytest.mark.parametrize("call", ["GET", "PATCH"])
@pytest.mark.parametrize("done", [True, False], ids=["answer-lost", "call-lost"])
def test_an_adoption_of_which_the_answer_is_lost_is_made_good(tmp_path: Path, call: str, done: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail(f"{call} /apis/batch/v1/namespaces/team/jobs/train", done=done)
        await scene.adopt()
        assert len(scene.desk.submissions) == 1

    play(tmp_path, act)


def test_a_crash_between_handing_in_and_marking_leaves_one_job(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("PATCH", times=10**6)
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: scene.desk.submissions)
        (job_id,) = scene.desk.submissions
        await scene.die()
        scene.world.heal()
        await scene.watch()
        await scene.until(lambda: names.ADOPTED in scene.marks("train"))
        assert list(scene.desk.submissions) == [job_id]

    play(tmp_path, act)


def test_a_start_marks_its_object_as_taken_if_nobody_else_could(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("PATCH", status=500, times=10**6)
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: scene.desk.submissions)
        (job_id,) = scene.desk.submissions
        await scene.pass_time(1)  # the next try of marking it is 2 s after the first
        scene.world.heal()
        scene.take_up(job_id)
        await scene.start(job_id, "n0")
        labels = scene.the(JOBS, "train")["metadata"]["labels"]
        assert (labels[names.JOB], labels[names.CONTROLLER]) == (job_id, ME)
        assert scene.marks("train")[names.ADOPTED] == "true"

    play(tmp_path, act)
