"""A Job that goes away after its end is neither lost nor run again, also if no Starburst watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunStarted
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.recorder import api_time
from starburst.kube.resources import EVENTS, JOBS, PODS
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play


@pytest.mark.parametrize("adopted", [True, False])
@pytest.mark.parametrize("away", [True, False])
def test_it_goes_when_its_end_is_stored_and_not_before(tmp_path: Path, adopted: bool, away: bool) -> None:
    async def act(scene: Scene) -> None:
        if adopted:
            job_id, name = await scene.adopt(a_job(ttlSecondsAfterFinished=3)), "train"
        else:
            job_id, name = scene.submit(ttlSecondsAfterFinished=3).id, "a-1"
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.running() == 1)
        if away:
            await scene.die()
            await scene.until(lambda: "Complete" in scene.conditions(name))
        else:
            await scene.until(lambda: scene.ends)
        await scene.pass_time(60)
        assert scene.jobs() == [name]
        if away:
            await scene.watch()
        await scene.until(lambda: scene.ends)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: scene.jobs() == [])
        await scene.pass_time(5)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "exited")], [])
        assert len(scene.world.ran) == 1

    play(tmp_path, act, minor="31")


def test_of_a_run_that_is_tried_again_the_first_job_goes(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("1", "3"), ttlSecondsAfterFinished=3)
        await scene.start("a", "n0")
        await scene.until(lambda: scene.ends)
        await scene.start("a", "n0")
        await scene.until(lambda: "a-1" not in scene.jobs())

    play(tmp_path, act, minor="31")


@pytest.mark.parametrize("text", ["", "soon", "-3", "9" * 40])
def test_what_people_write_into_the_annotation_disturbs_nothing(tmp_path: Path, text: str) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.world.change(JOBS, NS, "train", {"metadata": {"annotations": {names.TTL: text}}})
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert "ttlSecondsAfterFinished" not in scene.the(JOBS, "train")["spec"]

    play(tmp_path, act, minor="31")


REASONS = pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("Completed", ("exited", 0)),
        ("BackoffLimitExceeded", ("exited", 1)),
        ("DeadlineExceeded", ("out-of-time", 1)),
        ("SuccessfulCreate", None),
        ("", None),
    ],
)


@pytest.mark.parametrize("adopted", [True, False])
@REASONS
def test_of_one_that_somebody_deleted_after_its_end_the_events_tell(
    tmp_path: Path, adopted: bool, reason: str, end: tuple[str, int] | None
) -> None:
    async def act(scene: Scene) -> None:
        job_id, name = (await scene.adopt(), "train") if adopted else (scene.submit().id, "a-1")
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.running() == 1)
        await scene.die()
        uid = scene.the(JOBS, name)["metadata"]["uid"]
        if reason:
            an_event(scene, name, uid, reason)
        an_event(scene, "another", "its-uid", "Completed")
        for pod in scene.pods():
            scene.world.end_pod(pod, 0)
        scene.world.change(JOBS, NS, name, {"spec": {"ttlSecondsAfterFinished": 0}})
        await scene.until(lambda: scene.jobs() == [])
        await scene.watch()
        if end is not None:
            ended = scene.reports_of(job_id)
            assert [(each.end.value, each.exit_code) for each in ended] == [end]
            assert [each.ended_at for each in ended] == [pytest.approx(scene.world.clock() - HOUR_S, abs=30)]
            assert scene.cancels == []
        else:
            assert scene.ends == []
            assert scene.cancels == ([job_id] if adopted else []), "it counts as deleted by its user"
            assert (job_id, 1) not in scene.synced[-1].known

    play(tmp_path, act, minor="31")


@pytest.mark.parametrize("adopted", [True, False])
@REASONS
def test_so_they_do_of_one_that_ended_and_was_deleted_while_no_watch_heard_of_it(
    tmp_path: Path, adopted: bool, reason: str, end: tuple[str, int] | None
) -> None:
    async def act(scene: Scene) -> None:
        job_id, name = (await scene.adopt(), "train") if adopted else (scene.submit().id, "a-1")
        await scene.start(job_id, "n0")
        await scene.until(lambda: RunStarted(job_id, 1) in scene.reports)
        scene.world.fail("WATCH", times=10**6, status=500)
        scene.world.cut_watches()
        uid = scene.the(JOBS, name)["metadata"]["uid"]
        if reason:
            an_event(scene, name, uid, reason)
        for pod in scene.pods():
            scene.world.remove(PODS, NS, pod["metadata"]["name"])
        scene.world.remove(JOBS, NS, name)
        scene.world.forget()
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        ended = scene.reports_of(job_id)
        if end is not None:
            assert [(each.end.value, each.exit_code) for each in ended] == [end]
            assert [each.ended_at for each in ended] == [pytest.approx(scene.world.clock() - HOUR_S, abs=60)]
            assert scene.cancels == []
        else:
            assert ([each.end for each in ended], set(scene.cancels)) == ([RunEnd.STOPPED], {job_id})

    play(tmp_path, act, minor="31")


HOUR_S = 3600.0


def an_event(scene: Scene, name: str, uid: str, reason: str) -> None:
    """As the Job controller writes them."""
    about = {"kind": "Job", "namespace": NS, "name": name, "uid": uid}
    metadata = {"namespace": NS, "name": f"{name}.{reason.lower()}"}
    event = {
        "metadata": metadata,
        "involvedObject": about,
        "reason": reason,
        "type": "Normal",
        "message": "m",
        "lastTimestamp": api_time(scene.world.clock() - HOUR_S),
    }
    scene.world.add(EVENTS, event)
