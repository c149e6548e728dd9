"""Jobs and Pods that users apply: taken into the queue once, run here or elsewhere, ended where they lie."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from starburst.clusters.kubernetes import adoption
from starburst.domain.job import Phase, Site, Submission
from starburst.kube import names
from starburst.kube.api import JOBS, PODS
from starburst.kube.errors import UnreachableError
from tests.clusters.kubernetes.scene import ME, NS, Scene, a_job, a_pod, play
from tests.kube_unit.store import Object
from translator.adopt import read_object

KINDS = pytest.mark.parametrize("kind", ["Job", "Pod"])
SERVERS = pytest.mark.parametrize("minor", ["20", "29"])


def an_object(kind: str, *args: str) -> tuple[Object, Any]:
    """A user's Job or Pod, and its resource."""
    told = {"args": args} if args else {}
    return (a_job(**told), JOBS) if kind == "Job" else (a_pod("train", **told), PODS)  # type: ignore[arg-type]


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


def test_one_that_cannot_be_read_for_a_bug_of_ours_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(there: Object, *, job_id: str, **more: Any) -> Submission:
        if there["metadata"]["name"] == "odd":
            raise KeyError("spec")
        return read_object(there, job_id=job_id, **more)

    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, a_job("odd"))
        await scene.until(lambda: scene.events("NotQueued"))
        await scene.adopt()

    monkeypatch.setattr(adoption, "read_object", read)
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


@SERVERS
def test_one_that_leaves_for_the_cloud_loses_its_pods_and_ends_complete_when_it_did(
    tmp_path: Path, minor: str
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        await scene.until(scene.pods)
        scene.away(job_id)
        await scene.until(lambda: not scene.pods())
        spec = scene.the(JOBS, "train")["spec"]
        assert spec.get("suspend", False) is (minor != "20")
        assert spec.get("parallelism", 1) == (0 if minor == "20" else 1)
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Offloaded"])
        scene.away(job_id, Phase.RUNNING)
        await scene.pass_time(30)
        scene.end(job_id, Phase.SUCCEEDED, 0, "finished after 30 s")
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert {"Complete", "SuccessCriteriaMet"} <= set(scene.conditions("train"))
        assert scene.the(JOBS, "train")["status"]["completionTime"]
        assert scene.the(JOBS, "train")["status"]["succeeded"] == 1
        marks = scene.marks("train")
        assert (marks[names.EXIT_CODE], marks[names.LOGS]) == ("0", f"starburst logs {job_id}")
        assert "ran in the cloud" in marks[names.DECISION]
        assert (scene.world.ran, scene.ends, scene.cancels) == ([], [], [])
        assert len(scene.events("Offloaded")) >= 1

    play(tmp_path, act, minor=minor)


@SERVERS
def test_one_that_fails_in_the_cloud_ends_failed_with_its_exit_code(tmp_path: Path, minor: str) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(tasks=2))
        scene.away(job_id)
        scene.away(job_id, Phase.RUNNING)
        scene.end(job_id, Phase.FAILED, 3)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert {"Failed", "FailureTarget"} <= set(scene.conditions("train"))
        assert "completionTime" not in scene.the(JOBS, "train")["status"]
        assert scene.marks("train")[names.EXIT_CODE] == "3"

    play(tmp_path, act, minor=minor)


@SERVERS
def test_one_that_comes_home_runs_here_after_all(tmp_path: Path, minor: str) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.away(job_id)
        await scene.until(lambda: not scene.pods())
        scene.away(job_id, Phase.RUNNING)
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 2, "exited")]
        assert len(scene.world.ran) == 1
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert "Complete" in scene.conditions("train")

    play(tmp_path, act, minor=minor)


def test_a_bare_pod_that_ran_in_the_cloud_ends_in_its_status(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod())
        scene.away(job_id)
        scene.away(job_id, Phase.RUNNING)
        await scene.until(lambda: scene.conditions("alone", PODS) == ["starburst.io/Offloaded"])
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("alone", PODS))
        assert scene.the(PODS, "alone")["status"]["phase"] == "Succeeded"
        scene.world.delete(PODS, NS, "alone")
        await scene.pass_time(5)
        assert (scene.cancels, scene.world.ran) == ([], []), "who clears up what is over cancels nothing"

    play(tmp_path, act)


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


@KINDS
def test_a_stop_ends_its_run_and_another_one_can_follow(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, _ = an_object(kind, "20", "0")
        job_id = await scene.adopt(item)
        for attempt, node in ((1, "n0"), (2, "n1")):
            await scene.start(job_id, node)
            await scene.until(lambda attempt=attempt: len(scene.world.ran) == attempt)
            if attempt == 1:
                await scene.cluster.stop(job_id, 1, 5.0)
                await scene.until(lambda: scene.ends)
                assert scene.pods() == []
        await scene.until(lambda: len(scene.ends) == 2)
        assert scene.ends == [(job_id, 1, "stopped"), (job_id, 2, "exited")]
        assert [node for _, _, node in scene.world.ran] == ["n0", "n1"]
        assert scene.cancels == []

    play(tmp_path, act)


def test_a_bare_pod_is_stopped_even_if_the_watch_has_not_seen_it_yet(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("500", "0")))
        scene.world.fail("WATCH", times=10**6)
        scene.world.cut_watches()
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await scene.cluster.stop(job_id, 1, 5.0)
        await scene.until(lambda: not scene.pods())
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "stopped")], [])

    # The world itself hears of nothing without its watches, so it is nudged.
    async def nudged(scene: Scene) -> None:
        nudging = asyncio.create_task(_nudge(scene))
        await act(scene)
        nudging.cancel()

    play(tmp_path, nudged)


async def _nudge(scene: Scene) -> None:
    while True:
        await asyncio.sleep(0.2)
        scene.world.nudge()


def test_an_evicted_pod_is_made_anew_for_its_next_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("20", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.end_pod(scene.pods()[0], 0, "Evicted")
        await scene.until(lambda: scene.ends)
        await scene.start(job_id, "n1")
        await scene.until(lambda: scene.desk.records[job_id].phase is Phase.RUNNING)
        await scene.restart()
        assert scene.cancels == [], "its object is another one now, but nobody deleted it"
        await scene.until(lambda: len(scene.ends) == 2)
        assert scene.ends == [(job_id, 1, "displaced"), (job_id, 2, "exited")]
        assert [node for _, _, node in scene.world.ran] == ["n0", "n1"]
        assert scene.cancels == []

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


def test_an_evicted_job_that_kubernetes_calls_failed_has_failed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.end_pod(scene.pods()[0], 0, "Evicted")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]
        assert scene.reports[-1].exit_code == 1  # type: ignore[union-attr]

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


def test_one_that_somebody_withdraws_by_hand_is_displaced_after_a_while(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.change(JOBS, NS, "train", {"spec": {"parallelism": 0}})
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "displaced")]

    play(tmp_path, act)


def test_a_placement_that_comes_through_too_late_is_taken_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        late = scene.place(job_id, "n0")
        await scene.cluster.stop(job_id, 1, 1.0)
        assert scene.ends == [(job_id, 1, "stopped")]
        await scene.cluster.start(late)
        await scene.until(lambda: scene.marks("train").get(names.NODES) == "")
        await scene.until(lambda: not scene.running())
        assert scene.cancels == []

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


def test_one_that_is_deleted_before_it_is_marked_is_cancelled(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("PATCH", times=10**6)
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: scene.desk.submissions)
        scene.world.delete(JOBS, NS, "train")
        await scene.until(lambda: scene.cancels)
        assert scene.cancels == list(scene.desk.submissions)

    play(tmp_path, act)


def test_its_conditions_and_decision_say_how_it_stands(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        assert "waits for 1 GPU" in scene.marks("train")[names.DECISION]
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Placed"])
        assert "starts on n0" in scene.marks("train")[names.DECISION]
        assert [event["reason"] for event in scene.events("Placed")] == ["Placed"]

    play(tmp_path, act)


def test_conditions_that_another_writer_overwrites_come_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        scene.world.change(JOBS, NS, "train", {"status": {"conditions": []}})
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])

    play(tmp_path, act)


def test_an_end_that_another_writer_overwrites_comes_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.away(job_id, Phase.RUNNING)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        scene.world.change(JOBS, NS, "train", {"status": {"conditions": []}})
        await scene.until(lambda: "Complete" in scene.conditions("train"))

    play(tmp_path, act)


def test_a_reason_that_changes_all_the_time_is_written_now_and_then(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        before = len([call for call in scene.world.asked if call.method == "PATCH" and "jobs" in call.path])
        for number in range(200):
            scene.told(scene.desk.records[job_id], "waits", need=f"{number} GPUs", wait_s=None, rule="test")
            await scene.pass_time(0.1)
        after = len([call for call in scene.world.asked if call.method == "PATCH" and "jobs" in call.path])
        assert after - before <= 11, "20 s passed"
        await scene.until(lambda: "199 GPUs" in scene.marks("train")[names.DECISION])

    play(tmp_path, act)


def test_after_a_restart_what_is_shown_as_it_should_be_is_not_written_again(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        await scene.pass_time(30)
        version = scene.world.store.version
        await scene.restart()
        await scene.pass_time(30)
        assert scene.world.store.version == version

    play(tmp_path, act)


def test_the_end_of_one_that_finished_in_the_cloud_while_nobody_watched_is_written(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.away(job_id, Phase.RUNNING)
        await scene.until(lambda: not scene.pods())
        await scene.die()
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.watch()
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert "Complete" in scene.conditions("train")

    play(tmp_path, act)


@pytest.mark.parametrize("moment", range(5))
def test_a_restart_at_any_moment_of_an_offload_changes_nothing(tmp_path: Path, moment: int) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        steps = iter(range(5))

        async def step() -> None:
            if next(steps) == moment:
                await scene.restart()

        await step()
        scene.away(job_id)
        await step()
        await scene.until(lambda: not scene.pods())
        scene.away(job_id, Phase.RUNNING)
        await step()
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await step()
        await scene.until(lambda: "Complete" in scene.conditions("train"))
        await step()
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert (scene.world.ran, scene.ends, scene.cancels) == ([], [], [])
        assert scene.desk.records[job_id].site is Site.CLOUD

    play(tmp_path, act)


@KINDS
def test_a_start_whose_answer_is_lost_is_repeated_without_harm(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind)
        job_id = await scene.adopt(item)
        placed = scene.place(job_id, "n0")
        await scene.until(lambda: scene.conditions("train", resource) == ["starburst.io/Placed"])
        await scene.pass_time(20)
        scene.world.fail(f"PATCH {resource.path(NS, 'train')}", done=True)
        with pytest.raises(UnreachableError):
            await scene.cluster.start(placed)
        await scene.cluster.start(placed)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, len(scene.world.ran)) == ([(job_id, 1, "exited")], 1)

    play(tmp_path, act)
