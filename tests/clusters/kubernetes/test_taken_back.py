"""A bare Pod that Starburst took back is not one that its user deleted, also if the end was never stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.clusters.kubernetes.runs.taken_back import REASON, end_noted
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.job import Phase
from starburst.kube.resources import PODS
from starburst.runs.ports import Run
from tests.clusters.kubernetes.scene import NS, Scene, a_pod, play

NOTE = {"of": "POST /api/v1/namespaces/team/events", "says": REASON}


async def taken_back(scene: Scene) -> tuple[str, Run]:
    """A Pod whose image is not there is adopted, started and taken back; the end is not stored."""
    scene.world.waits_for = ("ErrImagePull", "manifest unknown")
    job_id = await scene.adopt(a_pod(args=("50", "0")))
    run = await scene.start(job_id, "n0")
    await scene.until(lambda: scene.ends)
    assert scene.ends == [(job_id, 1, "not-started")]
    assert scene.find(PODS, "alone") is None
    await scene.die()
    record = scene.desk.records[job_id]
    record.phase, record.slots = Phase.STARTING, run.slots
    scene.world.waits_for = None
    return job_id, run


@pytest.mark.parametrize("owed", [False, True], ids=["started", "start owed"])
def test_a_pod_that_was_taken_back_queues_again_though_its_end_was_not_stored(
    tmp_path: Path, owed: bool
) -> None:
    async def act(scene: Scene) -> None:
        job_id, run = await taken_back(scene)
        if owed:
            await scene.cluster.start(run)
        await scene.watch()
        assert scene.cancels == []
        assert {*scene.ends} == {(job_id, 1, "not-started")}
        last = scene.reports_of(job_id)[-1]
        assert last.message == "its container waits: ErrImagePull: manifest unknown"
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends[-1] == (job_id, 2, "exited"))

    play(tmp_path, act)


def test_a_start_that_is_repeated_while_the_pod_ends_does_not_make_it_forget_why(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.waits_for = ("ErrImagePull", "manifest unknown")
        job_id = await scene.adopt(a_pod())
        run = await scene.start(job_id, "n0")
        await scene.until(lambda: "deletionTimestamp" in scene.the(PODS, "alone")["metadata"])
        await scene.die()
        with pytest.raises(RuntimeError, match="being deleted"):
            await scene.cluster.start(run)
        await scene.watch()
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "not-started")], [])

    play(tmp_path, act)


@pytest.mark.parametrize("trouble", [{"status": 403}, {"status": 404}, {"status": 500}, {}])
def test_a_note_that_cannot_be_written_keeps_no_pod_in_its_place(
    tmp_path: Path, trouble: dict[str, Any]
) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail(**NOTE, **trouble, times=10**6)
        await taken_back(scene)
        assert scene.events(REASON) == []

    play(tmp_path, act)


def test_a_note_that_could_not_be_written_at_first_is_written_before_the_pod_is_deleted(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail(**NOTE, status=500)
        job_id, _ = await taken_back(scene)
        await scene.watch()
        assert (scene.cancels, scene.ends[-1]) == ([], (job_id, 1, "not-started"))

    play(tmp_path, act)


def test_what_the_core_stops_is_not_noted(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await scene.cluster.stop(job_id, 1, 1.0)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.events(REASON)) == ([(job_id, 1, "stopped")], [])

    play(tmp_path, act)


def test_one_that_its_user_deletes_after_an_earlier_run_was_taken_back_is_cancelled(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id, _ = await taken_back(scene)
        await scene.watch()
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.desk.records[job_id].phase is Phase.RUNNING)
        await scene.die()
        scene.world.remove(PODS, NS, "alone")
        await scene.watch()
        assert scene.cancels == [job_id]

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (
            "run 2 of a: displaced the node n0 is gone",
            RunEnded("a", 2, RunEnd.DISPLACED, message="the node n0 is gone"),
        ),
        ("run 2 of a: not-started", RunEnded("a", 2, RunEnd.NOT_STARTED)),
        ("run 1 of a: displaced x", None),
        ("run 2 of ab: displaced x", None),
        ("run 2 of a: whatever x", None),
        ("", None),
    ],
)
def test_a_note_is_of_one_run(message: str, end: RunEnded | None) -> None:
    assert end_noted(("a", 2), [{"reason": REASON, "message": message}]) == end
    assert end_noted(("a", 2), [{"reason": "Killing", "message": message}, {"message": None}]) is None
