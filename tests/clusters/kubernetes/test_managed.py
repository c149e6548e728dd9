"""A Job that its user lets Starburst manage (managedBy, Kubernetes 1.32): Starburst writes its status."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.core.model.events import HoldRequested, ReleaseRequested
from starburst.core.model.phases import StopReason
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play
from tests.kube_unit.store import Object

OURS = "starburst.io/starburst"


def status(scene: Scene) -> Object:
    found: Object = scene.the(JOBS, "train").get("status") or {}
    return found


def ended(scene: Scene, kind: str) -> tuple[str, str]:
    """Reason and message of its end."""
    (found,) = (each for each in status(scene)["conditions"] if each["type"] == kind)
    return found["reason"], found["message"]


def test_it_runs_here_as_a_job_of_its_own_and_its_status_follows(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS, tasks=2, args=("20", "0")))
        await scene.pass_time(30)
        assert (scene.pods(), scene.jobs()) == ([], ["train"]), "its Job controller is Starburst"
        await scene.start(job_id, "n0", "n1")
        record = scene.desk.records[job_id]
        await scene.until(lambda: scene.running() == 2)
        run = scene.the(JOBS, f"{job_id}-1")
        assert "managedBy" not in run["spec"]
        owner = run["metadata"]["ownerReferences"][0]
        assert owner["uid"] == scene.the(JOBS, "train")["metadata"]["uid"]
        record.started_at = 1.0
        scene.told(record)
        await scene.until(lambda: status(scene).get("active") == 2)
        began = status(scene)["startTime"]
        assert scene.conditions("train") == ["starburst.io/Placed"]
        await scene.until(lambda: scene.ends)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert ended(scene, "Complete") == ended(scene, "SuccessCriteriaMet")
        assert ended(scene, "Complete") == ("CompletionsReached", "Reached expected number of succeeded pods")
        now = status(scene)
        assert (now["active"], now["ready"], now["succeeded"], now["startTime"]) == (0, 0, 2, began)
        assert now["completionTime"]
        assert scene.ends == [(job_id, 1, "exited")]

    play(tmp_path, act, minor="34")


def test_one_that_fails_here_fails_for_the_reason_of_its_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS, args=("1", "3")))
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        scene.end(job_id, Phase.FAILED, 3)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert ended(scene, "Failed") == ("BackoffLimitExceeded", "says the controller")
        assert "completionTime" not in status(scene)
        assert scene.marks("train")[names.EXIT_CODE] == "3"

    play(tmp_path, act, minor="34")


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED])
def test_one_that_leaves_is_not_suspended_and_ends_as_it_did_there(tmp_path: Path, phase: Phase) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS))
        record = scene.away(job_id, Phase.RUNNING)
        record.started_at = 1.0
        scene.told(record)
        await scene.until(lambda: status(scene).get("active") == 1)
        assert not scene.the(JOBS, "train")["spec"].get("suspend")
        scene.end(job_id, phase, 0 if phase is Phase.SUCCEEDED else 1, "its words")
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        kind = "Complete" if phase is Phase.SUCCEEDED else "Failed"
        reasons = {
            Phase.SUCCEEDED: ("CompletionsReached", "Reached expected number of succeeded pods"),
            Phase.FAILED: ("BackoffLimitExceeded", "its words"),
            Phase.CANCELLED: ("Cancelled", "its words"),
        }
        assert ended(scene, kind) == reasons[phase]
        assert status(scene)["active"] == 0

    play(tmp_path, act, minor="34")


def test_one_that_comes_home_and_is_displaced_runs_again(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS))
        scene.away(job_id, Phase.RUNNING)
        await scene.start(job_id, "n0")
        await scene.restart()
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 2, "exited")]
        assert [name for name, *_ in scene.world.ran] == [f"{job_id}-2"]

    play(tmp_path, act, minor="34")


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_is_deleted_is_cancelled_with_its_run(tmp_path: Path, restarted: bool) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS, args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.running() == 1)
        if restarted:
            await scene.die()
        scene.world.delete(JOBS, NS, "train")
        scene.world.delete(JOBS, NS, f"{job_id}-1")  # the garbage collector
        await scene.until(lambda: scene.jobs() == [])
        if restarted:
            await scene.watch()
        await scene.until(lambda: job_id in scene.cancels)
        assert len(scene.world.ran) == 1

    play(tmp_path, act, minor="34")


def test_one_that_was_deleted_before_it_is_placed_is_not_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS))
        placed = scene.place(job_id, "n0")
        scene.world.delete(JOBS, NS, "train")
        await scene.until(lambda: scene.jobs() == [])
        await scene.cluster.start(placed)
        assert (scene.jobs(), scene.ends) == ([], [(job_id, 1, "stopped")])
        assert job_id in scene.cancels

    play(tmp_path, act, minor="34")


def test_one_that_is_suspended_while_it_runs_is_held_until_it_is_resumed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS, args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.running() == 1)
        scene.world.change(JOBS, NS, "train", {"spec": {"suspend": True}})
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.jobs()) == ([(job_id, 1, "suspended")], ["train"])
        scene.desk.records[job_id].phase = Phase.HELD
        scene.told(scene.desk.records[job_id])
        await scene.until(lambda: scene.marks("train").get(names.KEPT) == "suspended")
        scene.world.change(JOBS, NS, "train", {"spec": {"suspend": False}})
        await scene.until(lambda: "ReleaseRequested" in {type(each).__name__ for each in scene.reports})

    play(tmp_path, act, minor="34")


def test_one_of_another_controller_is_left_alone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, a_job(managedBy="example.com/other"))
        await scene.until(lambda: scene.events("NotQueued"))
        await scene.pass_time(30)
        assert names.JOB not in scene.the(JOBS, "train")["metadata"]["labels"]
        assert "status" not in scene.the(JOBS, "train") or not status(scene)

    play(tmp_path, act, minor="34")


def suspend(scene: Scene, *, to: bool = True) -> None:
    scene.world.change(JOBS, NS, "train", {"spec": {"suspend": to}})


@pytest.mark.parametrize("phase", [Phase.OFFLOADING, Phase.RUNNING])
@pytest.mark.parametrize("resumed_early", [False, True])
def test_one_that_is_suspended_while_it_is_in_the_cloud_is_taken_off_it_and_held_until_it_is_resumed(
    tmp_path: Path, phase: Phase, resumed_early: bool
) -> None:
    def asked(scene: Scene) -> set[tuple[str, bool]]:
        holds = [event for event in scene.reports if isinstance(event, HoldRequested)]
        return {(event.job_id, bool(event.stops)) for event in holds}

    def released(scene: Scene) -> list[str]:
        return [event.job_id for event in scene.reports if isinstance(event, ReleaseRequested)]

    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(managedBy=OURS))
        record = scene.away(job_id, phase)
        suspend(scene)
        await scene.until(lambda: asked(scene) == {(job_id, True)})
        record.phase, record.stop_why = Phase.STOPPING, StopReason.SUSPEND
        scene.told(record)
        if resumed_early:
            suspend(scene, to=False)
        await scene.pass_time(10)
        assert not released(scene)
        record.phase, record.stop_why = Phase.HELD, None
        scene.told(record)
        if not resumed_early:
            await scene.pass_time(10)
            assert not released(scene)
            suspend(scene, to=False)
        await scene.until(lambda: released(scene)[:1] == [job_id])

    play(tmp_path, act, minor="34")
