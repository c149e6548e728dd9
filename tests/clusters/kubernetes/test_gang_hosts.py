"""The pods of a gang find the addresses of all in a file, which is an annotation of theirs."""

from __future__ import annotations

from pathlib import Path

from starburst.kube import names
from starburst.kube.resources import PODS
from tests.clusters.kubernetes.scene import NS, Scene, play


def give_address(scene: Scene, rank: int, address: str) -> None:
    for pod in scene.pods():
        if pod["metadata"]["annotations"].get(names.RANK) == str(rank) and pod["status"]["phase"] != "Failed":
            scene.world.change(PODS, NS, pod["metadata"]["name"], {"status": {"podIP": address}})


def hosts(scene: Scene) -> set[str]:
    """What the pods that live have."""
    alive = [pod for pod in scene.pods() if pod["status"]["phase"] == "Running"]
    return {pod["metadata"]["annotations"][names.HOSTS] for pod in alive}


def test_they_are_written_by_rank_once_all_are_known_and_anew_when_one_changes(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit("a", args=("500", "0"), tasks=2)
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.running() == 2)
        give_address(scene, 1, "10.0.0.2")
        await scene.pass_time(5)
        assert hosts(scene) == {""}
        scene.world.fail("PATCH /api/v1/namespaces", status=500)
        give_address(scene, 0, "10.0.0.1")
        await scene.until(lambda: hosts(scene) == {"10.0.0.1\n10.0.0.2\n"})
        (second,) = (pod for pod in scene.pods() if pod["metadata"]["annotations"][names.RANK] == "1")
        scene.world.delete(PODS, NS, second["metadata"]["name"])  # as a drain does
        await scene.until(lambda: scene.running() == 1)
        await scene.until(lambda: scene.running() == 2)
        give_address(scene, 1, "10.0.0.3")
        await scene.until(lambda: hosts(scene) == {"10.0.0.1\n10.0.0.3\n"})

    play(tmp_path, act)


def test_one_that_has_ended_before_the_others_came_is_in_the_list(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit("a", args=("500", "0"), tasks=2)
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.running() == 2)
        give_address(scene, 0, "10.0.0.1")
        (first,) = (pod for pod in scene.pods() if pod["metadata"]["annotations"][names.RANK] == "0")
        scene.world.end_pod(first, 0)
        give_address(scene, 1, "10.0.0.2")
        await scene.until(lambda: hosts(scene) == {"10.0.0.1\n10.0.0.2\n"})

    play(tmp_path, act)


def test_a_job_of_one_pod_has_no_such_file(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit("a")
        await scene.start("a", "n0")
        await scene.until(lambda: scene.running() == 1)
        (pod,) = scene.pods()
        assert names.HOSTS not in pod["metadata"]["annotations"]
        assert "volumes" not in pod["spec"]

    play(tmp_path, act)
