"""The free resources of every node: as watched, less what Chakra has decided since.

A pod is *assumed* on a node as soon as Chakra decides to bind it. The watch confirms the assignment, a
refused binding releases it. A pod that is bound never becomes unbound again, whatever stale event arrives.
Assignments belong to a node's name: pods of a node that vanished count again when it comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from starburst.kube.objects import NodeView, PodView
from translator.podspec import Amounts


@dataclass(frozen=True, slots=True)
class Nomination:
    """Resources set aside on a node for a pod whose victims are being deleted (nominatedNodeName)."""

    requests: Amounts
    priority: int


class NodeInfo:
    """A node and its free resources. Only the cache changes it."""

    __slots__ = ("free", "name", "nominations", "order", "pods", "ports", "stamp", "view")

    def __init__(self, name: str, order: int) -> None:
        self.name = name
        #: Nodes that were known earlier come first where scores tie.
        self.order = order
        #: None while there is no such node.
        self.view: NodeView | None = None
        #: Allocatable less requests; negative where a node shrank.
        self.free: Amounts = {}
        self.pods: dict[str, PodView] = {}
        self.ports: Counter[str] = Counter()
        #: By uid of the nominated pod.
        self.nominations: dict[str, Nomination] = {}
        #: Grows with every change.
        self.stamp = 0

    def free_for(self, priority: int, uid: str = "") -> Amounts:
        """What a pod of this priority may use: not what is nominated to pods of equal or higher priority."""
        if not self.nominations:
            return self.free
        free = dict(self.free)
        for owner, nominated in self.nominations.items():
            if nominated.priority >= priority and owner != uid:
                for name, amount in nominated.requests.items():
                    free[name] = free.get(name, 0) - amount
        return free

    def _put(self, pod: PodView) -> None:
        self.pods[pod.uid] = pod
        self.ports.update(pod.host_ports)
        for name, amount in pod.requests.items():
            self.free[name] = self.free.get(name, 0) - amount

    def _take_away(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        for port in pod.host_ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
        for name, amount in pod.requests.items():
            self.free[name] += amount

    def _turn_into(self, view: NodeView | None) -> None:
        self.view = view
        self.free = dict(view.allocatable) if view else {}
        for pod in self.pods.values():
            for name, amount in pod.requests.items():
                self.free[name] = self.free.get(name, 0) - amount


@dataclass(frozen=True, slots=True)
class Assignment:
    """The node of a pod."""

    pod: PodView
    node: str
    #: Decided here, not yet seen in the watch.
    assumed: bool


class Cache:
    """All nodes and assignments."""

    def __init__(self) -> None:
        self.node_infos: dict[str, NodeInfo] = {}
        self.assignments: dict[str, Assignment] = {}
        #: Nodes in the order of their changes; a reader remembers its position in this list.
        self.log: list[NodeInfo] = []
        #: Names of nodes that may hold more than before.
        self.grown: set[str] = set()
        self._order = 0
        self._nominated: dict[str, str] = {}

    def nodes(self) -> Iterator[NodeInfo]:
        """The nodes that exist."""
        return (node_info for node_info in self.node_infos.values() if node_info.view is not None)

    # Events of the watches.

    def node_is(self, view: NodeView) -> None:
        """A node is new or changed."""
        node_info = self._node_info(view.name)
        node_info._turn_into(view)
        self._touch(node_info, grown=True)

    def node_gone(self, name: str) -> list[str]:
        """A node was deleted. Returns the uids of the pods that were nominated to it."""
        node_info = self.node_infos[name]
        node_info._turn_into(None)
        nominated = list(node_info.nominations)
        for uid in nominated:
            self.withdraw_nomination(uid)
        self._touch(node_info)
        self._sweep(node_info)
        return nominated

    def bound(self, pod: PodView) -> None:
        """A pod is bound, by any scheduler."""
        self.withdraw_nomination(pod.uid)
        known = self.assignments.get(pod.uid)
        if known is not None and known.node == pod.node and known.pod.requests == pod.requests:
            self.assignments[pod.uid] = Assignment(pod, pod.node, False)
            self.node_infos[pod.node].pods[pod.uid] = pod
            return
        if known is not None:
            self._remove(pod.uid)
        self._assign(Assignment(pod, pod.node, False))

    def gone(self, uid: str) -> None:
        """A pod was deleted, or has ended."""
        self.withdraw_nomination(uid)
        if uid in self.assignments:
            self._remove(uid)

    # Decisions.

    def assume(self, pod: PodView, node: str) -> None:
        """Assign a pod whose binding is decided and will be sent."""
        assert pod.uid not in self.assignments, f"{pod.key} has a place"
        self.withdraw_nomination(pod.uid)
        self._assign(Assignment(pod, node, True))

    def refresh(self, pod: PodView) -> None:
        """A newer view of an assumed pod that is still unbound as far as the watch knows."""
        assignment = self.assignments[pod.uid]
        if assignment.assumed and assignment.pod.requests == pod.requests:
            self.assignments[pod.uid] = replace(assignment, pod=pod)
            self.node_infos[assignment.node].pods[pod.uid] = pod

    def release(self, uid: str, *, undo: bool = False) -> PodView | None:
        """Take back an assumed assignment whose pod was not bound; None if there is none, or it is confirmed.

        `undo`: the assignment was a trial of this cycle, so no other pod gains from it.
        """
        assignment = self.assignments.get(uid)
        if assignment is None or not assignment.assumed:
            return None
        self._remove(uid, grown=not undo)
        return assignment.pod

    def nominate(self, pod: PodView, node: str) -> None:
        """Set resources aside for a pod whose victims are being deleted."""
        self.withdraw_nomination(pod.uid)
        node_info = self.node_infos[node]
        node_info.nominations[pod.uid] = Nomination(pod.requests, pod.priority)
        self._nominated[pod.uid] = node
        self._touch(node_info)

    def withdraw_nomination(self, uid: str) -> str:
        """Drop the nomination of a pod; returns the node's name, "" if there was none."""
        node = self._nominated.pop(uid, "")
        if node:
            del self.node_infos[node].nominations[uid]
            self._touch(self.node_infos[node], grown=True)
        return node

    def nominated_node(self, uid: str) -> str:
        """The node that a pod is nominated to, or ""."""
        return self._nominated.get(uid, "")

    def _assign(self, assignment: Assignment) -> None:
        node_info = self._node_info(assignment.node)
        self.assignments[assignment.pod.uid] = assignment
        node_info._put(assignment.pod)
        self._touch(node_info)

    def _remove(self, uid: str, *, grown: bool = True) -> None:
        assignment = self.assignments.pop(uid)
        node_info = self.node_infos[assignment.node]
        node_info._take_away(uid)
        self._touch(node_info, grown=grown)
        self._sweep(node_info)

    def _node_info(self, name: str) -> NodeInfo:
        node_info = self.node_infos.get(name)
        if node_info is None:
            self._order += 1
            node_info = self.node_infos[name] = NodeInfo(name, self._order)
        return node_info

    def _touch(self, node_info: NodeInfo, *, grown: bool = False) -> None:
        node_info.stamp += 1
        self.log.append(node_info)
        if grown and node_info.view is not None:
            self.grown.add(node_info.name)

    def _sweep(self, node_info: NodeInfo) -> None:
        if node_info.view is None and not node_info.pods and not node_info.nominations:
            del self.node_infos[node_info.name]
