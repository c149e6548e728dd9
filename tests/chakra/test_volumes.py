"""Pods with claims are bound where their volumes are, and after them: the whole shell in virtual time."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable
from typing import Any

from chakra_plugin.scheduler import ChakraScheduler
from chakra_plugin.scheduling.cycle import SchedulerOptions
from chakra_plugin.volume_binder import LIMIT_S
from starburst.kube import names
from starburst.kube.resources import CLAIMS, CSI_NODES, STORAGE_CAPACITIES, STORAGE_CLASSES, VOLUMES, Object
from starburst.kube.volumes.views import SELECTED_NODE
from tests.app import virtual
from tests.chakra.builders import GPU
from tests.chakra.fake_server import Client, Server
from tests.chakra.test_simulation import Meter
from tests.kube_unit.volume_objects import (
    HOSTNAME,
    ZONE,
    claim,
    csi_node,
    storage_capacity,
    storage_class,
    volume,
)

MADE = storage_class("late", "csi")


class Stage:
    """Two nodes of 8 GPUs, Chakra, and who binds claims: the controller of volumes, and a provisioner."""

    def __init__(self, *objects: Object) -> None:
        self.server = Server()
        #: Nodes for which the provisioner makes nothing; it takes the annotation away.
        self.refuses: set[str] = set()
        self.makes = True
        for number in range(2):
            amounts = {"cpu": "96", "memory": "768Gi", "pods": "12", GPU: "8"}
            status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
            labels = {HOSTNAME: f"n{number}", ZONE: "ab"[number]}
            metadata = {"name": f"n{number}", "uid": f"uid-n{number}", "labels": labels}
            self.server.put("nodes", {"metadata": metadata, "status": status})
        self.add(*objects)

    def add(self, *objects: Object) -> None:
        plural = {
            "PersistentVolumeClaim": CLAIMS.plural,
            "PersistentVolume": VOLUMES.plural,
            "CSINode": CSI_NODES.plural,
            "CSIStorageCapacity": STORAGE_CAPACITIES.plural,
            "Pod": "pods",
        }
        for item in objects:
            self.server.put(plural.get(item.get("kind", ""), STORAGE_CLASSES.plural), copy.deepcopy(item))

    def pod(self, name: str, *claims: str, gpus: int = 1, node: str = "") -> None:
        """A pod that uses these claims; `node` is Starburst's word."""
        resources = {"requests": {"cpu": "1", GPU: str(gpus)}}
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
        metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
        metadata |= {"annotations": {names.NODES: node}} if node else {}
        spec = {"schedulerName": "chakra", "containers": [{"resources": resources}], "volumes": volumes}
        self.add({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def placed(self) -> dict[str, str]:
        return {
            item["metadata"]["name"]: item["spec"].get("nodeName", "")
            for item in self.server.objects["pods"].values()
        }

    def words(self, name: str) -> str:
        """What is said of a pod that cannot be bound."""
        for condition in self.server.objects["pods"][f"ns/{name}"]["status"].get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return str(condition["message"])
        return ""

    def claim(self, name: str = "data") -> Object:
        return self.server.objects[CLAIMS.plural][f"ns/{name}"]

    async def storage(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for item in copy.deepcopy(list(self.server.objects[VOLUMES.plural].values())):
                reference = item["spec"].get("claimRef")
                if reference and item["status"]["phase"] == "Available":
                    self._bind(reference["name"], item)
            for item in copy.deepcopy(list(self.server.objects[CLAIMS.plural].values())):
                node = (item["metadata"].get("annotations") or {}).get(SELECTED_NODE)
                if node and item["status"]["phase"] == "Pending" and self.makes:
                    self._make(item, node)

    def _make(self, item: Object, node: str) -> None:
        if node in self.refuses:
            item["metadata"]["annotations"] = {}
            self.add(item)
        else:
            name = item["metadata"]["name"]
            self._bind(name, volume(f"pv-{name}", node, claim=name, csi={"driver": "csi"}))

    def _bind(self, name: str, item: Object) -> None:
        self.add({**item, "status": {"phase": "Bound"}}, claim(name, volume=item["metadata"]["name"]))

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            client: Any = Client(self.server, random.Random(0), 0.0)
            scheduler = ChakraScheduler(
                client, SchedulerOptions(), Meter(), clock=virtual.wall, draw=random.Random(0)
            )
            parts = [asyncio.ensure_future(each) for each in (scheduler.run(), self.storage())]
            try:
                await story()
                assert not any(part.done() for part in parts)
            finally:
                client.kill()
                for part in parts:
                    part.cancel()
                await asyncio.wait(parts)
            assert not self.server.problems

        virtual.run(whole())


def after(stage: Stage, seconds: float = 60.0) -> dict[str, str]:
    """Where the pods are then."""

    async def story() -> None:
        await asyncio.sleep(seconds)

    stage.play(story)
    return stage.placed()


def test_a_pod_goes_where_its_bound_volume_is() -> None:
    stage = Stage(storage_class(), claim(volume="pv"), volume(on="n1", claim="data"))
    stage.pod("p", "data")
    assert after(stage) == {"p": "n1"}


def test_a_pod_whose_claim_is_not_bound_waits_and_others_do_not() -> None:
    immediate = storage_class(volumeBindingMode="Immediate")
    stage = Stage(immediate, claim())
    stage.pod("sick", "data", gpus=8)
    stage.pod("sound", gpus=8)
    stage.pod("other", gpus=8)

    async def story() -> None:
        await asyncio.sleep(60)
        assert stage.placed() == {"sick": "", "sound": "n0", "other": "n1"}
        assert stage.words("sick") == "waits for claim data: it is not bound"
        stage.server.remove("pods", "ns/sound")
        stage.add(volume(on="n0", claim="data"), claim(volume="pv"))
        await asyncio.sleep(30)
        assert stage.placed()["sick"] == "n0"

    stage.play(story)


def test_a_free_volume_is_kept_for_the_claim_and_bound_before_the_pod() -> None:
    stage = Stage(storage_class(), claim(), volume("far", "n1"))
    stage.pod("p", "data")
    assert after(stage) == {"p": "n1"}
    reference = stage.server.objects[VOLUMES.plural]["/far"]["spec"]["claimRef"]
    assert (reference["name"], reference["uid"]) == ("data", "uid-data")
    bound_at = [kind for kind, _, item in stage.server.history if _is_bound(item)]
    assert bound_at[0] == CLAIMS.plural, "first the claim, then the pod"


def _is_bound(item: Object) -> bool:
    claimed = item.get("kind") == "PersistentVolumeClaim" and item["status"]["phase"] == "Bound"
    return claimed or bool(item.get("kind") == "Pod" and item["spec"].get("nodeName"))


def test_two_pods_never_get_one_volume() -> None:
    stage = Stage(storage_class(), claim("one"), claim("two"), volume("a", "n0"))
    stage.pod("p", "one")
    stage.pod("q", "two")

    async def story() -> None:
        await asyncio.sleep(60)
        assert sorted(stage.placed().values()) == ["", "n0"]
        stage.add(volume("b", "n1"))
        await asyncio.sleep(60)
        assert sorted(stage.placed().values()) == ["n0", "n1"]

    stage.play(story)


def test_a_volume_is_made_for_the_node_that_was_chosen() -> None:
    stage = Stage(MADE, claim())
    stage.pod("p", "data", node="n1")
    assert after(stage) == {"p": "n1"}
    assert stage.server.objects[VOLUMES.plural]["/pv-data"]["spec"]["nodeAffinity"]


def test_a_provisioner_that_refuses_sends_the_pod_to_another_node() -> None:
    stage = Stage(MADE, claim())
    stage.refuses = {"n0"}
    stage.pod("p", "data", gpus=8)

    async def story() -> None:
        await asyncio.sleep(60)
        assert stage.placed() == {"p": "n1"}
        stage.pod("q", gpus=8)
        await asyncio.sleep(10)
        assert stage.placed()["q"] == "n0", "the place was given back"

    stage.play(story)


def test_a_volume_that_nobody_makes_gives_the_place_back_after_a_while_and_says_so() -> None:
    stage = Stage(MADE, claim())
    stage.makes = False
    stage.pod("p", "data", node="n0")

    async def story() -> None:
        await asyncio.sleep(LIMIT_S / 2)
        assert (stage.placed(), stage.words("p")) == ({"p": ""}, "")
        await asyncio.sleep(LIMIT_S / 2 + 5)
        assert "not bound within 600 s: data" in stage.words("p")
        stage.makes = True
        await asyncio.sleep(60)
        assert stage.placed() == {"p": "n0"}

    stage.play(story)


def test_a_claim_for_one_pod_is_used_by_one_pod_at_a_time() -> None:
    one = claim(volume="pv", modes=["ReadWriteOncePod"])
    stage = Stage(storage_class(), one, volume(claim="data"))
    stage.pod("p", "data")
    stage.pod("q", "data")

    async def story() -> None:
        await asyncio.sleep(60)
        (placed,) = [name for name, node in stage.placed().items() if node]
        waiting = {"p": "q", "q": "p"}[placed]
        assert (
            stage.words(waiting) == f"waits for claim data: it is ReadWriteOncePod, and pod {placed} uses it"
        )
        stage.server.remove("pods", f"ns/{placed}")
        await asyncio.sleep(60)
        assert stage.placed()[waiting]

    stage.play(story)


def test_a_pod_that_is_deleted_while_its_volume_is_made_holds_nothing() -> None:
    stage = Stage(MADE, claim())
    stage.makes = False
    stage.pod("p", "data", gpus=8, node="n0")

    async def story() -> None:
        await asyncio.sleep(20)
        stage.server.remove("pods", "ns/p")
        stage.pod("q", gpus=8, node="n0")
        await asyncio.sleep(20)
        assert stage.placed() == {"q": "n0"}

    stage.play(story)


def test_two_pods_at_once_go_to_two_nodes_that_take_one_volume_each() -> None:
    csi = {"driver": "csi", "volumeHandle": "h"}
    stage = Stage(MADE, csi_node("n0", csi=1), csi_node("n1", csi=1), storage_capacity(5, "n1"))
    stage.add(*(claim(name, volume=f"pv-{name}") for name in ("one", "two")))
    stage.add(*(volume(f"pv-{name}", claim=name, csi=csi) for name in ("one", "two")))
    for name in ("one", "two"):
        stage.pod(name, name)

    async def story() -> None:
        await asyncio.sleep(30)
        assert sorted(stage.placed().values()) == ["n0", "n1"]
        stage.add(claim("three"))
        stage.pod("none-left", "three")
        await asyncio.sleep(30)
        assert stage.placed()["none-left"] == ""
        assert "2 node(s) exceed max volume count" in stage.words("none-left") or (
            "1 node(s) did not have enough free storage" in stage.words("none-left")
        )
        stage.server.remove("pods", next(f"ns/{name}" for name, on in stage.placed().items() if on == "n1"))
        await asyncio.sleep(60)
        assert stage.placed()["none-left"] == "n1", "where a volume comes free, and room for a new one is"

    stage.play(story)
