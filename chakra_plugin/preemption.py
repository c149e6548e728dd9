"""Whose place a more important pod may take.

As kube-scheduler does it (documentation, "Pod Priority and Preemption"), without PodDisruptionBudgets: on a
node all pods of lower priority are thought away; then as many as possible come back, the most important
first. Of all nodes the one is chosen whose most important victim is the least important, then the one with
the fewest victims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chakra_plugin.cache import NodeInfo
from chakra_plugin.demand import Demand
from chakra_plugin.filters import barred
from starburst.kube.objects import PodView
from translator.podspec import Amounts


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who has to leave which node; nobody, if those that leave anyhow are enough."""

    node: str
    victims: tuple[PodView, ...]


def eviction(
    demand: Demand,
    uid: str,
    rooms: Iterable[NodeInfo],
    leaving: Callable[[PodView], bool],
    movable: Callable[[PodView], bool],
) -> Eviction | None:
    """The cheapest one that makes room for a pod, or None.

    `leaving`: pods that are on their way out; they cost nothing. `movable`: pods that may be victims at all.
    """
    best: tuple[tuple[int, int, int, int], Eviction] | None = None
    for room in rooms:
        if room.view is None or barred(demand, room.view):
            continue
        victims = _victims(demand, uid, room, leaving, movable)
        if victims is None:
            continue
        highest = max((pod.priority for pod in victims), default=-(2**31))
        cost = (highest, len(victims), sum(pod.priority for pod in victims), room.order)
        if best is None or cost < best[0]:
            best = cost, Eviction(room.name, tuple(victims))
    return best[1] if best else None


def _victims(
    demand: Demand,
    uid: str,
    room: NodeInfo,
    leaving: Callable[[PodView], bool],
    movable: Callable[[PodView], bool],
) -> list[PodView] | None:
    free, ports = dict(room.free_for(demand.priority, uid)), set(room.ports)
    lower = []
    for pod in room.pods.values():
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
