"""The limit of a Job is kept though its controller does not notice it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnded
from starburst.domain.job import Phase
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.scene import Scene, a_job, play

LIMIT_S = 10


@pytest.mark.parametrize("adopted", [False, True], ids=["submitted", "adopted"])
def test_a_run_ends_at_its_limit_whatever_the_job_controller_does(tmp_path: Path, adopted: bool) -> None:
    """The controller of the fake world knows no limits, as one that never armed its timer."""

    async def act(scene: Scene) -> None:
        hangs = {"args": ("5000", "0"), "activeDeadlineSeconds": LIMIT_S}
        name = await scene.adopt(a_job(**hangs)) if adopted else scene.submit(**hangs).id
        await scene.start(name, "n0")
        await scene.until(scene.running)
        began = asyncio.get_running_loop().time()
        await scene.until(lambda: scene.ends)
        assert LIMIT_S - 1 < asyncio.get_running_loop().time() - began < LIMIT_S + 40
        assert scene.ends == [(name, 1, "out-of-time")]
        (end,) = (event for event in scene.reports if isinstance(event, RunEnded))
        assert end.message == "it was active for longer than its activeDeadlineSeconds"
        assert (scene.pods(), scene.cancels) == ([], [])
        scene.end(name, Phase.FAILED)
        if adopted:
            await scene.until(lambda: "Failed" in scene.conditions("train"))

    play(tmp_path, act)


def test_one_that_is_in_time_is_left_alone_also_over_a_restart(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        name = await scene.adopt(a_job(args=("8", "0"), activeDeadlineSeconds=LIMIT_S))
        await scene.pass_time(2 * LIMIT_S)  # its wait is no part of it
        await scene.start(name, "n0")
        await scene.until(scene.running)
        await scene.restart()
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(name, 1, "exited")]
        assert "Complete" in scene.conditions("train")

    play(tmp_path, act)


def test_no_limit_runs_while_a_job_that_was_taken_back_waits(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        name = await scene.adopt(a_job(args=("500", "0"), activeDeadlineSeconds=LIMIT_S))
        await scene.start(name, "n0")
        await scene.until(scene.running)
        await scene.cluster.stop(name, 1, 1.0)
        await scene.until(lambda: scene.ends)
        assert "activeDeadlineSeconds" not in scene.the(JOBS, "train")["spec"]
        await scene.start(name, "n0")
        assert scene.the(JOBS, "train")["spec"]["activeDeadlineSeconds"] >= LIMIT_S

    play(tmp_path, act)
