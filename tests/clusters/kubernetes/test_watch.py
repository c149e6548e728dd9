"""What the core hears of the cluster: all there is, once, also after its API server was away."""

from __future__ import annotations

from pathlib import Path

from starburst.core.model.events import NodesChanged, RunStarted, SiteSynced
from starburst.domain.job import Site
from tests.clusters.kubernetes.scene import Scene, play


def test_a_sync_lists_all_there_is_once_and_last(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        for job_id, code in (("a", "0"), ("b", "1")):
            scene.submit(job_id, args=("1", code))
            await scene.start(job_id, "n0")
        scene.submit("c", args=("500", "0"))
        await scene.start("c", "n1")
        await scene.until(lambda: len(scene.ends) == 2 and scene.running() == 1)
        await scene.die()
        scene.reports.clear()
        await scene.watch()
        sync = scene.reports.index(scene.synced[0])
        told = scene.reports[:sync]
        assert scene.synced == [
            SiteSynced(Site.CLUSTER, frozenset({("a", 1), ("b", 1), ("c", 1)})),
        ]
        assert isinstance(told[0], NodesChanged)
        assert sorted(scene.ends) == [("a", 1, "exited"), ("b", 1, "exited")]
        await scene.pass_time(20)
        assert scene.synced == scene.synced[:1]
        assert len(scene.jobs()) == 3, "finished Jobs are no strays"

    play(tmp_path, act)


def test_finished_jobs_cost_the_desk_nothing_while_time_passes(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("1", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: scene.ends)
        scene.desk.asked.clear()
        await scene.pass_time(60)
        assert scene.desk.asked == []

    play(tmp_path, act)


def test_a_server_that_is_not_there_yet_is_waited_for_and_nothing_is_lost_meanwhile(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("GET", times=40)
        scene.start_watching()
        await scene.pass_time(5)
        assert scene.reports == []
        await scene.until(lambda: scene.synced)

    play(tmp_path, act, watching=False)


def test_while_the_server_is_gone_nothing_is_reported_and_afterwards_all_of_it(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("30", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: RunStarted("a", 1) in scene.reports)
        before = list(scene.reports)
        scene.world.fail("", times=10**6)
        scene.world.cut_watches()
        await scene.pass_time(100)
        assert scene.reports == before
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act)
