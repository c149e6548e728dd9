"""Preemption: which pods to delete so that one of higher priority fits.

As kube-scheduler does it (documentation, "Pod Priority and Preemption"), without PodDisruptionBudgets: on a
node all pods of lower priority are removed in thought; then as many as possible are put back, the highest
priority first. The rest are the victims. Of all nodes the one is chosen whose highest victim has the lowest
priority, then the one with the fewest victims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chakra_plugin.scheduling.cache import NodeInfo
from chakra_plugin.scheduling.demand import Demand
from chakra_plugin.scheduling.filters import barred
from starburst.kube.objects import PodView
from translator.podspec import Amounts


@dataclass(frozen=True, slots=True)
class Eviction:
    """The victims on a node; none if the pods that are ending anyhow make enough room."""

    node: str
    victims: tuple[PodView, ...]


def eviction(
    demand: Demand,
    uid: str,
    node_infos: Iterable[NodeInfo],
    leaving: Callable[[PodView], bool],
    movable: Callable[[PodView], bool],
) -> Eviction | None:
    """The cheapest eviction after which a pod fits, or None.

    `leaving`: pods that are ending; they cost nothing. `movable`: pods that may be victims.
    """
    best: tuple[tuple[int, int, int, int], Eviction] | None = None
    for node_info in node_infos:
        if node_info.view is None or barred(demand, node_info.view):
            continue
        victims = _victims(demand, uid, node_info, leaving, movable)
        if victims is None:
            continue
        highest = max((pod.priority for pod in victims), default=-(2**31))
        cost = (highest, len(victims), sum(pod.priority for pod in victims), node_info.order)
        if best is None or cost < best[0]:
            best = cost, Eviction(node_info.name, tuple(victims))
    return best[1] if best else None


def _victims(
    demand: Demand,
    uid: str,
    node_info: NodeInfo,
    leaving: Callable[[PodView], bool],
    movable: Callable[[PodView], bool],
) -> list[PodView] | None:
    free, ports = dict(node_info.free_for(demand.priority, uid)), set(node_info.ports)
    lower = []
    for pod in node_info.pods.values():
        if leaving(pod):
            _give(free, ports, pod)
        elif pod.priority < demand.priority and movable(pod):
            lower.append(pod)
            _give(free, ports, pod)
    if not _enough(demand, free, ports):
        return None
    victims = []
    for pod in sorted(lower, key=lambda pod: (-pod.priority, pod.created_at, pod.uid)):
        _take(free, ports, pod)
        if not _enough(demand, free, ports):
            _give(free, ports, pod)
            victims.append(pod)
    return victims


def _enough(demand: Demand, free: Amounts, ports: set[str]) -> bool:
    return not ports.intersection(demand.ports) and all(
        free.get(name, 0) >= amount for name, amount in demand.requests
    )


def _give(free: Amounts, ports: set[str], pod: PodView) -> None:
    for name, amount in pod.requests.items():
        free[name] = free.get(name, 0) + amount
    ports.difference_update(pod.host_ports)


def _take(free: Amounts, ports: set[str], pod: PodView) -> None:
    for name, amount in pod.requests.items():
        free[name] -= amount
    ports.update(pod.host_ports)
