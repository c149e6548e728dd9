"""A user's Job or Pod whose job leaves for the cloud has no pod here, and ends as it ended there."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.domain.job import Phase, Site
from starburst.kube import names
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.scene import NS, Scene, a_job, a_pod, play

SERVERS = pytest.mark.parametrize("minor", ["20", "29"])


@SERVERS
def test_one_that_leaves_for_the_cloud_loses_its_pods_and_ends_complete_when_it_did(
    tmp_path: Path, minor: str
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        await scene.until(scene.pods)
        scene.away(job_id)
        await scene.until(lambda: not scene.pods())
        spec = scene.the(JOBS, "train")["spec"]
        assert spec.get("suspend", False) is (minor != "20")
        assert spec.get("parallelism", 1) == (0 if minor == "20" else 1)
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Offloaded"])
        scene.away(job_id, Phase.RUNNING)
        await scene.pass_time(30)
        scene.end(job_id, Phase.SUCCEEDED, 0, "finished after 30 s")
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert {"Complete", "SuccessCriteriaMet"} <= set(scene.conditions("train"))
        assert scene.the(JOBS, "train")["status"]["completionTime"]
        assert scene.the(JOBS, "train")["status"]["succeeded"] == 1
        marks = scene.marks("train")
        assert (marks[names.EXIT_CODE], marks[names.LOGS]) == ("0", f"starburst logs {job_id}")
        assert "ran in the cloud" in marks[names.DECISION]
        assert (scene.world.ran, scene.ends, scene.cancels) == ([], [], [])
        assert len(scene.events("Offloaded")) >= 1

    play(tmp_path, act, minor=minor)


def test_one_that_ended_long_ago_while_the_api_server_was_away_ends_all_the_same(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        await scene.until(scene.pods)
        await scene.die()
        scene.desk.records[job_id].phase = Phase.FAILED
        scene.desk.records[job_id].message = "failed; its own words are kept no longer (home.keep)"
        scene.desk.roll_up(job_id)
        await scene.watch()
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert {"Failed", "FailureTarget"} <= set(scene.conditions("train"))
        assert not scene.pods()

    play(tmp_path, act)


@SERVERS
def test_one_that_fails_in_the_cloud_ends_failed_with_its_exit_code(tmp_path: Path, minor: str) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(tasks=2))
        scene.away(job_id)
        scene.away(job_id, Phase.RUNNING)
        scene.end(job_id, Phase.FAILED, 3)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert {"Failed", "FailureTarget"} <= set(scene.conditions("train"))
        assert "completionTime" not in scene.the(JOBS, "train")["status"]
        assert scene.marks("train")[names.EXIT_CODE] == "3"

    play(tmp_path, act, minor=minor)


@pytest.mark.parametrize(
    ("counter", "phase", "end"),
    [("failed", Phase.FAILED, "Failed"), ("succeeded", Phase.SUCCEEDED, "Complete")],
)
def test_its_end_counts_no_fewer_pods_than_ended_here_before(
    tmp_path: Path, counter: str, phase: Phase, end: str
) -> None:
    """Newer servers refuse that; so the end would never be written."""

    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.world.change(JOBS, NS, "train", {"status": {counter: 2}})
        scene.away(job_id)
        scene.away(job_id, Phase.RUNNING)
        scene.end(job_id, phase, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert end in scene.conditions("train")
        assert scene.the(JOBS, "train")["status"][counter] == 2

    play(tmp_path, act, minor="32")


@SERVERS
def test_one_that_comes_home_runs_here_after_all(tmp_path: Path, minor: str) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.away(job_id)
        await scene.until(lambda: not scene.pods())
        scene.away(job_id, Phase.RUNNING)
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 2, "exited")]
        assert len(scene.world.ran) == 1
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert "Complete" in scene.conditions("train")

    play(tmp_path, act, minor=minor)


def test_a_bare_pod_that_ran_in_the_cloud_ends_in_its_status(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod())
        scene.away(job_id)
        scene.away(job_id, Phase.RUNNING)
        await scene.until(lambda: scene.conditions("alone", PODS) == ["starburst.io/Offloaded"])
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("alone", PODS))
        assert scene.the(PODS, "alone")["status"]["phase"] == "Succeeded"
        scene.world.delete(PODS, NS, "alone")
        await scene.pass_time(5)
        assert (scene.cancels, scene.world.ran) == ([], []), "who clears up what is over cancels nothing"

    play(tmp_path, act)


def test_the_end_of_one_that_finished_in_the_cloud_while_nobody_watched_is_written(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.away(job_id, Phase.RUNNING)
        await scene.until(lambda: not scene.pods())
        await scene.die()
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.watch()
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert "Complete" in scene.conditions("train")

    play(tmp_path, act)


@pytest.mark.parametrize("moment", range(5))
def test_a_restart_at_any_moment_of_an_offload_changes_nothing(tmp_path: Path, moment: int) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        steps = iter(range(5))

        async def step() -> None:
            if next(steps) == moment:
                await scene.restart()

        await step()
        scene.away(job_id)
        await step()
        await scene.until(lambda: not scene.pods())
        scene.away(job_id, Phase.RUNNING)
        await step()
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await step()
        await scene.until(lambda: "Complete" in scene.conditions("train"))
        await step()
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert (scene.world.ran, scene.ends, scene.cancels) == ([], [], [])
        assert scene.desk.records[job_id].site is Site.CLOUD

    play(tmp_path, act)
