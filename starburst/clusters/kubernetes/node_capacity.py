"""The capacity of nodes for our jobs: allocatable, less the requests that the core does not count itself."""

from __future__ import annotations

from collections.abc import Callable

from starburst.domain.node import Node
from starburst.domain.resources import HOST_PORT, PODS, Resources
from starburst.kube.objects import MIB, NodeView, PodView, resources
from translator.manifests.amounts import GPUS
from translator.podspec import minus, plus

PodKey = tuple[str, str]


class NodeCapacity:
    """Nodes as the core sees them. The core counts our own runs itself, as their jobs ask for.

    `counted` is what it counts for a pod; None if that belongs to no run that it holds a place for. Of its
    pods is subtracted what servers have added to them: sidecars, overhead, defaults of a LimitRange.
    """

    def __init__(self, counted: Callable[[PodView], Resources | None]) -> None:
        self._counted = counted
        self._views: dict[str, NodeView] = {}
        self._pods: dict[str, dict[PodKey, PodView]] = {}
        self._nodes: dict[str, Node] = {}
        self._stale: set[str] = set()

    def view(self, name: str) -> NodeView | None:
        """One node as the watch last told of it; None if there is none of that name."""
        return self._views.get(name)

    def node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        """An event of the watch of nodes."""
        view = new or old
        assert view is not None
        if new is None:
            del self._views[view.name]
            self._nodes.pop(view.name, None)
            self._stale.discard(view.name)
        else:
            self._views[view.name] = new
            self._stale.add(view.name)

    def pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        """An event of the watch of pods; a pod counts from when it is bound until it has ended."""
        if old is not None and old.node:
            pods = self._pods.get(old.node, {})
            pods.pop(old.key, None)
            if not pods:
                self._pods.pop(old.node, None)
            self._stale.add(old.node)
        if new is not None and new.node:
            if not new.over:
                self._pods.setdefault(new.node, {})[new.key] = new
            self._stale.add(new.node)

    def look_again(self, names: set[str]) -> None:
        """Count these nodes again, since `counted` may answer differently for their pods."""
        self._stale |= names

    def nodes(self) -> tuple[Node, ...]:
        """All nodes as they are now, by name."""
        for name in self._stale & self._views.keys():
            self._nodes[name] = self._node(self._views[name])
        self._stale.clear()
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    def _node(self, view: NodeView) -> Node:
        taken: dict[str, int] = {}
        ports: set[str] = set()
        for pod in self._pods.get(view.name, {}).values():
            counted = self._counted(pod)
            if counted is None:
                taken = plus(taken, pod.requests)
                ports.update(pod.host_ports)
            else:
                taken = plus(taken, _added(pod, counted))
        free = {name: max(0, amount) for name, amount in minus(view.allocatable, taken).items()}
        free |= {HOST_PORT + port: 0 for port in ports}
        return Node(
            name=view.name,
            capacity=resources(free, view.gpu_type),
            labels=tuple(sorted(view.labels.items())),
            schedulable=view.ready and view.schedulable,
            taints=view.taints,
        )


def _added(pod: PodView, counted: Resources) -> dict[str, int]:
    """What a pod asks for beyond what its job does."""
    known = {"cpu": counted.cpu_milli, "memory": counted.memory_mib * MIB, PODS: 1, **dict(counted.others)}
    known |= dict.fromkeys(GPUS, counted.gpus)
    beyond = {name: amount - known.get(name, 0) for name, amount in pod.requests.items()}
    return {name: amount for name, amount in beyond.items() if amount > 0}
