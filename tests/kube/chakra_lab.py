"""Nodes and pods made through the API, and a Chakra process beside them, for tests and the benchmark."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starburst.kube.api import STRATEGIC, Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import NAMESPACES, NODES, PODS, Object, Resource
from tests.kube.lab import Lab

#: Wall seconds: for what is awaited, and for fifty thousand pods to go.
PATIENCE_S, EMPTY_S = 30.0, 600.0
GPU = "nvidia.com/gpu"


async def make_node(
    api: Api,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (),
    **amounts: Any,
) -> None:
    """A Ready node without a kubelet; `gpus`, `cpu`, `memory` and `pods` are what it has.

    At no time has it none of its taints: until then it is "not-ready", by an admission plugin.
    """
    has = {
        "cpu": str(amounts.get("cpu", 96)),
        "memory": str(amounts.get("memory", "768Gi")),
        "pods": str(amounts.get("pods", 110)),
        GPU: str(amounts.get("gpus", 8)),
    }
    await api.create(NODES, "", {"metadata": {"name": name, "labels": dict(labels or {})}})
    await set_ready(api, name, True, has)
    await api.patch(NODES, "", name, {"spec": {"taints": list(taints) or None}})


async def set_ready(api: Api, name: str, ready: bool, has: Mapping[str, str] | None = None) -> None:
    """The condition Ready, and what the node has if that changes."""
    condition = {"type": "Ready", "status": str(ready), "reason": "Test"}
    status: Object = {"conditions": [condition]}
    if has is not None:
        status |= {"capacity": dict(has), "allocatable": dict(has)}
    await api.patch(NODES, "", name, {"status": status}, sub="status", kind=STRATEGIC)


def pod(
    name: str, *, gpus: int = 0, cpu: str = "100m", keys: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    """A pod for Chakra; `keys` are annotations, or labels if they can be; the rest goes into its spec."""
    limits = {GPU: str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": cpu, "memory": "16Mi", **limits}, "limits": limits}
    container = {"name": "main", "image": "docker.io/local/busybox:1", "resources": resources}
    keys = keys or {}
    metadata = {
        "name": name,
        "labels": {key: value for key, value in keys.items() if key.endswith(("/queue", "/job"))},
        "annotations": {key: value for key, value in keys.items() if not key.endswith(("/queue", "/job"))},
    }
    made = {"schedulerName": "chakra", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"metadata": metadata, "spec": made}


async def make_namespace(api: Api, name: str) -> None:
    """A namespace in which pods can be made."""
    await api.create(NAMESPACES, "", {"metadata": {"name": name}})
    accounts = Resource("v1", "serviceaccounts")

    async def has_token() -> bool:
        account = await api.find(accounts, name, "default")
        return account is not None and bool(account.get("secrets"))

    await until(f"token of the service account in {name}", has_token)


async def empty(api: Api, namespace: str = "") -> None:
    """Delete all pods, of one namespace or, with all nodes, of all of them; wait until they are gone."""
    at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}

    async def none() -> bool:
        left = await api.list(PODS, namespace)
        for name in sorted({pod["metadata"]["namespace"] for pod in left}):
            await api.call("DELETE", PODS.path(name), body=at_once)
        return not left

    await until("no pods", none, EMPTY_S)
    if not namespace:
        for node in await api.list(NODES):
            await api.delete(NODES, "", node["metadata"]["name"])


async def node_of(api: Api, namespace: str, name: str) -> str:
    """Where a pod is, "" if nowhere."""
    found = await api.find(PODS, namespace, name)
    return "" if found is None else str(found["spec"].get("nodeName", ""))


async def until(what: str, asked: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Ask until the answer is not empty; refusals and silence count as empty."""
    give_up = time.monotonic() + patience_s
    while True:
        why = ""
        try:
            found = await asked()
        except (ApiError, ApiUnreachableError) as error:
            found, why = None, f" ({error})"
        if found:
            return found
        assert time.monotonic() < give_up, f"not within {patience_s:g} s: {what}{why}"
        await asyncio.sleep(0.05)


@contextmanager
def chakra(lab: Lab, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Chakra process, killed without mercy at the end."""
    command = [
        sys.executable,
        "-m",
        "chakra_plugin",
        "--kubeconfig",
        str(lab.kubeconfig),
        "--log-format",
        "text",
    ]
    with log.open("ab") as out:
        process = subprocess.Popen([*command, *options], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
