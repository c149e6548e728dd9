"""The effective requests of a pod (see `translator.podspec`), with checks of the manifest."""

from __future__ import annotations

from fractions import Fraction

from starburst.domain.resources import Resources
from translator.field import Field
from translator.manifests.amounts import GPUS, RESOURCES, amounts, as_resources, container_amounts
from translator.podspec import RequestsOfParts, effective_requests, is_sidecar


def pod_resources(spec: Field) -> Resources:
    """The effective requests of a pod spec; errors are recorded in the field's report."""
    containers = spec.at("containers").items()
    whole = spec.at("resources")
    _check_pod_level(whole)
    parts: RequestsOfParts[Fraction] = RequestsOfParts(
        containers=[container_amounts(each.at("resources")) for each in containers],
        init_containers=[
            (
                container_amounts(each.at("resources")),
                is_sidecar(each.value),
            )
            for each in spec.at("initContainers").items()
        ],
        limits=amounts(whole.at("limits")),
        requests=amounts(whole.at("requests")),
        overhead=amounts(spec.at("overhead")),
    )
    alone = len(containers) == 1 and not spec.at("initContainers").value
    asking = containers[0].at("resources") if alone else spec.at("containers")
    return as_resources(effective_requests(parts), asking)


def _check_pod_level(resources: Field) -> None:
    """Refuse pod-level resources other than CPU and memory."""
    resources.check(RESOURCES)
    for field in (resources.at("limits"), resources.at("requests")):
        for name in GPUS:
            if field.at(name).value is not None:
                field.at(name).refuse("GPUs are given to containers, not to a pod; move it")
