"""What a pod demands of its node, as a value: pods of one demand fit or fail together."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.domain.constraints import ANY_UNTAINTED, Rules
from starburst.kube.objects import PodView


@dataclass(frozen=True, slots=True)
class Demand:
    """Amounts as in `starburst.kube.objects`, without zeros; `pods` is one of them."""

    requests: tuple[tuple[str, int], ...]
    selector: tuple[tuple[str, str], ...] = ()
    rules: Rules = ANY_UNTAINTED
    #: Host ports, "protocol/port".
    ports: tuple[str, ...] = ()
    #: Fields of the pod that Chakra does not understand.
    unsupported: tuple[str, ...] = ()
    #: It decides whose kept room may be taken.
    priority: int = 0


def demand_of(pod: PodView) -> Demand:
    """Of a pod."""
    requests = tuple(sorted((name, amount) for name, amount in pod.requests.items() if amount))
    return Demand(requests, pod.selector, pod.rules, pod.host_ports, pod.unsupported, pod.priority)
