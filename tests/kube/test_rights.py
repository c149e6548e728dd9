"""The accounts of deploy/kubernetes.yaml on a real server: they may do enough, and no more."""

from __future__ import annotations

import pytest

from starburst.kube.access import (
    CHAKRA,
    CHAKRA_LEASE,
    CHAKRA_PREEMPTION,
    CHAKRA_WORK,
    STARBURST,
    STARBURST_LEASE,
    STARBURST_WORK,
    Permission,
)
from starburst.kube.api import Api
from starburst.kube.errors import ApiError
from starburst.kube.resources import (
    CLAIMS,
    CSI_NODES,
    EVENTS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    Resource,
)
from starburst.kube.reviews import REVIEWS, account_may
from tests.deploy.render import NAMESPACE
from tests.kube.chakra_lab import pod
from tests.kube.deployed import RBAC, WORK, Deployed, ask, lease_of, may, new, path

PROGRAMS = {
    "starburst-chakra": (*CHAKRA, *CHAKRA_WORK, *CHAKRA_LEASE),
    "starburst": (*STARBURST, *STARBURST_WORK, *STARBURST_LEASE),
}
EACH = [
    pytest.param(account, lost, id=f"{account}: {lost.verb} {lost.resource} {lost.subresource}".strip())
    for account, permissions in PROGRAMS.items()
    for lost in permissions
]


# What is used, call by call.


def where(permission: Permission) -> tuple[Resource, str]:
    """What it is on, and in which namespace that is tried."""
    storage = (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, STORAGE_CAPACITIES)
    every = (LEASES, EVENTS, JOBS, PODS, NODES, *storage)
    resource = {each.plural: each for each in every}.get(permission.resource, REVIEWS)
    namespace = NAMESPACE if resource is LEASES else WORK
    return resource, namespace if resource.namespaced else ""


def scope(permission: Permission) -> str:
    """The namespace that is listed or watched; "" is all of them."""
    return WORK if permission in (*STARBURST_WORK, *CHAKRA_WORK) else ""


async def attempt(api: Api, permission: Permission, mark: str) -> None:
    """Do what a permission allows, on objects that are there; `mark` is for names of new ones."""
    resource, namespace = where(permission)
    name = {"leases": lease_of(permission), "pods": f"pod-{mark}"}.get(permission.resource, "there")
    match permission.verb, permission.subresource:
        case "list", "":
            await api.call("GET", resource.path(scope(permission)), query={"limit": "1"})
        case "watch", "":
            async for _ in api.watch(resource, "0", namespace=scope(permission), last_s=1):
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
            await made(api, permission, mark)
        case "update", "":
            body = {"metadata": {"name": name, "namespace": namespace}, "spec": {}}
            await api.call("PUT", resource.path(namespace, name), body=body)
        case "patch", sub:
            await api.patch(resource, namespace, name, {"metadata": {"labels": {"a": "b"}}}, sub=sub)
        case "delete", "":
            await api.delete(resource, namespace, name)
        case other:
            raise AssertionError(f"no call is known for {other}")


async def made(api: Api, permission: Permission, mark: str) -> None:
    """Create a new object, or ask what another account may."""
    if permission.resource == "subjectaccessreviews":
        await account_may(api, permission, WORK, "default")
        return
    resource, namespace = where(permission)
    await api.create(resource, namespace, new(permission.resource, mark))


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
    assert path(lost) in told
    assert ask(stage.account(account), lambda api: verdict(api, lost, mark)) == "allowed"


def test_chakra_may_not_delete_pods_unless_it_preempts(stage: Deployed) -> None:
    (delete,) = CHAKRA_PREEMPTION
    account = stage.account("starburst-chakra")
    assert ask(account, lambda api: verdict(api, delete, "x")).startswith("forbidden")
    preempting = stage.account_with("preempting", (*CHAKRA, *CHAKRA_WORK, delete))
    assert ask(preempting, lambda api: verdict(api, delete, "x")) == "allowed"


@pytest.mark.parametrize(
    ("account", "work"), [("starburst", STARBURST_WORK), ("starburst-chakra", CHAKRA_WORK)]
)
def test_nothing_is_written_and_no_job_read_in_a_namespace_that_is_not_listed(
    stage: Deployed, account: str, work: tuple[Permission, ...]
) -> None:
    async def allowed_in(api: Api, namespace: str) -> list[str]:
        return [f"{each.verb} {path(each)}" for each in work if await may(api, each, namespace)]

    async def allowed(api: Api) -> dict[str, list[str]]:
        namespaces = (WORK, "default", "kube-system", NAMESPACE)
        return {namespace: await allowed_in(api, namespace) for namespace in namespaces}

    everything = [f"{each.verb} {path(each)}" for each in work]
    found = ask(stage.account(account), allowed)
    assert found == {WORK: everything, "default": everything, "kube-system": [], NAMESPACE: []}


@pytest.mark.parametrize("account", PROGRAMS)
def test_secrets_roles_and_others_leases_are_nobodys_business(stage: Deployed, account: str) -> None:
    async def allowed(api: Api) -> list[str]:
        others = [Permission(verb, "coordination.k8s.io", "leases") for verb in ("get", "update", "create")]
        asked = [
            *(Permission("get", "", "secrets"), Permission("list", "", "secrets")),
            *(Permission("create", "", "pods", "exec"), Permission("patch", "", "nodes")),
            *(Permission("create", RBAC, "clusterrolebindings"), Permission("bind", RBAC, "clusterroles")),
            *(Permission("impersonate", "", "users"), Permission("use", "starburst.io", "queues")),
            *others,
        ]
        return [f"{each.verb} {path(each)}" for each in asked if await may(api, each, "kube-system")]

    assert ask(stage.account(account), allowed) == []
