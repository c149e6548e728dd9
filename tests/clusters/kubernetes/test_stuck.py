"""Runs that hold GPUs and cannot use them give them back, and say why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from starburst.clusters.kubernetes.run_registry import RunRegistry
from starburst.clusters.kubernetes.stalled_runs import StartLimits, why_stalled
from starburst.core.model.events import RunEnded, RunStarted
from tests.clusters.kubernetes.scene import BIND_LIMIT_S, START_LIMIT_S, Scene, play
from tests.clusters.kubernetes.views import ME, a_job, a_pod

LIMITS = StartLimits(60.0, 1800.0)


def judged(**pod: Any) -> tuple[str, float]:
    """What is said of a Job with one such pod."""
    book, job = RunRegistry(ME), a_job()
    book.job_changed(None, job)
    book.pod_changed(None, a_pod(job=job, **pod))
    (unit,) = book
    return why_stalled(unit, LIMITS)


@pytest.mark.parametrize(
    ("reason", "message", "told"),
    [
        ("ErrImagePull", "not found", ("its container waits: ErrImagePull: not found", 60.0)),
        ("ImagePullBackOff", "", ("its container waits: ImagePullBackOff", 60.0)),
        ("CreateContainerConfigError", 'secret "s" not found', None),
        ("ContainerCreating", "", ("its container is not up: kubectl describe pod p says why", 1800.0)),
        ("", "", ("its container is not up: kubectl describe pod p says why", 1800.0)),
        ("PodInitializing", "", ("", 0.0)),
        ("CrashLoopBackOff", "", ("", 0.0)),
    ],
)
def test_what_a_bound_pod_waits_for(reason: str, message: str, told: tuple[str, float] | None) -> None:
    found = judged(node="n0", reason=reason, message=message)
    assert found == (told or (f"its container waits: {reason}: {message}", 60.0))


def test_a_pod_that_runs_is_not_stuck_and_one_that_cannot_be_bound_is() -> None:
    assert judged(node="n0", phase="Running") == ("", 0.0)
    assert judged(unschedulable="no room on n0") == ("no room on n0", 60.0)


def end_of(scene: Scene) -> RunEnded:
    return next(event for event in scene.reports if isinstance(event, RunEnded))


@pytest.mark.parametrize("adopted", [False, True], ids=["submitted", "adopted"])
def test_an_image_that_is_not_there_is_waited_for_as_long_as_a_binding(tmp_path: Path, adopted: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.world.waits_for = ("ErrImagePull", "manifest unknown")
        name = await scene.adopt() if adopted else scene.submit().id
        began = asyncio.get_running_loop().time()
        await scene.start(name, "n0")
        await scene.until(lambda: scene.ends)
        took = asyncio.get_running_loop().time() - began
        assert BIND_LIMIT_S < took < BIND_LIMIT_S + 20
        assert scene.ends == [(name, 1, "not-started")]
        assert end_of(scene).message == "its container waits: ErrImagePull: manifest unknown"
        assert not scene.pods()
        scene.world.waits_for = None
        await scene.start(name, "n0")
        await scene.until(lambda: scene.ends[1:] == [(name, 2, "exited")])

    play(tmp_path, act)


def test_a_big_image_has_its_time(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.waits_for = ("ContainerCreating", "")
        scene.submit()
        await scene.start("a", "n0")
        await scene.pass_time(START_LIMIT_S - 60)
        assert not scene.ends
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "not-started")]
        assert not any(isinstance(event, RunStarted) for event in scene.reports)

    play(tmp_path, act)


def test_why_it_was_taken_back_survives_a_restart(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.waits_for = ("ErrImagePull", "manifest unknown")
        name = await scene.adopt()
        await scene.start(name, "n0")
        await scene.until(lambda: "starburst.io/stopping" in scene.marks("train"))
        await scene.restart()
        await scene.until(lambda: scene.ends)
        assert end_of(scene).message == "its container waits: ErrImagePull: manifest unknown"

    play(tmp_path, act)
