"""A run whose pods lose their place, or get none for long, is taken back; no other one is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starburst.core.model.events import RunStarted
from starburst.kube import names
from starburst.kube.resources import PODS
from tests.clusters.kubernetes.scene import NS, Scene, play


def test_a_drained_node_displaces_its_run_once_chakra_finds_no_room_for_long_enough(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.cordoned.add("n0")
        (pod,) = scene.pods()
        began = asyncio.get_running_loop().time()
        scene.world.delete(PODS, NS, pod["metadata"]["name"])  # as an eviction does
        await scene.until(lambda: scene.ends)
        assert asyncio.get_running_loop().time() - began > 30
        assert (scene.ends, scene.jobs(), scene.cancels) == ([("a", 1, "displaced")], [], [])

    play(tmp_path, act)


def test_a_job_whose_pods_cannot_be_made_does_not_hold_its_place_for_ever(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.controller = False  # as if a quota did not let it
        scene.submit()
        await scene.start("a", "n0")
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.jobs()) == ([("a", 1, "not-started")], [])
        message = scene.reports[-1].message  # type: ignore[union-attr]
        assert message == "its pods are not made: kubectl describe job a-1 says why"

    play(tmp_path, act)


def test_a_pod_that_the_kubelet_throws_out_displaces_its_run_at_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.end_pod(scene.pods()[0], 0, "Evicted")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "displaced")]
        await scene.start("a", "n1")
        await scene.until(lambda: len(scene.world.ran) == 2)

    play(tmp_path, act)


def test_what_was_only_half_stopped_when_the_server_went_away_is_stopped_later(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        scene.world.cordoned.add("n0")
        await scene.start("a", "n0")
        scene.world.fail("DELETE /apis/batch", times=1, status=500)
        await scene.until(lambda: names.STOPPING in scene.marks("a-1"))
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "not-started")]

    play(tmp_path, act)


def test_a_run_that_was_stopped_while_no_watch_heard_of_it_is_not_taken_for_cancelled(tmp_path: Path) -> None:
    """Its Job is missing in the next list, and its mark was never seen."""

    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.fail("WATCH", times=10**6, status=500)
        scene.world.cut_watches()
        await scene.pass_time(1)
        await scene.cluster.stop("a", 1, 5.0)
        await scene.until(lambda: not scene.jobs())
        scene.world.forget()
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([("a", 1, "stopped")], [])

    play(tmp_path, act)


def test_a_restart_that_takes_long_to_hear_of_all_pods_takes_no_run_back_for_want_of_them(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.die()
        scene.world.fail("GET /api/v1/pods", times=10**6)
        scene.start_watching()
        await scene.pass_time(100)
        assert len(scene.synced) == 1, "it has not heard of all pods"
        assert names.STOPPING not in scene.marks("a-1")
        scene.world.heal()
        await scene.until(lambda: RunStarted("a", 1) in scene.reports[-3:])
        assert scene.ends == []

    play(tmp_path, act)
