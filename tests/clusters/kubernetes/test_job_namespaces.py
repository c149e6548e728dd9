"""Jobs are watched in all namespaces where that is allowed, else in those where jobs are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starburst.domain.job import Phase
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play


def watched(scene: Scene) -> set[str]:
    """The paths under which Jobs were watched."""
    return {call.path for call in scene.world.asked if call.query.get("watch") and "/jobs" in call.path}


def only_by_namespace(attributes: dict[str, Any]) -> bool:
    """RBAC of the chart with a list of namespaces."""
    return attributes["resource"] != "jobs" or bool(attributes.get("namespace"))


def elsewhere(**more: Any) -> dict[str, Any]:
    item = a_job("away", **more)
    item["metadata"]["namespace"] = "elsewhere"
    return item


def test_one_watch_of_all_namespaces_where_that_is_allowed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, elsewhere())
        await scene.until(lambda: scene.desk.submissions)
        assert watched(scene) == {JOBS.path()}

    play(tmp_path, act)


def test_else_jobs_run_and_are_adopted_in_the_namespaces_of_the_config(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.allows = only_by_namespace
        await scene.watch()
        scene.world.add(JOBS, elsewhere())
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        assert watched(scene) == {JOBS.path(NS)}
        assert list(scene.desk.submissions) == [job_id]

    play(tmp_path, act, watching=False)


def test_a_run_in_a_namespace_of_its_token_is_followed_there_also_after_a_restart(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.allows = only_by_namespace
        await scene.watch()
        scene.submit(args=("20", "0"), namespace="elsewhere")
        await scene.start("a", "n0")
        await scene.until(lambda: scene.desk.records["a"].phase is Phase.RUNNING)
        assert watched(scene) == {JOBS.path(NS), JOBS.path("elsewhere")}
        await scene.restart()
        assert scene.synced[-1].known == frozenset({("a", 1)})
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act, watching=False)


def test_an_adopted_job_is_not_cancelled_for_being_in_a_namespace_that_is_not_listed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, elsewhere())
        await scene.until(lambda: scene.desk.submissions)
        scene.take_up(*scene.desk.submissions)
        scene.world.allows = only_by_namespace
        await scene.restart()
        assert scene.cancels == []

    play(tmp_path, act)
