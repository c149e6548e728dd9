"""Answers of 404 that name no object, by a proxy or of what is not served: nothing is gone by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.kube import names
from starburst.kube.errors import ApiError
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.kinds import KINDS, an_object
from tests.clusters.kubernetes.scene import Scene, play
from tests.clusters.kubernetes.test_operator_objects import JOBSET, adopted

OF_A_PROXY = {"status": 404, "message": "404 page not found"}
UNSERVED = {
    "status": 404,
    "reason": "NotFound",
    "message": "the server could not find the requested resource",
}
ANSWERS = pytest.mark.parametrize("answer", [OF_A_PROXY, UNSERVED], ids=["proxy", "unserved"])


@KINDS
@ANSWERS
def test_a_start_that_meets_one_does_not_cancel_its_job(
    tmp_path: Path, kind: str, answer: dict[str, Any]
) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind, "5", "0")
        job_id = await scene.adopt(item)
        run = scene.place(job_id, "n0")
        scene.world.fail(f"GET {resource.path('team', 'train')}", **answer)
        with pytest.raises(ApiError):
            await scene.cluster.start(run)
        scene.world.heal()
        await scene.cluster.start(run)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "exited")], [])

    play(tmp_path, act)


def test_nor_does_that_of_an_operators_object_whose_kind_is_not_served_and_it_is_no_outage(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await adopted(scene, JOBSET)
        run = scene.place(job_id, "n0", "n1")
        scene.world.fail(f"GET {JOBSET.resource.path()}", times=10**6, **UNSERVED)
        scene.world.fail(f"GET {JOBSET.resource.path('team', 'train')}", times=10**6, **UNSERVED)
        with pytest.raises(RuntimeError, match="does not tell of its JobSet"):
            await scene.cluster.start(run)
        assert (scene.ends, scene.cancels) == ([], [])

    play(tmp_path, act, watching=False, minor="34")


@ANSWERS
def test_a_stop_that_meets_one_tells_no_end_and_is_made_again(tmp_path: Path, answer: dict[str, Any]) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        for of in ("GET", "PATCH", "DELETE"):
            scene.world.fail(f"{of} {JOBS.path('team', 'a-1')}", **answer)
            with pytest.raises(ApiError):
                await scene.cluster.stop("a", 1, 5.0)
            assert (scene.ends, scene.running()) == ([], 1)
        await scene.cluster.stop("a", 1, 5.0)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.pods()) == ([("a", 1, "stopped")], [])

    play(tmp_path, act)


@ANSWERS
def test_what_a_job_shows_is_written_again_after_one(tmp_path: Path, answer: dict[str, Any]) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail(f"PATCH {JOBS.path('team', 'train')}/status", times=2, **answer)
        await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])

    play(tmp_path, act)


@ANSWERS
def test_a_run_that_lost_the_label_of_its_queue_is_not_gone_by_one(
    tmp_path: Path, answer: dict[str, Any]
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("60", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.fail(f"GET {JOBS.path('team', 'a-1')}", times=3, **answer)
        scene.world.change(JOBS, "team", "a-1", {"metadata": {"labels": {names.QUEUE: None}}})
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([("a", 1, "exited")], [])

    play(tmp_path, act)
