"""The whole scheduler in virtual time, beside an API server in trouble: nothing is bound twice, nothing over
capacity, no gang by halves, and in the end everything has run."""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_plugin.scheduler import ChakraScheduler
from chakra_plugin.scheduling.cycle import SchedulerOptions
from starburst.kube import names
from starburst.kube.resources import Object
from tests.app import virtual
from tests.chakra.builders import GPU
from tests.chakra.fake_server import Client, Server

NODES, GPUS = 4, 8
#: Virtual seconds.
STORM_S, CALM_S = 60.0, 400.0


class Meter:
    """Counts nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def make_node(number: int) -> Object:
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "12", GPU: str(GPUS)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": f"n{number}", "uid": f"uid-n{number}"}, "status": status}


def make_pod(name: str, gpus: int, gang: str = "", priority: int = 0) -> Object:
    metadata: Object = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    if gang:
        metadata["annotations"] = {names.GANG: gang}
        owner = {"kind": "Job", "name": gang, "uid": f"uid-{gang}", "controller": True}
        metadata["ownerReferences"] = [owner]
    resources = {"requests": {"cpu": "1", GPU: str(gpus)}}
    spec = {"schedulerName": "chakra", "priority": priority, "containers": [{"resources": resources}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def make_job(name: str) -> Object:
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"template": {"spec": {}}}}


class Storm:
    """Users, kubelets, nodes that come and go, and somebody who kills the scheduler."""

    def __init__(self, seed: int, trouble: float, preempt: bool) -> None:
        self.draw = random.Random(seed)
        self.server = Server()
        self.trouble = trouble
        self.options = SchedulerOptions(preempt=preempt, gang_timeout_s=20.0)

    async def run(self) -> None:
        for number in range(NODES):
            self.server.put("nodes", make_node(number))
        actors = [asyncio.ensure_future(each) for each in (self.users(), self.nodes(), self.kubelets())]
        try:
            for _ in range(self.draw.randrange(3)):
                await self.life(self.draw.uniform(1, STORM_S / 3))
            await self.life(STORM_S)
            self.trouble = 0.0
            await self.life(CALM_S)
        finally:
            for actor in actors:
                actor.cancel()

    async def life(self, length_s: float) -> None:
        """Of one scheduler process, from start to kill."""
        client = Client(self.server, self.draw, self.trouble)
        scheduler = ChakraScheduler(client, self.options, Meter(), clock=virtual.wall, draw=self.draw)
        task = asyncio.ensure_future(scheduler.run())
        done, _ = await asyncio.wait({task}, timeout=length_s)
        client.kill()
        task.cancel()
        if done:
            task.result()
        await asyncio.wait({task})

    async def users(self) -> None:
        """Pods and gangs come, some are deleted while they wait or run."""
        for number in range(30):
            await asyncio.sleep(self.draw.expovariate(1.0))
            priority = self.draw.choice([0, 0, 5])
            if self.draw.random() < 0.3:
                size, gpus = self.draw.randint(2, 4), self.draw.randint(0, GPUS)
                self.server.put("jobs", make_job(f"g{number}/{size}"))
                for member in range(size):
                    name = f"g{number}-{member}"
                    self.server.put("pods", make_pod(name, gpus, f"g{number}/{size}"))
            else:
                self.server.put("pods", make_pod(f"p{number}", self.draw.randint(0, GPUS), "", priority))
            single = [key for key in self.server.objects["pods"] if key.startswith("ns/p")]
            if single and self.draw.random() < 0.1:
                self.server.remove("pods", self.draw.choice(single))

    async def nodes(self) -> None:
        """They vanish with all their pods and come back, and are cordoned; in the end all are there."""
        while True:
            await asyncio.sleep(self.draw.expovariate(1 / 15))
            if not self.trouble:
                break
            item = make_node(self.draw.randrange(NODES))
            if self.draw.random() < 0.3:
                item["spec"] = {"unschedulable": True}
            elif f"/{item['metadata']['name']}" in self.server.objects["nodes"] and self.draw.random() < 0.3:
                self.lose(item["metadata"]["name"])
                continue
            self.server.put("nodes", item)
        for number in range(NODES):
            self.server.put("nodes", make_node(number))

    def lose(self, name: str) -> None:
        """A node, and the pods on it."""
        self.server.remove("nodes", f"/{name}")
        for key, pod in list(self.server.objects["pods"].items()):
            if pod["spec"].get("nodeName") == name:
                self.server.remove("pods", key)

    async def kubelets(self) -> None:
        """Pods run for a while; members of a gang once all of it is there, and not without each other."""
        while True:
            await asyncio.sleep(1.0)
            pods = self.server.objects["pods"]
            sizes = Counter(gang_of(pod) for pod in pods.values())
            whole = self.whole()
            for key, pod in list(pods.items()):
                gang, on = gang_of(pod), pod["spec"].get("nodeName")
                if gang and sizes[gang] < int(gang.partition("/")[2]):
                    self.server.remove("pods", key)  # it lost a member
                elif not on or pod["status"]["phase"] == "Succeeded":
                    continue
                elif f"/{on}" not in self.server.objects["nodes"]:
                    self.server.remove("pods", key)
                elif gang in whole and self.draw.random() < 0.2:
                    self.server.put("pods", {**copy.deepcopy(pod), "status": {"phase": "Succeeded"}})

    def whole(self) -> set[str]:
        """Gangs none of whose members waits; "" stands for pods that are in none."""
        gangs: dict[str, bool] = {"": True}
        for pod in self.server.objects["pods"].values():
            gang = gang_of(pod)
            gangs[gang] = gangs.get(gang, True) and (not gang or bool(pod["spec"].get("nodeName")))
        return {gang for gang, complete in gangs.items() if complete}


def gang_of(pod: Object) -> str:
    return str(pod["metadata"].get("annotations", {}).get(names.GANG, ""))


@settings(max_examples=4)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.1, 0.25]), st.booleans())
def test_whatever_goes_wrong_nothing_is_bound_twice_or_over_capacity_and_all_of_it_runs(
    seed, trouble, preempt
):
    storm = Storm(seed, trouble, preempt)
    virtual.run(storm.run())
    assert storm.server.problems == []
    assert max(storm.server.bound.values()) == 1
    waiting = [key for key, pod in storm.server.objects["pods"].items() if not pod["spec"].get("nodeName")]
    assert waiting == []
