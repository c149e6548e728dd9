"""Reads pod specs: the requested resources, and the nodes that a pod may be placed on.

The manifest reader, the cluster adapter and Chakra all use it, so a job has the same requests at submission
as its pods have when they run. Specs must be valid, as checked by the API server or `translator.manifests`.

Sources: Kubernetes documentation, "Init Containers" (resource sharing within containers), "Sidecar
Containers", "Pod Overhead", "Assign Pod-level CPU and memory resources", "Assigning Pods to Nodes".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from sys import intern
from typing import Any, Generic, TypeVar

from starburst.domain.constraints import NODE_NAME, Requirement, Rules, Term, Toleration
from starburst.domain.resources import MILLI
from translator.declared_features import needing
from translator.quantity import quantity

#: By resource name: milli-CPUs for "cpu", else the base unit (bytes, GPUs, pods).
Amounts = dict[str, int]
N = TypeVar("N", int, Fraction)

#: Resources that a pod-level request may name.
POD_LEVEL = ("cpu", "memory")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class RequestsOfParts(Generic[N]):
    """Requests of the parts of a pod, by resource name, in a unit of the caller's choice."""

    containers: Iterable[Mapping[str, N]]
    #: In order of execution; True for a sidecar, which keeps running beside the containers.
    init_containers: Iterable[tuple[Mapping[str, N], bool]] = ()
    #: Pod-level limits, requests and overhead.
    limits: Mapping[str, N] = field(default_factory=dict)
    requests: Mapping[str, N] = field(default_factory=dict)
    overhead: Mapping[str, N] = field(default_factory=dict)


def effective_requests(parts: RequestsOfParts[N]) -> dict[str, N]:
    """The requests by which kube-scheduler counts a pod on its node.

    Per resource, the result is the larger of two amounts: the sum over all containers and sidecars, and the
    largest need at startup, where init containers run one by one, each beside the sidecars started before it.
    Pod-level requests replace this amount; pod-level limits count where there is neither, as the API server
    defaults them. The overhead of the runtime class is added.
    """
    sidecars: dict[str, N] = {}
    starting: dict[str, N] = {}
    for asked, is_sidecar in parts.init_containers:
        at_once = plus(sidecars, asked)
        starting = _most(starting, at_once)
        if is_sidecar:
            sidecars = at_once
    running = sidecars
    for asked in parts.containers:
        running = plus(running, asked)
    return plus({**parts.limits, **_most(running, starting), **parts.requests}, parts.overhead)


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """The effective requests of a valid pod spec, plus 1 of the resource "pods"."""
    whole = spec.get("resources") or {}
    parts = RequestsOfParts(
        containers=[_container_requests(each) for each in spec.get("containers") or ()],
        init_containers=[
            (_container_requests(each), is_sidecar(each)) for each in spec.get("initContainers") or ()
        ],
        limits=_pod_level(whole.get("limits")),
        requests=_pod_level(whole.get("requests")),
        overhead=amounts(spec.get("overhead") or {}, math.ceil),
    )
    return plus(effective_requests(parts), {"pods": 1})


def _container_requests(container: Mapping[str, Any]) -> Amounts:
    """The requests of a container; a missing request equals the limit."""
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})}, math.ceil)


def _pod_level(found: Mapping[str, Any] | None) -> Amounts:
    return amounts({name: found[name] for name in POD_LEVEL if name in found} if found else {}, math.ceil)


def amounts(quantities: Mapping[str, Any], whole: Callable[[Fraction], int]) -> Amounts:
    """Quantities as integers, rounded by `whole`: down for a node's resources, up for requests."""
    return {intern(name): _scaled(name, str(value), whole) for name, value in quantities.items()}


@lru_cache(maxsize=4096)
def _scaled(name: str, text: str, whole: Callable[[Fraction], int]) -> int:
    return whole(quantity(text) * (MILLI if name == "cpu" else 1))


def plus(left: Mapping[str, N], right: Mapping[str, N]) -> dict[str, N]:
    """The sum per resource name."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total[name] + amount if name in total else amount
    return total


def minus(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The difference per resource name; it may be negative."""
    return plus(left, {name: -amount for name, amount in right.items()})


def _most(left: Mapping[str, N], right: Mapping[str, N]) -> dict[str, N]:
    """The larger amount per resource name; amounts are not negative."""
    return {**left, **{name: max(left[name], n) if name in left else n for name, n in right.items()}}


def is_sidecar(init_container: object) -> bool:
    """Whether an init container keeps running beside the containers (restartPolicy Always)."""
    return isinstance(init_container, dict) and init_container.get("restartPolicy") == "Always"


def host_ports(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Host ports of containers and sidecars, as "protocol/port"."""
    sidecars = (each for each in spec.get("initContainers") or () if is_sidecar(each))
    return tuple(
        f"{port.get('protocol') or 'TCP'}/{port['hostPort']}"
        for container in (*(spec.get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def node_rules(spec: Mapping[str, Any]) -> Rules:
    """Tolerations and required node affinity, with the features that a node has to declare."""
    required = _at(spec, "affinity", "nodeAffinity", REQUIRED)
    return Rules(
        affinity=needing(node_terms(required), spec),
        tolerations=tuple(
            Toleration(
                each.get("key") or "",
                each.get("operator") or "Equal",
                each.get("value") or "",
                each.get("effect") or "",
            )
            for each in spec.get("tolerations") or ()
        ),
    )


def node_terms(selector: Mapping[str, Any]) -> tuple[Term, ...]:
    """The terms of a NodeSelector, of which a node must match one."""
    return tuple(
        (
            *(_requirement(each, each["key"]) for each in (term or {}).get("matchExpressions") or ()),
            *(_requirement(each, NODE_NAME) for each in (term or {}).get("matchFields") or ()),
        )
        for term in selector.get("nodeSelectorTerms") or ()
    )


def _requirement(found: Mapping[str, Any], key: str) -> Requirement:
    return Requirement(key, found["operator"], tuple(value or "" for value in found.get("values") or ()))


def unsupported_demands(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields that restrict a pod's placement and that neither Starburst nor Chakra supports."""
    found = []
    for kind in ("podAffinity", "podAntiAffinity"):
        if _at(spec, "affinity", kind).get(REQUIRED):
            found.append(f"spec.affinity.{kind}")
    for spread in spec.get("topologySpreadConstraints") or ():
        if spread.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            found.append("spec.topologySpreadConstraints")
    found += [f"spec.{name}" for name in ("resourceClaims", "schedulingGates") if spec.get(name)]
    return tuple(dict.fromkeys(found))


def _at(found: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for key in path:
        found = found.get(key) or {}
    return found
