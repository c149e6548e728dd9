"""A namespace whose Jobs Chakra may not list, as one that was deleted, and its RoleBinding with it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

from chakra_plugin.scheduler import ChakraScheduler
from chakra_plugin.scheduling.cycle import SchedulerOptions
from starburst.kube import names
from starburst.kube.errors import ApiError
from starburst.kube.resources import Object, Resource
from tests.app import virtual
from tests.chakra.builders import GPU
from tests.chakra.fake_server import Client, Server
from tests.chakra.test_simulation import Meter


class Confined(Client):
    """Of an account that may list Jobs in some namespaces only, and not everywhere."""

    def __init__(self, server: Server, *refuses: str) -> None:
        super().__init__(server, random.Random(0), 0.0)
        self.refuses = {*refuses}

    async def pages(self, resource: Resource, namespace: str = "", selector: str = "") -> AsyncIterator[Any]:
        if namespace in self.refuses:
            raise ApiError(403, "Forbidden", f"cannot list {resource.plural} in {namespace}")
        async for items, version in super().pages(resource, namespace, selector):
            yield [it for it in items if namespace in ("", it["metadata"].get("namespace"))], version


def pod(namespace: str, job: str) -> Object:
    owner = {"kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}
    metadata = {"namespace": namespace, "name": f"{job}-0", "uid": f"uid-{job}-0", "ownerReferences": [owner]}
    containers = [{"resources": {"requests": {"cpu": "1", GPU: "1"}}}]
    spec = {"schedulerName": "chakra", "containers": containers}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def job(namespace: str, name: str) -> Object:
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "labels": {names.QUEUE: "q"}}
    return {
        "metadata": metadata | {"annotations": {names.NODES: "n0"}},
        "spec": {"parallelism": 1, "template": {"spec": {}}},
        "status": {},
    }


def test_a_namespace_that_is_refused_holds_up_its_own_pods_until_it_can_be_listed() -> None:
    server = Server()
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "12", GPU: "8"}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    server.put("nodes", {"metadata": {"name": "n0", "uid": "uid-n0"}, "status": status})
    for namespace in ("lab", "papers"):
        server.put("jobs", job(namespace, f"train-{namespace}"))
        server.put("pods", pod(namespace, f"train-{namespace}"))

    async def whole() -> None:
        client: Any = Confined(server, "papers")
        options = SchedulerOptions(namespaces=frozenset({"lab", "papers"}))
        scheduler = ChakraScheduler(client, options, Meter(), clock=virtual.wall, draw=random.Random(0))
        running = asyncio.ensure_future(scheduler.run())
        await asyncio.sleep(60)
        assert server.bound == {"train-lab-0": 1}
        client.refuses.clear()
        await asyncio.sleep(60)
        assert server.bound == {"train-lab-0": 1, "train-papers-0": 1}
        client.kill()
        running.cancel()
        await asyncio.wait([running])

    virtual.run(whole())
    assert not server.problems
