"""The demands of a pod on its node, as a value: pods of equal demands fit or fail together."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.domain.constraints import ANY_UNTAINTED, Rules
from starburst.kube.objects import PodView
from starburst.kube.volumes.demand import NO_VOLUMES, VolumeDemand


@dataclass(frozen=True, slots=True)
class Demand:
    """`requests` are amounts as in `translator.podspec`, without zeros; "pods" is one of them."""

    requests: tuple[tuple[str, int], ...]
    selector: tuple[tuple[str, str], ...] = ()
    rules: Rules = ANY_UNTAINTED
    #: Host ports, "protocol/port".
    ports: tuple[str, ...] = ()
    #: Fields of the pod that Chakra does not support.
    unsupported: tuple[str, ...] = ()
    #: Nominations of pods with a lower priority are ignored.
    priority: int = 0
    volumes: VolumeDemand = NO_VOLUMES


def demand_of(pod: PodView, volumes: VolumeDemand = NO_VOLUMES) -> Demand:
    """The demands of a pod; `volumes` are those of its claims."""
    requests = tuple(sorted((name, amount) for name, amount in pod.requests.items() if amount))
    return Demand(requests, pod.selector, pod.rules, pod.host_ports, pod.unsupported, pod.priority, volumes)
