"""deploy/kubernetes.yaml on a real server: it can be applied; its accounts may do enough, and no more."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from starburst.kube.access import (
    CHAKRA,
    CHAKRA_LEASE,
    CHAKRA_PREEMPTION,
    STARBURST,
    STARBURST_LEASE,
    Permission,
)
from starburst.kube.api import EVENTS, JOBS, LEASES, NODES, PODS, Api, ApiError, Object, Resource
from tests.deploy.render import DEPLOY, NAMESPACE
from tests.kube.chakra_lab import chakra, make_namespace, make_node, node_of, pod, until
from tests.kube.lab import Lab, control_plane, skip
from tests.kube.live import job_manifest, live

T = TypeVar("T")

RBAC = "rbac.authorization.k8s.io"
ACCOUNTS = Resource("v1", "serviceaccounts")
REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
WORK = "work"
PROGRAMS = {
    "starburst-chakra": (*CHAKRA, *CHAKRA_LEASE),
    "starburst": (*STARBURST, *STARBURST_LEASE),
}
EACH = [
    pytest.param(account, lost, id=f"{account}: {lost.verb} {lost.resource} {lost.subresource}".strip())
    for account, permissions in PROGRAMS.items()
    for lost in permissions
]


def ask(lab: Lab, question: Callable[[Api], Awaitable[T]]) -> T:
    """Something of the server, under the account of a kubeconfig."""

    async def asked() -> T:
        async with await Api.connect(lab.kubeconfig) as api:
            return await question(api)

    return asyncio.run(asked())


def resource_of(item: Object) -> Resource:
    return Resource(item["apiVersion"], item["kind"].lower() + "s", "namespace" in item["metadata"])


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
        for item in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
            try:
                await api.create(resource_of(item), item["metadata"].get("namespace", ""), item)
            except ApiError as error:
                if error.status != 404:
                    raise
                skipped.add(item["kind"])
        await make_namespace(api, WORK)
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
                {"apiGroups": [each.group], "resources": [_path(each)], "verbs": [each.verb]}
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
            return all([await _may(api, each) for each in permissions])

        ask(account, lambda api: until(f"what {name} may", lambda: known(api)))
        return account


def _path(permission: Permission) -> str:
    return "/".join(filter(None, (permission.resource, permission.subresource)))


async def _token(api: Api, name: str) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await api.call("POST", ACCOUNTS.path(NAMESPACE, name, "token"), body=body)
    return str(answer["status"]["token"])


async def _may(api: Api, permission: Permission, namespace: str = "") -> bool:
    asked = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
        "namespace": namespace,
        "name": "chakra" if permission.resource == "leases" and permission.verb != "create" else "",
    }
    body = {
        "apiVersion": REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool((await api.call("POST", REVIEWS.path(), body=body))["status"]["allowed"])


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """A server of its own: others empty theirs of pods, and a Deployment makes them again."""
    with control_plane() as lab:
        yield Deployed(lab, tmp_path_factory.mktemp("accounts"))


def test_the_manifests_can_be_applied_and_their_objects_are_as_written(deployed: Deployed) -> None:
    assert deployed.skipped <= {"PodDisruptionBudget"}, "Kubernetes 1.20 has no policy/v1, later ones do"

    def missing(wanted: Any, found: Any) -> list[str]:
        """Paths of what the server dropped or changed."""
        if isinstance(wanted, dict):
            return [
                f"{key}.{path}"
                for key, value in wanted.items()
                for path in missing(value, found.get(key) if isinstance(found, dict) else None)
            ]
        if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
            return [path for one, other in zip(wanted, found, strict=True) for path in missing(one, other)]
        return [] if wanted == found else [f" {wanted!r} is {found!r}"]

    async def compared(api: Api) -> list[str]:
        problems = []
        for item in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
            if item["kind"] not in deployed.skipped:
                metadata = item["metadata"]
                found = await api.get(resource_of(item), metadata.get("namespace", ""), metadata["name"])
                problems += [f"{item['kind']} {metadata['name']}: {path}" for path in missing(item, found)]
        return problems

    assert ask(deployed.lab, compared) == []


# What is used, call by call.


async def attempt(api: Api, permission: Permission, mark: str) -> None:
    """Do what a permission allows, on objects that are there; `mark` is for names of new ones."""
    resource = {"leases": LEASES, "events": EVENTS, "jobs": JOBS, "pods": PODS, "nodes": NODES}[
        permission.resource
    ]
    namespace = {"leases": NAMESPACE, "nodes": ""}.get(permission.resource, WORK)
    name = {"leases": "chakra", "pods": f"pod-{mark}"}.get(permission.resource, "there")
    match permission.verb, permission.subresource:
        case "list", "":
            await api.call("GET", resource.path(), query={"limit": "1"})
        case "watch", "":
            async for _ in api.watch(resource, "0", last_s=1):
                break
        case "get", "":
            await api.find(resource, namespace, name)
        case "get", "log":
            async for _ in api.log(namespace, name):
                break
        case "create", "binding":
            body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node-1"}}
            await api.create(resource, namespace, body, "binding")
        case "create", "":
            await api.create(resource, namespace, _new(permission.resource, mark))
        case "update", "":
            body = {"metadata": {"name": name, "namespace": namespace}, "spec": {}}
            await api.call("PUT", resource.path(namespace, name), body=body)
        case "patch", sub:
            await api.patch(resource, namespace, name, {"metadata": {"labels": {"a": "b"}}}, sub=sub)
        case "delete", "":
            await api.delete(resource, namespace, name)
        case other:
            raise AssertionError(f"no call is known for {other}")


def _new(plural: str, mark: str) -> Object:
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


async def verdict(api: Api, permission: Permission, mark: str) -> str:
    """ "forbidden", or "allowed": then the server may still find that the object is not there."""
    try:
        await attempt(api, permission, mark)
    except ApiError as error:
        if error.status == 403:
            return f"forbidden: {error.message}"
        if error.status not in (400, 404, 409, 422):  # a log of a pod that never ran, a Lease not there
            raise
    return "allowed"


@pytest.fixture(scope="module")
def stage(deployed: Deployed) -> Deployed:
    """With a node, and one of each kind of object."""

    async def build(api: Api) -> None:
        await make_node(api, "node-1")
        for kind, resource in (("jobs", JOBS), ("events", EVENTS)):
            item = _new(kind, "")
            item["metadata"]["name"] = "there"
            await api.create(resource, WORK, item)

    ask(deployed.lab, build)
    return deployed


@pytest.mark.parametrize(("account", "lost"), EACH)
def test_one_verb_less_and_that_call_is_refused(stage: Deployed, account: str, lost: Permission) -> None:
    """The deployed account may; one with all the other permissions may not; its other rights are there."""
    rest = [each for each in PROGRAMS[account] if each != lost]
    parts = (account, "no", lost.verb, lost.resource, lost.subresource)
    name = "-".join(filter(None, parts))
    mark = name.removeprefix("starburst-")

    async def make_pod(api: Api) -> None:
        await api.create(PODS, WORK, pod(f"pod-{mark}", schedulerName="nobody"))

    ask(stage.lab, make_pod)
    told = ask(stage.account_with(name, rest), lambda api: verdict(api, lost, mark))
    assert told.startswith("forbidden")
    assert f"cannot {lost.verb} resource" in told
    assert _path(lost) in told
    assert ask(stage.account(account), lambda api: verdict(api, lost, mark)) == "allowed"


def test_chakra_may_not_delete_pods_unless_it_preempts(stage: Deployed) -> None:
    (delete,) = CHAKRA_PREEMPTION
    account = stage.account("starburst-chakra")
    assert ask(account, lambda api: verdict(api, delete, "x")).startswith("forbidden")
    preempting = stage.account_with("preempting", (*CHAKRA, delete))
    assert ask(preempting, lambda api: verdict(api, delete, "x")) == "allowed"


@pytest.mark.parametrize("account", PROGRAMS)
def test_secrets_roles_and_others_leases_are_nobodys_business(stage: Deployed, account: str) -> None:
    async def allowed(api: Api) -> list[str]:
        others = [Permission(verb, "coordination.k8s.io", "leases") for verb in ("get", "update", "create")]
        asked = [
            *(Permission("get", "", "secrets"), Permission("list", "", "secrets")),
            *(Permission("create", "", "pods", "exec"), Permission("patch", "", "nodes")),
            *(Permission("create", RBAC, "clusterrolebindings"), Permission("bind", RBAC, "clusterroles")),
            *others,
        ]
        return [f"{each.verb} {_path(each)}" for each in asked if await _may(api, each, "kube-system")]

    assert ask(stage.account(account), allowed) == []


def test_a_pod_finds_the_server_and_its_account_by_itself(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any kubeconfig, as in the Deployments: by environment and files that a kubelet gives."""
    told = yaml.safe_load(deployed.account("starburst-chakra").kubeconfig.read_text())
    cluster, user = told["clusters"][0]["cluster"], told["users"][0]["user"]
    if "certificate-authority" not in cluster:
        skip("this server has no certificate that a pod could check")
    address = urlsplit(cluster["server"])
    (tmp_path / "token").write_text(user["token"])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", cluster["certificate-authority"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address.hostname or "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    async def seen() -> tuple[bool, bool]:
        async with await Api.connect() as api:
            await api.list(PODS)
            return await _may(api, CHAKRA[0]), await _may(api, Permission("list", "", "secrets"))

    assert asyncio.run(seen()) == (True, False)


# The programs themselves, under their accounts.


async def make_pods(api: Api, names: Iterable[str], scheduler: str, **more: Any) -> None:
    await asyncio.gather(
        *(api.create(PODS, WORK, pod(name, schedulerName=scheduler, **more)) for name in names)
    )


async def bound(api: Api, names: Sequence[str]) -> bool:
    return all([await node_of(api, WORK, name) for name in names])


def test_chakra_binds_and_tells_under_the_account_of_the_manifests(stage: Deployed, tmp_path: Path) -> None:
    names = [f"fits-{number}" for number in range(4)]

    async def scene(api: Api) -> None:
        await make_pods(api, names, "chakra-alone", gpus=1)
        await make_pods(api, ["too-big"], "chakra-alone", gpus=9)
        await until("the pods are bound", lambda: bound(api, names))

        async def told() -> bool:
            found = await api.get(PODS, WORK, "too-big")
            conditions = {each["type"]: each for each in found["status"].get("conditions") or ()}
            events = {event.get("reason") for event in await api.list(EVENTS, WORK)}
            waits = conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"
            return waits and "FailedScheduling" in events

        await until("condition and event of the pod that does not fit", told)

    log = tmp_path / "chakra.log"
    options = ("--no-leader-elect", "--scheduler-name", "chakra-alone")
    with chakra(stage.account("starburst-chakra"), log, *options):
        ask(stage.lab, scene)
    assert "Forbidden" not in log.read_text()


def test_starburst_adopts_places_and_ends_jobs_under_the_account_of_the_manifests(
    stage: Deployed, tmp_path: Path
) -> None:
    adopted = job_manifest("adopted", "sleep 600", gpus=1, keys={"starburst.io/queue": "default"})
    adopted["spec"]["template"]["spec"]["schedulerName"] = "chakra"
    (tmp_path / "job.yaml").write_text(json.dumps(job_manifest("submitted", "sleep 600", gpus=1)))

    async def nodes(api: Api) -> list[str]:
        """Of bound pods; without a kubelet, one that is told to end stays for ever."""
        pods = [*await api.list(PODS, WORK, "job-name=adopted"), *await api.list(PODS, "default")]
        there = [item for item in pods if "deletionTimestamp" not in item["metadata"]]
        return [item["spec"]["nodeName"] for item in there if "nodeName" in item["spec"]]

    with (
        live(stage.account("starburst"), tmp_path) as starburst,
        chakra(stage.account("starburst-chakra"), tmp_path / "chakra.log", "--no-leader-elect"),
    ):
        starburst.configure("cluster: {kind: kubernetes}\ncloud: {offers: []}\n")
        starburst.up()
        ask(stage.lab, lambda api: api.create(JOBS, WORK, adopted))
        starburst.run("submit", "job.yaml")
        starburst.wait_for("their pods are bound", lambda: ask(stage.lab, nodes) == ["node-1"] * 2, 30)
        starburst.run("cancel", *(job["id"] for job in starburst.jobs()))
        starburst.wait_for("both are withdrawn", lambda: not ask(stage.lab, nodes), 30)
        assert "Forbidden" not in starburst.logs()


def test_chakra_without_the_right_to_bind_binds_nothing_and_says_why(stage: Deployed, tmp_path: Path) -> None:
    unarmed = stage.account_with("unarmed", [each for each in CHAKRA if each.subresource != "binding"])
    log = tmp_path / "chakra.log"

    async def refused() -> bool:
        return re.search(r"cannot create resource .*pods/binding", log.read_text()) is not None

    async def scene(api: Api) -> None:
        await make_pods(api, ["unbound"], "chakra-unarmed", gpus=1)
        await until("a refusal in the log", refused)
        assert not await node_of(api, WORK, "unbound")

    with chakra(unarmed, log, "--no-leader-elect", "--scheduler-name", "chakra-unarmed"):
        ask(stage.lab, scene)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def leads(port: int) -> bool:
    """What a replica's own metrics say."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return "\nchakra_leader 1.0" in answer.read().decode()
    except OSError:
        return False


def test_of_two_replicas_one_leads_and_when_it_is_killed_the_other_takes_over(
    stage: Deployed, tmp_path: Path
) -> None:
    ports = {"a": free_port(), "b": free_port()}
    account = stage.account("starburst-chakra")
    log = tmp_path / "chakra.log"

    async def holder(api: Api) -> str:
        lease = await api.find(LEASES, NAMESPACE, "chakra")
        return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")

    async def led_by(api: Api, one: str) -> bool:
        return await holder(api) == one and await asyncio.to_thread(leads, ports[one])

    async def scene(api: Api) -> None:
        await until("somebody leads", lambda: holder(api))
        first = await holder(api)
        other = {"a": "b", "b": "a"}[first]
        await until("it knows", lambda: led_by(api, first))
        await make_pods(api, ["before"], "chakra-pair")
        await until("it binds", lambda: bound(api, ["before"]))
        assert not leads(ports[other])

        processes[first].kill()
        killed_at = time.monotonic()
        await make_pods(api, ["after"], "chakra-pair")
        await until("the other one binds", lambda: bound(api, ["after"]))
        assert 10.0 < time.monotonic() - killed_at < 22.0, "a Lease of 15 s, looked at every 2 to 4.4 s"
        assert await led_by(api, other)
        lease = await api.get(LEASES, NAMESPACE, "chakra")
        assert lease["spec"]["leaseTransitions"] >= 1

        processes[other].terminate()

        async def given_back() -> bool:
            return not await holder(api)

        await until("the Lease is given back at a good end", given_back, 5.0)

    with ExitStack() as ends:
        processes = {
            one: ends.enter_context(
                chakra(
                    account,
                    log,
                    *("--lease-namespace", NAMESPACE, "--identity", one, "--metrics-port", str(port)),
                    *("--scheduler-name", "chakra-pair"),
                )
            )
            for one, port in ports.items()
        }
        ask(stage.lab, scene)
    assert "Forbidden" not in log.read_text()
