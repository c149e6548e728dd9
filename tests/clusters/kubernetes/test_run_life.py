"""A run on a Kubernetes that lives (see `world.py`) is one Job: started once, and ended as its pods end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.core.model.events import RunStarted
from starburst.kube import names
from starburst.kube.errors import ApiUnreachableError
from starburst.kube.resources import JOBS
from starburst.runs.ports import Run
from tests.clusters.kubernetes.scene import Scene, a_job, play


def test_a_run_is_a_job_that_chakra_binds_and_its_end_is_reported(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("5", "3"))
        await scene.start("a", "n1")
        await scene.until(lambda: scene.ends)
        assert scene.reports[-2:-1] == [RunStarted("a", 1)]
        assert scene.ends == [("a", 1, "exited")]
        assert scene.reports[-1].exit_code == 3  # type: ignore[union-attr]
        assert scene.world.ran == [("a-1", "1", "n1")]
        assert "starts on n1" in scene.marks("a-1")[names.DECISION]

    play(tmp_path, act)


def test_a_gang_goes_to_its_nodes_and_ends_as_one(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(tasks=2)
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.ends)
        assert sorted(scene.world.ran) == [("a-1", "1", "n0"), ("a-1", "1", "n1")]
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act)


@pytest.mark.parametrize("watching", [True, False], ids=["watching", "before-the-watch"])
def test_starting_twice_is_starting_once(tmp_path: Path, watching: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        placed = await scene.start("a", "n0")
        await scene.cluster.start(placed)
        assert scene.jobs() == ["a-1"]

    play(tmp_path, act, watching=watching)


@pytest.mark.parametrize("fault", [{"done": True}, {"done": False}], ids=["answer-lost", "call-lost"])
def test_a_creation_of_which_nobody_heard_is_repeated_without_harm(
    tmp_path: Path, fault: dict[str, bool]
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        scene.world.fail("POST /apis/batch/v1", **fault)
        with pytest.raises(ApiUnreachableError):
            await scene.start("a", "n0")
        await scene.cluster.start(scene_run(scene))
        await scene.until(lambda: scene.ends)
        assert scene.world.ran == [("a-1", "1", "n0")]

    play(tmp_path, act)


def scene_run(scene: Scene, job_id: str = "a") -> Any:
    """The run of a job's record, as the performer makes it anew."""
    record = scene.desk.records[job_id]
    return Run(record.job, record.attempt, record.slots, scene.desk.submissions[job_id].workload)


def test_a_crash_between_creating_and_noting_it_ends_in_one_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        await scene.start("a", "n0")
        await scene.die()
        await scene.cluster.start(scene_run(scene))
        await scene.watch()
        assert scene.synced[-1].known == {("a", 1)}
        await scene.until(lambda: scene.ends)
        assert scene.world.ran == [("a-1", "1", "n0")]

    play(tmp_path, act)


def test_somebody_elses_job_of_that_name_refuses_the_run_and_is_left_alone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        theirs = a_job("a-1", suspend=None)
        del theirs["metadata"]["labels"]
        before = scene.world.add(JOBS, theirs)["metadata"]["uid"]
        scene.submit()
        await scene.start("a", "n0")
        assert scene.ends == [("a", 1, "refused")]
        await scene.cluster.stop("a", 1, 1.0)
        assert scene.the(JOBS, "a-1")["metadata"]["uid"] == before
        assert "deletionTimestamp" not in scene.the(JOBS, "a-1")["metadata"]

    play(tmp_path, act)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_the_server_will_never_take_is_refused_in_its_words(tmp_path: Path, status: int) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        scene.world.fail("POST /apis/batch/v1", status=status, reason="Invalid")
        await scene.start("a", "n0")
        assert scene.ends == [("a", 1, "refused")]
        assert "as ordered" in scene.reports[-1].message  # type: ignore[union-attr]

    play(tmp_path, act)


def test_when_a_gang_loses_a_pod_the_others_are_ended_before_it_fails(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"), tasks=2)
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.running() == 2)
        scene.world.end_pod(scene.pods()[0], 7)
        await scene.until(lambda: scene.ends)
        assert (scene.running(), scene.ends) == (0, [("a", 1, "exited")])
        assert scene.reports[-1].exit_code == 7  # type: ignore[union-attr]

    play(tmp_path, act)


def test_a_pod_that_the_job_controller_makes_again_is_the_same_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("20", "0"), tasks=2, backoffLimit=3))
        await scene.start(job_id, "n0", "n1")
        await scene.until(lambda: scene.running() == 2)
        scene.world.end_pod(scene.pods()[0], 7)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, len(scene.world.ran)) == ([(job_id, 1, "exited")], 3)
        assert scene.reports.count(RunStarted(job_id, 1)) == 1
        assert scene.reports[-1].exit_code == 0  # type: ignore[union-attr]

    play(tmp_path, act)


async def restarted(scene: Scene, owed: Run) -> None:
    """Killed, and come back with a start that is still owed."""
    await scene.die()
    await scene.cluster.start(owed)
    await scene.watch()


@pytest.mark.parametrize("moment", range(6))
def test_a_restart_at_any_moment_of_a_run_changes_nothing(tmp_path: Path, moment: int) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("2", "0"))
        placed = scene.place("a", "n0")
        steps = 0

        async def step() -> None:
            nonlocal steps
            if steps == moment:
                await restarted(scene, placed)
            steps += 1

        await step()
        await scene.cluster.start(placed)
        await step()
        await scene.until(scene.pods)
        await step()
        await scene.until(lambda: scene.running() or scene.ends)
        await step()
        await scene.until(lambda: scene.the(JOBS, "a-1").get("status", {}).get("conditions"))
        await step()
        await scene.until(lambda: scene.ends)
        await step()
        assert set(scene.ends) == {("a", 1, "exited")}
        assert scene.world.ran == [("a-1", "1", "n0")]

    play(tmp_path, act)
