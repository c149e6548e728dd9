"""Fields of newer servers stay on a user's Job, whatever becomes of it: placed, away, home again, over."""

from __future__ import annotations

import copy
from pathlib import Path

from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.newer_objects import newer_job
from tests.clusters.kubernetes.scene import NS, Scene, play
from tests.kube_unit.store import Object


def same_but(spec: Object, asked: Object, *fields: str) -> bool:
    """Whether a spec is what its user wrote, but for fields that Starburst may change."""
    return {key: value for key, value in spec.items() if key not in fields} == asked


def test_one_that_leaves_and_comes_home_is_as_its_user_wrote_it(tmp_path: Path) -> None:
    asked = newer_job()

    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(copy.deepcopy(asked))
        status = {"terminating": 0, "ready": 0, "uncountedTerminatedPods": {}, "failedIndexes": ""}
        scene.world.change(JOBS, NS, "train", {"status": status})
        scene.away(job_id)
        await scene.until(lambda: scene.the(JOBS, "train")["spec"].get("suspend"))
        assert same_but(scene.the(JOBS, "train")["spec"], asked["spec"], "suspend")
        scene.away(job_id, Phase.RUNNING)
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 2, "exited")]
        (pod,) = scene.pods()
        assert pod["spec"]["initContainers"] == asked["spec"]["template"]["spec"]["initContainers"]
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        there = scene.the(JOBS, "train")
        assert same_but(there["spec"], asked["spec"], "suspend", "parallelism")
        assert there["spec"]["parallelism"] == 1, "what it is without a word"
        assert there["status"]["failedIndexes"] == ""
        assert "Complete" in scene.conditions("train")

    play(tmp_path, act, minor="34")


def test_one_that_ended_elsewhere_is_complete_and_as_its_user_wrote_it(tmp_path: Path) -> None:
    asked = newer_job()

    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(copy.deepcopy(asked))
        scene.away(job_id)
        scene.away(job_id, Phase.RUNNING)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        assert {"SuccessCriteriaMet", "Complete"} <= set(scene.conditions("train"))
        assert same_but(scene.the(JOBS, "train")["spec"], asked["spec"], "suspend")

    play(tmp_path, act, minor="34")
