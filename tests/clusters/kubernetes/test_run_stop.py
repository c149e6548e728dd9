"""A run that is stopped, or whose Job is deleted, has ended when its last pod is gone, not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.domain.job import Phase
from starburst.kube.errors import ApiUnreachableError
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.scene import NS, Scene, play


def test_a_stop_ends_the_pod_within_its_grace_and_is_told_when_it_is_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.cluster.stop("a", 1, 7.5)
        graces = [c.body["gracePeriodSeconds"] for c in scene.world.asked if is_pod_deletion(c)]
        assert graces in ([], [8])
        assert scene.ends == []
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.pods(), scene.cancels) == ([("a", 1, "stopped")], [], [])

    play(tmp_path, act)


def is_pod_deletion(call: Any) -> bool:
    return bool(call.method == "DELETE" and "/pods/" in call.path)


def test_no_grace_is_a_second_for_with_none_at_all_a_pod_is_forgotten_while_it_lives(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.controller = False  # so that it is we who delete the pod
        await scene.cluster.stop("a", 1, 0.0)
        graces = [c.body["gracePeriodSeconds"] for c in scene.world.asked if is_pod_deletion(c)]
        assert graces == [1]
        scene.world.controller = True

    play(tmp_path, act)


@pytest.mark.parametrize("watching", [True, False], ids=["watching", "before-the-watch"])
def test_a_stop_of_a_run_that_never_was_says_so(tmp_path: Path, watching: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        scene.place("a", "n0")
        await scene.cluster.stop("a", 1, 1.0)
        if not watching:
            await scene.watch()
        assert scene.ends == [("a", 1, "stopped")]

    play(tmp_path, act, watching=watching)


def test_a_creation_that_comes_through_after_its_stop_is_taken_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        late = scene.place("a", "n0")
        await scene.cluster.stop("a", 1, 1.0)
        assert scene.ends == [("a", 1, "stopped")]
        await scene.cluster.start(late)
        await scene.until(lambda: not scene.jobs())
        await scene.until(lambda: not scene.pods())

    play(tmp_path, act)


def test_pods_that_outlive_their_job_are_ended_before_the_run_counts_as_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.die()
        scene.world.controller = False
        scene.world.remove(JOBS, NS, "a-1")  # deleted, its pods orphaned
        await scene.watch()
        assert scene.synced[-1].known == {("a", 1)}, "it is not lost: its pod lives"
        assert scene.ends == []
        await scene.until(lambda: scene.ends)
        assert (scene.pods(), scene.ends) == ([], [("a", 1, "stopped")])

    play(tmp_path, act)


def test_a_job_that_its_user_deletes_is_cancelled(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.delete(JOBS, NS, "a-1")
        await scene.until(lambda: scene.ends)
        assert (scene.cancels, scene.ends) == (["a"], [("a", 1, "stopped")])

    play(tmp_path, act)


@pytest.mark.parametrize("moment", range(5))
def test_a_restart_at_any_moment_of_a_stop_changes_nothing(tmp_path: Path, moment: int) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.desk.records["a"].phase = Phase.STOPPING
        if moment == 1:
            scene.world.fail("PATCH", done=True)
        if moment == 2:
            scene.world.fail("DELETE", done=True)
        if moment:
            try:
                await scene.cluster.stop("a", 1, 5.0)
            except ApiUnreachableError:
                assert moment in (1, 2)
        if moment == 4:
            await scene.until(lambda: scene.ends)
        await scene.die()
        await scene.cluster.stop("a", 1, 5.0)  # still owed
        await scene.watch()
        await scene.until(lambda: scene.ends)
        assert set(scene.ends) == {("a", 1, "stopped")}
        assert (scene.cancels, scene.jobs(), scene.pods()) == ([], [], [])

    play(tmp_path, act)
