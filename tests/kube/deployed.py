"""A server with all of deploy/kubernetes.yaml on it, as each of its accounts sees it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import yaml

from starburst.kube.access import STARBURST_LEASE, Permission
from starburst.kube.api import Api
from starburst.kube.errors import ApiError
from starburst.kube.resources import PODS, Object, Resource
from tests.deploy.render import DEPLOY, NAMESPACE, objects
from tests.kube.chakra_lab import make_namespace, pod, until
from tests.kube.lab import Lab

T = TypeVar("T")

RBAC = "rbac.authorization.k8s.io"
ACCOUNTS = Resource("v1", "serviceaccounts")
REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
WORK = "work"


def ask(lab: Lab, question: Callable[[Api], Awaitable[T]]) -> T:
    """Something of the server, under the account of a kubeconfig."""

    async def asked() -> T:
        async with await Api.connect(lab.kubeconfig) as api:
            return await question(api)

    return asyncio.run(asked())


def resource_of(item: Object) -> Resource:
    several = re.sub("ys$", "ies", item["kind"].lower() + "s")
    return Resource(item["apiVersion"], several, "namespace" in item["metadata"])


class Deployed:
    """A server with all of deploy/kubernetes.yaml, and kubeconfigs of accounts on it."""

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab = lab
        self._root = root
        self._of: dict[str, Lab] = {}
        self.skipped = ask(lab, self._apply)

    async def _apply(self, api: Api) -> set[str]:
        """Create everything; kinds that this server does not know."""
        skipped = set()
        await make_namespace(api, WORK)
        for item in [*yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()), *_bound_in(WORK)]:
            try:
                await api.create(resource_of(item), item["metadata"].get("namespace", ""), item)
            except ApiError as error:
                if error.status != 404:
                    raise
                skipped.add(item["kind"])
        first = pod("first", schedulerName="nobody")  # refused until the account of the namespace has a token
        await until("a pod can be made", lambda: api.create(PODS, WORK, first))
        return skipped

    def account(self, name: str) -> Lab:
        """The same server as this service account sees it."""
        if name not in self._of:
            token = ask(self.lab, lambda api: _token(api, name))
            told = yaml.safe_load(self.lab.kubeconfig.read_text())
            told["users"] = [{"name": told["users"][0]["name"], "user": {"token": token}}]
            file = self._root / f"{name}.kubeconfig"
            file.write_text(json.dumps(told))
            self._of[name] = Lab(file, None)
        return self._of[name]

    def account_with(self, name: str, permissions: Sequence[Permission]) -> Lab:
        """A new account that may do this, everywhere."""

        async def made(api: Api) -> None:
            await api.create(ACCOUNTS, NAMESPACE, {"metadata": {"name": name}})
            role = Resource(f"{RBAC}/v1", "clusterroles", namespaced=False)
            rules = [
                {"apiGroups": [each.group], "resources": [path(each)], "verbs": [each.verb]}
                for each in permissions
            ]
            await api.create(role, "", {"metadata": {"name": name}, "rules": rules})
            subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
            binding = {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                "subjects": [subject],
            }
            await api.create(Resource(f"{RBAC}/v1", "clusterrolebindings", namespaced=False), "", binding)

        ask(self.lab, made)
        account = self.account(name)

        async def known(api: Api) -> bool:
            return all([await may(api, each) for each in permissions])

        ask(account, lambda api: until(f"what {name} may", lambda: known(api)))
        return account


def _bound_in(namespace: str) -> list[Object]:
    """What the chart makes for one more namespace with jobs."""
    return [
        item
        for item in objects({"namespaces": [namespace]})
        if item["metadata"].get("namespace") == namespace
    ]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def path(permission: Permission) -> str:
    return "/".join(filter(None, (permission.resource, permission.subresource)))


async def _token(api: Api, name: str) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await api.call("POST", ACCOUNTS.path(NAMESPACE, name, "token"), body=body)
    return str(answer["status"]["token"])


def lease_of(permission: Permission) -> str:
    """The Lease that a permission of one of the programs is for."""
    return "starburst" if permission in STARBURST_LEASE else "chakra"


async def may(api: Api, permission: Permission, namespace: str = "") -> bool:
    asked = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
        "namespace": namespace,
        "name": lease_of(permission)
        if permission.resource == "leases" and permission.verb != "create"
        else "",
    }
    body = {
        "apiVersion": REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool((await api.call("POST", REVIEWS.path(), body=body))["status"]["allowed"])


def new(plural: str, mark: str) -> Object:
    if plural == "pods":
        return pod(f"new-{mark}", schedulerName="nobody")
    if plural == "leases":
        return {"metadata": {"name": f"new-{mark}"}, "spec": {}}
    if plural == "events":
        return {
            "metadata": {"name": f"new-{mark}"},
            "involvedObject": {"kind": "Pod", "namespace": WORK, "name": "there"},
        }
    template = {"spec": {**pod("x", schedulerName="nobody")["spec"], "restartPolicy": "Never"}}
    return {"metadata": {"name": f"new-{mark}"}, "spec": {"parallelism": 0, "template": template}}
