"""What the containers of a pod take while they are resized in place (Kubernetes 1.27 and later).

Source: KEP-1287, "Scheduler and API Server Interaction": the most of what is wanted (spec), what the kubelet
has granted (`allocatedResources`) and what is in force (`resources`); what its node can never hold is not
counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starburst.kube.resources import Object
from translator.quantity import quantity


def resized(spec: Object, status: Object) -> Object:
    """The spec of a pod with the requests that count now; the spec itself if its status says nothing else."""
    states = {
        each["name"]: each
        for field in ("containerStatuses", "initContainerStatuses")
        for each in status.get(field) or ()
        if each.get("resources") or each.get("allocatedResources")
    }
    if not states:
        return spec
    impossible = any(
        each["type"] == "PodResizePending" and each.get("reason") == "Infeasible"
        for each in status.get("conditions") or ()
    )
    fields = ("containers", "initContainers")
    changed = {
        field: [_container(each, states.get(each["name"]), impossible) for each in spec[field]]
        for field in fields
        if spec.get(field)
    }
    return {**spec, **changed}


def _container(container: Object, state: Object | None, impossible: bool) -> Object:
    if state is None:
        return container
    wanted, there = container.get("resources") or {}, state.get("resources") or {}
    amounts = [
        {} if impossible else _requests(wanted),
        _requests(there),
        state.get("allocatedResources") or {},
    ]
    if all(each in ({}, amounts[0]) for each in amounts[1:]) and not impossible:
        return container
    requests = {
        name: max((each[name] for each in amounts if name in each), key=lambda text: quantity(str(text)))
        for name in dict.fromkeys(name for each in amounts for name in each)
    }
    return {**container, "resources": {"requests": requests}}


def _requests(resources: Mapping[str, Any]) -> Object:
    """Requests; where one is missing, its limit."""
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
