"""A watch that begins anew in one process, as after a shortage: what went away meanwhile is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starburst.core.model.events import RunEnd
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.scene import NS, Scene, play


@asynccontextmanager
async def unwatched(scene: Scene) -> AsyncIterator[None]:
    """The watch ends, and begins again after the block; the process lives on."""
    assert scene._watching is not None
    scene._watching.cancel()
    with suppress(asyncio.CancelledError):
        await scene._watching
    yield
    await scene.watch()


async def running(scene: Scene, seconds: str = "500") -> None:
    scene.submit(args=(seconds, "0"))
    await scene.start("a", "n0")
    await scene.until(scene.running)
    await scene.pass_time(1)


def remove(scene: Scene) -> None:
    scene.world.remove(JOBS, NS, "a-1")
    for pod in scene.pods():
        scene.world.remove(PODS, NS, pod["metadata"]["name"])


def test_a_run_whose_job_went_away_meanwhile_is_lost(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await running(scene)
        async with unwatched(scene):
            remove(scene)
        await scene.until(lambda: scene.ends)
        await scene.pass_time(20)
        assert scene.ends == [("a", 1, "lost")]
        assert scene.synced[-1].known == frozenset()

    play(tmp_path, act)


def test_one_that_was_being_ended_ends_as_was_noted(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await running(scene)
        async with unwatched(scene):
            await scene.cluster._end(("a", 1), RunEnd.OUT_OF_TIME, 1.0, "it took too long")
            await scene.until(lambda: not scene.jobs() and not scene.pods())
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "out-of-time")]
        assert scene.reports_of("a")[0].message == "it took too long"

    play(tmp_path, act)


def test_a_pod_that_was_replaced_meanwhile_does_not_keep_its_run_from_ending(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await running(scene, "5")
        async with unwatched(scene):
            (pod,) = scene.pods()
            scene.world.remove(PODS, NS, pod["metadata"]["name"])
            await scene.until(scene.running)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act)


def test_what_is_still_there_goes_on(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await running(scene, "30")
        for _ in range(2):
            async with unwatched(scene):
                pass
        assert scene.ends == []
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]
        assert len(scene.world.ran) == 1

    play(tmp_path, act)
