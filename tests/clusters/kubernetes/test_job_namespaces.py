"""Jobs are watched in all namespaces where that is allowed, else in those where jobs are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.domain.job import Phase
from starburst.kube.operator_kinds import KINDS
from starburst.kube.resources import JOBS, PODS
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


async def one_in_each(scene: Scene) -> None:
    """Runs "a" in the namespace of the config, and "b" elsewhere; Starburst is down."""
    scene.world.allows = only_by_namespace
    await scene.watch()
    for job_id, node, namespace in (("a", "n0", NS), ("b", "n1", "elsewhere")):
        scene.submit(job_id, args=("500", "0"), namespace=namespace)
        await scene.start(job_id, node)
    await scene.until(lambda: scene.running() == 2)
    await scene.die()


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("what", ["jobs", "persistentvolumeclaims"])
def test_one_namespace_that_cannot_be_listed_holds_up_no_other_and_nothing_is_lost_there(
    tmp_path: Path, status: int, what: str
) -> None:
    async def act(scene: Scene) -> None:
        await one_in_each(scene)
        scene.world.fail(f"/namespaces/elsewhere/{what}", times=10**6, status=status)
        await scene.watch()
        assert scene.synced[-1].known == {("a", 1), ("b", 1)}
        assert len(scene.nodes.nodes) == 2
        await scene.pass_time(30)
        assert (scene.ends, scene.cancels, scene.running()) == ([], [], 2)
        scene.world.heal()
        await scene.until(lambda: scene.ends, limit_s=1500.0)
        await scene.until(lambda: len(scene.ends) == 2)
        assert sorted(scene.ends) == [("a", 1, "exited"), ("b", 1, "exited")]

    play(tmp_path, act, watching=False)


@pytest.mark.parametrize("pods", [True, False])
def test_what_is_gone_there_is_told_once_it_can_be_listed(tmp_path: Path, pods: bool) -> None:
    async def act(scene: Scene) -> None:
        await one_in_each(scene)
        scene.world.remove(JOBS, "elsewhere", "b-1")
        for pod in scene.world.all(PODS, "elsewhere") if not pods else ():
            scene.world.remove(PODS, "elsewhere", pod["metadata"]["name"])
        scene.world.fail("/namespaces/elsewhere/", times=10**6, status=403)
        await scene.watch()
        await scene.pass_time(30)
        assert (scene.ends, scene.running()) == ([], 1 + pods)
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("b", 1, "stopped" if pods else "lost")]
        assert scene.running() == 1

    play(tmp_path, act, watching=False)


def test_an_adopted_job_that_was_deleted_there_is_cancelled_once_it_can_be_listed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, elsewhere())
        await scene.until(lambda: scene.desk.submissions)
        (job_id,) = scene.desk.submissions
        scene.take_up(job_id)
        scene.world.allows = only_by_namespace
        await scene.die()
        scene.world.delete(JOBS, "elsewhere", "away")
        scene.world.fail("/namespaces/elsewhere/", times=10**6, status=403)
        await scene.watch()
        await scene.pass_time(30)
        assert scene.cancels == []
        scene.world.heal()
        await scene.until(lambda: scene.cancels)
        assert (scene.cancels, scene.ends) == ([job_id], [])

    play(tmp_path, act)


@pytest.mark.parametrize("plural", ["nodes", "pods"])
def test_nothing_is_told_before_nodes_and_pods_are_listed(tmp_path: Path, plural: str) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail(f"GET /api/v1/{plural}", times=10**6, status=403)
        scene.start_watching()
        await scene.pass_time(30)
        assert not scene.reports
        scene.world.heal()
        await scene.until(lambda: scene.synced)

    play(tmp_path, act, watching=False)


def test_nor_does_a_kind_of_an_operator_that_cannot_be_listed_hold_up_anything(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        kind = next(each for each in KINDS if each.name == "JobSet")
        scene.world.custom[kind.resource.api_version] = [kind.resource.plural]
        scene.world.fail(f"GET {kind.resource.path()}", times=10**6, status=403)
        await scene.watch()

    play(tmp_path, act, watching=False)
