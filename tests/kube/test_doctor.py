"""The doctor at a real server: what it finds as an administrator, and as somebody with too few rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.app.config import Config
from starburst.app.config.sites import KubernetesConfig
from starburst.app.doctor.cluster_checks import cluster_checks
from starburst.app.doctor.doctor import DoctorCheck
from starburst.kube.access import STARBURST, STARBURST_WORK, Permission
from starburst.kube.api import Api
from starburst.kube.errors import ApiError
from starburst.kube.resources import NODES, Object, Resource
from tests.kube.lab import Lab

ACCOUNTS = Resource("v1", "serviceaccounts")
ROLES = Resource("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
BINDINGS = Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False)
CLAIMS = Resource("v1", "persistentvolumeclaims")
PATIENCE_S = 20.0
ALL = (*STARBURST, *STARBURST_WORK)


def checks(kubeconfig: Path, **config: Any) -> dict[str, DoctorCheck]:
    """What the doctor finds, by check."""
    cluster = KubernetesConfig(kubeconfig=str(kubeconfig), **config)
    found = asyncio.run(cluster_checks(Config(cluster=cluster)))
    return {check.check: check for check in found}


async def account(lab: Lab, name: str, may: Iterable[Permission]) -> str:
    """The token of a new account that may do this."""
    rules = [
        {
            "apiGroups": [each.group],
            "resources": [f"{each.resource}/{each.subresource}" if each.subresource else each.resource],
            "verbs": [each.verb],
        }
        for each in may
    ]
    rbac = "rbac.authorization.k8s.io"
    async with await Api.connect(lab.kubeconfig) as api:
        await api.create(ACCOUNTS, "default", {"metadata": {"name": name}})
        await api.create(ROLES, "", {"metadata": {"name": name}, "rules": rules})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        await api.create(BINDINGS, "", binding)
        path = ACCOUNTS.path("default", name, "token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await api.call("POST", path, body=body)
        return str(answer["status"]["token"])


def as_account(lab: Lab, tmp_path: Path, name: str, may: Iterable[Permission]) -> Path:
    """A kubeconfig of a new account, once the server knows what it may."""
    token = asyncio.run(account(lab, name, may))
    told = yaml.safe_load(lab.kubeconfig.read_text())
    told["users"] = [{"name": told["users"][0]["name"], "user": {"token": token}}]
    file = tmp_path / f"{name}.kubeconfig"
    file.write_text(json.dumps(told))
    asyncio.run(asyncio.wait_for(_until_known(file), PATIENCE_S))
    return file


async def _until_known(file: Path) -> None:
    """The server's authorizer hears of a new role a moment later."""
    async with await Api.connect(file) as api:
        while True:
            try:
                await api.list(NODES)
                return
            except ApiError:
                await asyncio.sleep(0.05)


def test_an_administrator_finds_everything_but_chakra(api_server: Lab) -> None:
    found = checks(api_server.kubeconfig)
    assert [
        found[name].status.value for name in ("kubeconfig", "server", "version", "permissions", "namespace")
    ] == ["ok"] * 5
    assert found["server"].found.startswith("https://")
    assert found["version"].found.startswith("v1.")
    assert found["permissions"].found == f"all {len(ALL)} that Starburst uses, in default"


def test_the_rights_that_are_listed_are_enough(api_server: Lab, tmp_path: Path) -> None:
    file = as_account(api_server, tmp_path, "enough", ALL)
    assert checks(file)["permissions"].status.value == "ok"


@pytest.mark.parametrize("lost", [("create", "jobs", ""), ("get", "pods", "log"), ("watch", "pods", "")])
def test_one_right_less_is_named_alone(api_server: Lab, tmp_path: Path, lost: tuple[str, str, str]) -> None:
    rest = [each for each in ALL if (each.verb, each.resource, each.subresource) != lost]
    assert len(rest) == len(ALL) - 1
    name = "-".join(["no", *filter(None, lost)])
    check = checks(as_account(api_server, tmp_path, name, rest))["permissions"]
    verb, resource, sub = lost
    group = ".batch" if resource == "jobs" else ""
    assert check.status.value == "fail"
    where = "" if verb == "watch" else " in default"
    assert check.found.startswith(f"it may not {verb} {resource}{group}{'/' if sub else ''}{sub}{where} (")
    assert check.found.count("(") == 1


def test_gpu_nodes_namespaces_and_claims_are_the_servers(api_server: Lab) -> None:
    gpus = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4", "pods": "110"}
    node: Object = {
        "metadata": {"name": "gpu-without-label"},
        "status": {"allocatable": gpus, "capacity": gpus},
    }
    claim = {
        "metadata": {"name": "ckpt"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }

    async def make() -> None:
        async with await Api.connect(api_server.kubeconfig) as api:
            await api.create(NODES, "", node)
            await api.create(CLAIMS, "default", claim)

    async def unmake() -> None:
        async with await Api.connect(api_server.kubeconfig) as api:
            await api.delete(NODES, "", "gpu-without-label")
            await api.delete(CLAIMS, "default", "ckpt")

    asyncio.run(make())
    try:
        volume = {"persistentVolumeClaim": {"claimName": "ckpt"}}
        found = checks(api_server.kubeconfig, checkpoints=volume)
        command = found["nodes"].mend.partition("kubectl label nodes ")[2].split()
        assert "gpu-without-label" in command  # with those that other tests have left
        assert command[-1].startswith("nvidia.com/gpu.product=")
        assert found["checkpoints"].line == "checkpoints: PersistentVolumeClaim default/ckpt, ReadWriteMany"
        found = checks(api_server.kubeconfig, namespace="nowhere")
        assert found["namespace"].line == "namespace: there is no nowhere; kubectl create namespace nowhere"
    finally:
        asyncio.run(unmake())
