"""Nodes are told with the room that others leave: pods of runs that the core counts take none."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.core.model.events import NodesChanged
from starburst.domain.job import Phase
from starburst.kube.resources import NODES, PODS, Resource
from tests.clusters.kubernetes.scene import Scene, a_job, play
from tests.kube_unit.store import Object


def test_nodes_are_told_with_what_others_left_of_them(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        assert [(n.name, n.capacity.gpus) for n in scene.nodes.nodes] == [("n0", 4), ("n1", 4)]
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        other = a_job("other")
        del other["metadata"]["labels"]
        template = other["spec"]["template"]["spec"]
        scene.world.add(
            PODS, {"metadata": {"name": "o", "namespace": "x"}, "spec": {**template, "nodeName": "n1"}}
        )
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [4, 3])
        await scene.until(scene.running)
        scene.world.change(NODES, "", "n0", {"spec": {"unschedulable": True}})
        await scene.until(lambda: not scene.nodes.nodes[0].schedulable)
        assert [n.capacity.gpus for n in scene.nodes.nodes] == [4, 3], "our own pods are the core's to count"

    play(tmp_path, act)


def test_what_a_server_adds_to_our_pods_takes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(scene: Scene) -> None:
        add = scene.world.add

        def admitted(resource: Resource, item: Object) -> Object:
            more = {"overhead": {"cpu": "500m"}} if resource == PODS else {}
            return add(resource, {**item, "spec": {**item["spec"], **more}} if more else item)

        monkeypatch.setattr(scene.world, "add", admitted)
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: scene.nodes.nodes[0].capacity.cpu_milli == 63_500)
        scene.world.end_pod(scene.pods()[0], 0)
        await scene.until(lambda: scene.nodes.nodes[0].capacity.cpu_milli == 64_000)

    play(tmp_path, act)


def test_a_pod_that_is_heard_of_before_its_job_takes_no_room_from_us_once_that_is_known(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.pass_time(20)
        scene.world.fail("WATCH /apis/batch", times=4)  # the watch of Jobs comes back late
        for watcher in scene.world.watchers:
            if watcher.within.plural == "jobs" and watcher.selector:
                watcher.queue.put_nowait(b"")
        await scene.start(job_id, "n0")
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [3, 4])
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [4, 4])

    play(tmp_path, act)


def test_a_run_that_the_core_gives_up_while_its_pod_lives_takes_room_as_any_other(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        record = scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        record.phase, record.slots = Phase.QUEUED, ()
        scene.world.fail("DELETE", times=10**6, status=500)  # so that it lives on
        scene.told(record)
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [3, 4])

    play(tmp_path, act)


def test_a_cluster_without_nodes_says_so(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        for name in ("n0", "n1"):
            scene.world.remove(NODES, "", name)
        await scene.watch()
        assert scene.nodes == NodesChanged(())

    play(tmp_path, act, watching=False)
