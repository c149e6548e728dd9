"""Checks of a Kubernetes cluster for what Starburst needs, with the remedy for each failure."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starburst.app.config import Config
from starburst.app.config.home import Home
from starburst.app.config.sites import KubernetesConfig
from starburst.app.doctor.doctor import CheckStatus, DoctorCheck, fail, failed, ok, silent, warn
from starburst.app.wiring.kube_client import connect
from starburst.clusters.kubernetes.adoption.offload_rights import OffloadSubject, why_confined
from starburst.clusters.kubernetes.leadership import (
    identity_of,
    lease_namespace,
    missing_rights,
    shared_identity,
)
from starburst.kube.access import STARBURST, STARBURST_WORK, Permission
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError
from starburst.kube.features import detect
from starburst.kube.names import CHAKRA
from starburst.kube.objects import gpus, read_node, read_pod
from starburst.kube.operator_kinds import kinds_served
from starburst.kube.resources import LEASES, NAMESPACES, NODES, PODS, Object, Resource
from starburst.kube.reviews import may
from starburst.store.errors import StoreError
from starburst.store.store import Store
from translator.manifests.pod_security import PRIVILEGED
from translator.manifests.tenancy import Tenancy

OLDEST, OLDEST_NAME = (1, 20), "Kubernetes 1.20"
#: Where deploy/kubernetes.yaml puts Chakra and Starburst.
SYSTEM = "starburst-system"
#: Where a Chakra that was started by hand has its Lease.
ALONE = "kube-system"
CLAIMS = Resource("v1", "persistentvolumeclaims")
#: Wall seconds between looks at a Lease; its holder renews it about every two.
LOOK_S = 0.5
SHARED_MODE = "ReadWriteMany"
#: Names shown of a list before the rest is counted.
SHOWN = 5

Sleep = Callable[[float], Awaitable[None]]


async def cluster_checks(
    config: Config, *, whole: bool = True, sleep: Sleep = asyncio.sleep
) -> list[DoctorCheck]:
    """All checks, up to one without which no other can be made; not `whole`: only what a start needs.

    The config's cluster is a Kubernetes.
    """
    cluster, tenancy = config.cluster, config.tenancy()
    assert isinstance(cluster, KubernetesConfig)
    assert tenancy is not None
    try:
        api = await connect(cluster)
    except KubeCredentialsError as error:
        return failed("kubeconfig", error)
    async with api:
        found = [ok("kubeconfig", _source(cluster))]
        try:
            found += await _server(api)
            if found[-1].status is CheckStatus.FAIL:
                return found
            namespaces = tenancy.all_namespaces()
            found.append(await _permissions(api, namespaces))
            if whole:
                found += await _operators(api, namespaces)
                found.append(await _chakra(api, sleep))
                found.append(await _starbursts(api, cluster))
                found.append(await _nodes(api))
                found += await _schedulers(api)
            found += [await _namespace(api, name) for name in namespaces]
            if whole:
                found.append(_pod_security(tenancy))
                found += await _leaving(api, config, tenancy)
            found.append(await _checkpoints(api, cluster))
            found += _checkpoints_here(cluster.checkpoints_here)
        except ApiUnreachableError as error:
            found.append(_unreachable(api, error))
        return found


def _source(cluster: KubernetesConfig) -> str:
    named = cluster.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [os.path.expanduser(path) for path in named.split(os.pathsep)]
    source = named if any(map(os.path.isfile, paths)) else "this pod's service account"
    return source + (f", context {cluster.context}" if cluster.context else "")


async def _server(api: Api) -> list[DoctorCheck]:
    """That it answers, and is new enough."""
    try:
        features = await detect(api)
    except ApiUnreachableError as error:
        return [_unreachable(api, error)]
    except ApiError as error:
        if error.status == 401:
            mend = "renew the token or certificate in the kubeconfig"
            return [fail("server", f"{api.host} does not know these credentials (401)", mend)]
        return [fail("server", f"{api.host}: {error}", "see the server's log")]
    server = ok("server", api.host)
    told = features.name
    if features.version == (0, 0):
        unknown = f"{told or 'it'} is not known; Starburst needs {OLDEST_NAME} or newer"
        return [server, warn("version", unknown)]
    if features.version < OLDEST:
        return [server, fail("version", told, f"Starburst needs {OLDEST_NAME} or newer: upgrade it")]
    optional = {"Job suspend": features.suspend, "Indexed Jobs": features.indexed}
    has = [name for name, there in optional.items() if there]
    lacks = [name for name, there in optional.items() if not there]
    said = [told]
    if has:
        said.append(f"with {' and '.join(has)}")
    if lacks:
        said.append(f"without {' and '.join(lacks)}, so Starburst does without")
    return [server, ok("version", ", ".join(said))]


def _unreachable(api: Api, error: ApiUnreachableError) -> DoctorCheck:
    why = " ".join(str(error.__cause__ or error).split())
    mend = "check that the server runs, its address in the kubeconfig, and the network between"
    return silent("server", f"{api.host} does not answer ({why})", mend)


async def _permissions(api: Api, namespaces: Sequence[str]) -> DoctorCheck:
    """What it uses everywhere, and what it uses where jobs are submitted to."""
    asked = [(each, "") for each in STARBURST]
    asked += [(each, namespace) for namespace in namespaces for each in STARBURST_WORK]
    try:
        allowed = await asyncio.gather(*(may(api, *each) for each in asked))
    except ApiError as error:
        return warn("permissions", f"the server does not tell them: {error}")
    missing = [each for each, is_allowed in zip(asked, allowed, strict=True) if not is_allowed]
    if not missing:
        count = len(STARBURST) + len(STARBURST_WORK)
        return ok("permissions", f"all {count} that Starburst uses, in {_some(list(namespaces))}")
    told = ", ".join(
        f"{_words(each)}{f' in {where}' if where else ''} ({each.why})" for each, where in missing
    )
    mend = "bind this account to the roles of deploy/kubernetes.yaml, in each of these namespaces"
    return fail("permissions", f"it may not {told}", mend)


async def _operators(api: Api, namespaces: Sequence[str]) -> list[DoctorCheck]:
    """The kinds of operators whose objects are adopted; nothing if there are none."""
    served = [await kinds_served(api, namespace) for namespace in namespaces[:1]]
    kinds = [each.name for found in served for each in found if not each.refusal]
    return [ok("operators", f"a suspended {_some(kinds)} with a queue's label is adopted")] if kinds else []


def _words(permission: Permission) -> str:
    """As kubectl auth can-i takes it: "create jobs.batch"."""
    resource = f"{permission.resource}.{permission.group}" if permission.group else permission.resource
    return f"{permission.verb} {resource}{'/' if permission.subresource else ''}{permission.subresource}"


async def _chakra(api: Api, sleep: Sleep) -> DoctorCheck:
    """Watch Chakra's Lease until it is renewed or would have expired; no other machine's clock counts."""
    mend = "run it: chakra, or deploy it as docs/kubernetes.md says"
    try:
        lease = await _lease(api)
        if lease is None:
            return warn("chakra", "not seen: there is no Lease (without leader election it has none)", mend)
        namespace, holder = lease["metadata"]["namespace"], lease["spec"].get("holderIdentity")
        if not holder:
            return fail("chakra", f"nobody holds its Lease in {namespace}", mend)
        waited_s = 0.0
        while waited_s <= lease["spec"].get("leaseDurationSeconds", 15):
            await sleep(LOOK_S)
            waited_s += LOOK_S
            now = await api.get(LEASES, namespace, CHAKRA)
            if now["spec"].get("renewTime") != lease["spec"].get("renewTime"):
                return ok("chakra", f"{now['spec'].get('holderIdentity')} leads, in {namespace}")
    except ApiError as error:
        return warn("chakra", f"cannot be looked for: {error}")
    return fail("chakra", f"{holder} holds its Lease in {namespace} and does not renew it: it is gone", mend)


async def _lease(api: Api) -> Object | None:
    # A pod's account may read it in its own namespace only, where the chart has both programs.
    for namespace in dict.fromkeys((await lease_namespace(api, ""), SYSTEM, ALONE)):
        lease = await api.find(LEASES, namespace, CHAKRA)
        if lease is not None:
            return lease
    return next((each for each in await api.list(LEASES) if each["metadata"]["name"] == CHAKRA), None)


async def _starbursts(api: Api, cluster: KubernetesConfig) -> DoctorCheck:
    """Whether another Starburst leads this cluster."""
    if cluster.lease is False:
        return warn("lease", "none is used (cluster.lease); another Starburst here would not be seen")
    name = cluster.lease_name
    try:
        namespace = await lease_namespace(api, cluster.lease_namespace or "")
        lacks = await missing_rights(api, namespace, name)
        if lacks:
            told = f"it may not {', '.join(lacks)} the Lease {namespace}/{name}"
            mend = "bind this account to the Role of deploy/kubernetes.yaml"
            return (fail if cluster.lease else warn)("lease", f"{told}: another Starburst is not seen", mend)
        lease = await api.find(LEASES, namespace, name)
    except ApiError as error:
        return warn("lease", f"cannot be looked for: {error}")
    holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
    if holder in ("", *_own_identities()):
        return ok("lease", f"{namespace}/{name}, {'held by this home' if holder else 'held by nobody'}")
    mend = (
        "stop the other one, or let this one stand by; one with other queues needs its own cluster.lease_name"
    )
    return warn("lease", f"another Starburst, {holder}, leads this cluster (Lease {namespace}/{name})", mend)


def _own_identities() -> tuple[str, ...]:
    """Under which names this home, or the processes that share its store, hold a Lease."""
    home = Home.default()
    try:
        with Store.open(home.store) as store:
            return identity_of(home.root), shared_identity(str(store.fact("controller")))
    except StoreError:
        return (identity_of(home.root),)


async def _nodes(api: Api) -> DoctorCheck:
    try:
        nodes = [read_node(item) for item in await api.list(NODES)]
    except ApiError as error:
        return fail("nodes", f"cannot be listed: {error}")
    if not nodes:
        return warn("nodes", "there are none", "add nodes; until then jobs can only leave for the cloud")
    away = [node.name for node in nodes if not node.ready]
    unknown = [node.name for node in nodes if gpus(node.allocatable) and not node.gpu_type]
    total = sum(gpus(node.allocatable) for node in nodes)
    found = f"{len(nodes)}, {len(nodes) - len(away)} Ready, {total} GPUs"
    if unknown:
        label = f"kubectl label nodes {' '.join(unknown)} nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"
        return warn(
            "nodes",
            f"{found}; no label says which GPUs {_some(unknown)} {'has' if len(unknown) == 1 else 'have'}",
            f"jobs that name a GPU type do not go there; if they are A100s: {label}",
        )
    if away:
        return warn("nodes", f"{found}; not Ready: {_some(away)}", f"kubectl describe node {away[0]}")
    return ok("nodes", found)


async def _schedulers(api: Api) -> list[DoctorCheck]:
    """GPU pods that other schedulers bound, if there are any: two on a node give the same GPUs away."""
    try:
        pods = [read_pod(item) for item in await api.list(PODS)]
    except ApiError as error:
        return [fail("schedulers", f"pods cannot be listed: {error}")]
    foreign = [pod for pod in pods if pod.node and not pod.over and gpus(pod.requests)]
    foreign = [pod for pod in foreign if pod.scheduler != CHAKRA]
    if not foreign:
        return []
    nodes = list(dict.fromkeys(pod.node for pod in foreign))
    who = ", ".join(dict.fromkeys(pod.scheduler for pod in foreign))
    shown = _some([f"{pod.namespace}/{pod.name}" for pod in foreign])
    return [
        warn(
            "schedulers",
            f"on {_some(nodes)} pods with GPUs are bound by {who}: {shown}",
            "what they use is not offered to jobs, but two schedulers that bind at once give the same GPUs "
            "away: the kubelet refuses one of the pods (OutOf…), and a job whose pod it was queues again; "
            f"keep GPU nodes to one: by a taint, or schedulerName: {CHAKRA} in those pods",
        )
    ]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


async def _namespace(api: Api, name: str) -> DoctorCheck:
    try:
        if await api.find(NAMESPACES, "", name) is None:
            return fail("namespace", f"there is no {name}", f"kubectl create namespace {name}")
    except ApiError as error:
        return warn("namespace", f"{name} cannot be looked at: {error}")
    return ok("namespace", name)


def _pod_security(tenancy: Tenancy) -> DoctorCheck:
    """The Pod Security level of submitters without the role admin."""
    told = f"jobs of those who are no admins are held to {tenancy.pod_security}"
    if tenancy.pod_security == PRIVILEGED:
        return warn("pod-security", told, "whoever has a token to submit owns the nodes; write restricted")
    return ok("pod-security", told)


async def _leaving(api: Api, config: Config, tenancy: Tenancy) -> list[DoctorCheck]:
    """Whether adopted jobs of the default service account may be offloaded, by namespace and queue."""
    if config.cloud.kind == "local" and not config.cloud.known_offers():
        return []
    queues = [queue.name for queue in config.queues] or ["default"]
    whys = [
        await why_confined(api, OffloadSubject(namespace, "default", queue))
        for namespace in tenancy.all_namespaces()
        for queue in queues
    ]
    kept = [why for why in whys if why]
    if not kept:
        return [ok("leaving", "what people apply may leave for the cloud")]
    return [warn("leaving", f"what people apply stays on the cluster: {why}") for why in dict.fromkeys(kept)]


async def _checkpoints(api: Api, cluster: KubernetesConfig) -> DoctorCheck:
    """The volume that checkpoints are kept in."""
    volume = cluster.checkpoints
    if volume is None:
        return ok("checkpoints", "none; to keep those of jobs over their runs, set cluster.checkpoints")
    ((kind, source),) = volume.items()
    if kind == "persistentVolumeClaim":
        return await _claim(api, cluster.namespace, source)
    if kind == "hostPath":
        return ok("checkpoints", f"{source['path']} of each node, which has to be the same storage on all")
    return ok("checkpoints", f"nfs {source['server']}:{source['path']}")


def _checkpoints_here(path: str | None) -> list[DoctorCheck]:
    """Where this machine sees that volume."""
    if path is None:
        return []
    if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
        return [ok("checkpoints-here", path)]
    found = "cannot be written to" if os.path.isdir(path) else "is no directory of this machine"
    mend = "mount the volume of cluster.checkpoints there, or leave cluster.checkpoints_here out"
    return [fail("checkpoints-here", f"{path} {found}", mend)]


async def _claim(api: Api, namespace: str, source: dict[str, Any]) -> DoctorCheck:
    name = f"PersistentVolumeClaim {namespace}/{source['claimName']}"
    try:
        claim = await api.find(CLAIMS, namespace, source["claimName"])
    except ApiError as error:
        return warn("checkpoints", f"{name} cannot be looked at: {error}")
    if claim is None:
        return fail("checkpoints", f"there is no {name}", f"make it, with accessModes: [{SHARED_MODE}]")
    modes = claim["spec"].get("accessModes") or []
    if SHARED_MODE not in modes:
        mend = f"runs on several nodes need one that is {SHARED_MODE}"
        return warn("checkpoints", f"{name} is {', '.join(modes)}", mend)
    return ok("checkpoints", f"{name}, {SHARED_MODE}")
