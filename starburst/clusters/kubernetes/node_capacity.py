"""The capacity of nodes for our jobs: allocatable, less the requests of pods that are not ours."""

from __future__ import annotations

from collections.abc import Callable

from starburst.domain.node import Node
from starburst.domain.resources import HOST_PORT
from starburst.kube.objects import NodeView, PodView, resources
from translator.podspec import minus, plus

PodKey = tuple[str, str]


class NodeCapacity:
    """Nodes as the core sees them. Pods of our own runs are not subtracted: the core counts runs itself.

    `ours` says whether a pod belongs to a run that the core holds a place for.
    """

    def __init__(self, ours: Callable[[PodView], bool]) -> None:
        self._ours = ours
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
        """Count these nodes again, since `ours` may answer differently for their pods."""
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
            if not self._ours(pod):
                taken = plus(taken, pod.requests)
                ports.update(pod.host_ports)
        free = {name: max(0, amount) for name, amount in minus(view.allocatable, taken).items()}
        free |= {HOST_PORT + port: 0 for port in ports}
        return Node(
            name=view.name,
            capacity=resources(free, view.gpu_type),
            labels=tuple(sorted(view.labels.items())),
            schedulable=view.ready and view.schedulable,
            taints=view.taints,
        )
