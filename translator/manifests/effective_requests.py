"""The effective requests of a pod (see `translator.podspec`), with checks of the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from starburst.domain.resources import HOST_PORT, Resources, sum_of
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
    resources = as_resources(effective_requests(parts), asking)
    ports = tuple((HOST_PORT + port, 1) for port in sorted(set(_host_ports(spec))))
    return replace(resources, others=sum_of(resources.others, ports)) if ports else resources


def _host_ports(spec: Field) -> Iterator[str]:
    """As `translator.podspec.host_ports`; on the host's network every port is one."""
    on_host = spec.at("hostNetwork").value is True
    sidecars = [each for each in spec.at("initContainers").items() if is_sidecar(each.value)]
    for container in (*spec.at("containers").items(), *sidecars):
        for port in container.at("ports").items():
            number = port.at("hostPort").value or (on_host and port.at("containerPort").value)
            if number:
                yield f"{port.at('protocol').value or 'TCP'}/{number}"


def _check_pod_level(resources: Field) -> None:
    """Refuse pod-level resources other than CPU and memory."""
    resources.check(RESOURCES)
    for field in (resources.at("limits"), resources.at("requests")):
        for name in GPUS:
            if field.at(name).value is not None:
                field.at(name).refuse("GPUs are given to containers, not to a pod; move it")
