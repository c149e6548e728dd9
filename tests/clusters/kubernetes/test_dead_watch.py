"""A watch whose connection died tells nothing, and nobody notices for minutes: nothing is decided by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.core.model.events import RunStalled, RunStarted
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.kinds import an_object
from tests.clusters.kubernetes.scene import BIND_LIMIT_S, Scene, a_job, play

#: Virtual seconds after which a sweep has seen what is over its limit.
SWEPT_S = BIND_LIMIT_S + 40


async def unseen(scene: Scene, *, adopted: bool) -> str:
    """A job that runs, and none of whose pods the watch tells of."""
    await scene.mute_watches(PODS)
    name = await scene.adopt(a_job(args=("500", "0"))) if adopted else scene.submit(args=("500", "0")).id
    await scene.start(name, "n0")
    await scene.until(scene.running)
    return name


@pytest.mark.parametrize("adopted", [False, True], ids=["submitted", "adopted"])
def test_a_run_whose_pods_a_dead_watch_does_not_show_goes_on(tmp_path: Path, adopted: bool) -> None:
    async def act(scene: Scene) -> None:
        name = await unseen(scene, adopted=adopted)
        await scene.pass_time(SWEPT_S)
        assert (scene.ends, scene.running()) == ([], 1)
        await scene.until(lambda: RunStarted(name, 1) in scene.reports, 400.0)
        assert scene.ends == []

    play(tmp_path, act)


def test_a_run_that_began_while_the_server_was_away_goes_on(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.chakra = False
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: any(isinstance(event, RunStalled) for event in scene.reports))
        scene.world.fail("", times=10**6)
        scene.world.cut_watches()
        scene.world.chakra = True
        scene.world.nudge()
        await scene.pass_time(SWEPT_S)
        scene.world.heal()
        scene.world.fail("WATCH", status=500, times=10**6)  # the sweeper is there before the watches
        await scene.pass_time(SWEPT_S)
        assert (scene.ends, scene.running()) == ([], 1)
        scene.world.heal()
        await scene.until(lambda: RunStarted("a", 1) in scene.reports)
        assert scene.ends == []

    play(tmp_path, act)


def test_a_run_that_has_ended_is_not_over_its_time_limit(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("5", "0"), activeDeadlineSeconds=10)
        await scene.start("a", "n0")
        await scene.until(lambda: RunStarted("a", 1) in scene.reports)
        await scene.mute_watches(JOBS, PODS)
        await scene.pass_time(60.0)
        assert scene.jobs() == ["a-1"]
        await scene.until(lambda: scene.ends, 400.0)
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act)


@pytest.mark.parametrize("adopted", [False, True], ids=["submitted", "adopted"])
def test_the_end_of_a_run_that_has_ended_by_itself_counts_though_it_is_stopped(
    tmp_path: Path, adopted: bool
) -> None:
    async def act(scene: Scene) -> None:
        name = await scene.adopt() if adopted else scene.submit().id
        await scene.start(name, "n0")
        await scene.until(lambda: RunStarted(name, 1) in scene.reports)
        await scene.mute_watches(JOBS)
        job = scene.jobs()[0]
        await scene.until(lambda: "Complete" in scene.conditions(job))
        await scene.cluster.stop(name, 1, 1.0)
        assert "starburst.io/stopping" not in scene.marks(job)
        assert len(scene.pods()) == 1
        await scene.until(lambda: scene.ends, 400.0)
        assert scene.ends == [(name, 1, "exited")]

    play(tmp_path, act)


@pytest.mark.parametrize("compacted", [False, True], ids=["watched-on", "listed-again"])
def test_a_stopped_run_of_a_job_that_stays_has_ended_when_its_pods_are_gone_whatever_the_watch_says(
    tmp_path: Path, compacted: bool
) -> None:
    async def act(scene: Scene) -> None:
        name = await unseen(scene, adopted=True)
        with pytest.raises(RuntimeError, match="no watch has told"):
            await scene.cluster.stop(name, 1, 5.0)
        assert scene.the(JOBS, "train")["spec"]["parallelism"] == 0
        await scene.pass_time(0.5)
        assert (len(scene.pods()), scene.ends) == (1, [])
        await scene.until(lambda: not scene.pods())
        if compacted:
            scene.world.forget()
        await scene.cluster.stop(name, 1, 5.0)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(name, 1, "stopped")]
        await scene.pass_time(200.0)  # the watch is back
        await scene.start(name, "n0")
        await scene.until(scene.running)

    play(tmp_path, act)


async def stopped(scene: Scene, job_id: str) -> None:
    """As the performer does it: asked again after a pause, until it succeeds."""
    while True:
        try:
            await scene.cluster.stop(job_id, 1, 5.0)
        except RuntimeError:
            await scene.pass_time(1.0)
        else:
            return


@pytest.mark.parametrize("kind", ["submitted", "Job", "Pod"])
def test_the_end_of_a_run_that_no_watch_ever_showed_is_told_and_cancels_no_job(
    tmp_path: Path, kind: str
) -> None:
    async def act(scene: Scene) -> None:
        job_id = scene.submit(args=("500", "0")).id
        if kind != "submitted":
            job_id = await scene.adopt(an_object(kind, "500", "0")[0])
        await scene.mute_watches(PODS, JOBS)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await stopped(scene, job_id)
        scene.world.forget()  # the watches list again
        await scene.pass_time(200.0)
        assert set(scene.ends) == {(job_id, 1, "stopped")}
        assert (scene.cancels, scene.pods()) == ([], [])

    play(tmp_path, act)


def test_the_sweeper_ends_again_what_it_ended_while_the_watch_was_dead(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        name = await unseen(scene, adopted=True)
        with pytest.raises(RuntimeError, match="no watch has told"):
            await scene.cluster.stop(name, 1, 5.0)
        await scene.until(lambda: scene.ends, 60.0)
        assert (scene.ends, scene.pods()) == ([(name, 1, "stopped")], [])

    play(tmp_path, act)
