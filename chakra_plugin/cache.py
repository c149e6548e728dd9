"""What is free on every node: what the API server says, and what Chakra has promised since.

A pod is *assumed* on a node from the moment Chakra decides so. The watch confirms it, a refused binding gives
the room back; a pod that is bound never becomes unbound again, whatever old news arrives. Room belongs to a
node's name: pods bound to a node that vanished count again when it comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from starburst.kube.objects import NodeView, PodView
from translator.podspec import Amounts


@dataclass(frozen=True, slots=True)
class Nomination:
    """Room kept on a node for a pod whose victims are on their way out."""

    requests: Amounts
    priority: int


class NodeInfo:
    """A node and what is left of it. Only the cache changes it."""

    __slots__ = ("free", "kept", "name", "order", "pods", "ports", "stamp", "view")

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
        #: By uid of the pod it is kept for.
        self.kept: dict[str, Nomination] = {}
        #: Grows with every change.
        self.stamp = 0

    def free_for(self, priority: int, uid: str = "") -> Amounts:
        """What a pod of this priority may have: room kept for another that is as important is not free."""
        if not self.kept:
            return self.free
        free = dict(self.free)
        for owner, kept in self.kept.items():
            if kept.priority >= priority and owner != uid:
                for name, amount in kept.requests.items():
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
    """Where a pod is."""

    pod: PodView
    node: str
    #: Decided here, not yet seen in the watch.
    assumed: bool


class Cache:
    """All rooms and places."""

    def __init__(self) -> None:
        self.rooms: dict[str, NodeInfo] = {}
        self.places: dict[str, Assignment] = {}
        #: Rooms in the order in which they changed; whoever remembers a position in it knows what is new.
        self.log: list[NodeInfo] = []
        #: Names of nodes that may hold more than before.
        self.grown: set[str] = set()
        self._order = 0
        self._kept: dict[str, str] = {}

    def nodes(self) -> Iterator[NodeInfo]:
        """Of nodes that are there."""
        return (room for room in self.rooms.values() if room.view is not None)

    # What the watch says.

    def node_is(self, view: NodeView) -> None:
        """A node is new or changed."""
        room = self._room(view.name)
        room._turn_into(view)
        self._touch(room, grown=True)

    def node_gone(self, name: str) -> list[str]:
        """A node vanished; the pods on it are somebody else's care. For whom room was kept there, by uid."""
        room = self.rooms[name]
        room._turn_into(None)
        kept = list(room.kept)
        for uid in kept:
            self.unkeep(uid)
        self._touch(room)
        self._sweep(room)
        return kept

    def bound(self, pod: PodView) -> None:
        """A pod is bound, by whomever."""
        self.unkeep(pod.uid)
        known = self.places.get(pod.uid)
        if known is not None and known.node == pod.node and known.pod.requests == pod.requests:
            self.places[pod.uid] = Assignment(pod, pod.node, False)
            self.rooms[pod.node].pods[pod.uid] = pod
            return
        if known is not None:
            self._remove(pod.uid)
        self._place(Assignment(pod, pod.node, False))

    def gone(self, uid: str) -> None:
        """A pod was deleted, or is over."""
        self.unkeep(uid)
        if uid in self.places:
            self._remove(uid)

    # What Chakra decides.

    def assume(self, pod: PodView, node: str) -> None:
        """A binding is decided and will be sent."""
        assert pod.uid not in self.places, f"{pod.key} has a place"
        self.unkeep(pod.uid)
        self._place(Assignment(pod, node, True))

    def refresh(self, pod: PodView) -> None:
        """A newer view of an assumed pod that is still unbound as far as the watch knows."""
        place = self.places[pod.uid]
        if place.assumed and place.pod.requests == pod.requests:
            self.places[pod.uid] = replace(place, pod=pod)
            self.rooms[place.node].pods[pod.uid] = pod

    def release(self, uid: str, *, undo: bool = False) -> PodView | None:
        """An assumed pod was surely not bound. The pod, or None if the place is not, or no more, a promise.

        `undo`: it was never meant to be; nobody else gains by it.
        """
        place = self.places.get(uid)
        if place is None or not place.assumed:
            return None
        self._remove(uid, grown=not undo)
        return place.pod

    def keep(self, pod: PodView, node: str) -> None:
        """Keep room for a pod whose victims leave."""
        self.unkeep(pod.uid)
        room = self.rooms[node]
        room.kept[pod.uid] = Nomination(pod.requests, pod.priority)
        self._kept[pod.uid] = node
        self._touch(room)

    def unkeep(self, uid: str) -> str:
        """Keep no room any more; the node's name, "" if there was none."""
        node = self._kept.pop(uid, "")
        if node:
            del self.rooms[node].kept[uid]
            self._touch(self.rooms[node], grown=True)
        return node

    def kept_on(self, uid: str) -> str:
        """The node that keeps room for a pod, or ""."""
        return self._kept.get(uid, "")

    def _place(self, place: Assignment) -> None:
        room = self._room(place.node)
        self.places[place.pod.uid] = place
        room._put(place.pod)
        self._touch(room)

    def _remove(self, uid: str, *, grown: bool = True) -> None:
        place = self.places.pop(uid)
        room = self.rooms[place.node]
        room._take_away(uid)
        self._touch(room, grown=grown)
        self._sweep(room)

    def _room(self, name: str) -> NodeInfo:
        room = self.rooms.get(name)
        if room is None:
            self._order += 1
            room = self.rooms[name] = NodeInfo(name, self._order)
        return room

    def _touch(self, room: NodeInfo, *, grown: bool = False) -> None:
        room.stamp += 1
        self.log.append(room)
        if grown and room.view is not None:
            self.grown.add(room.name)

    def _sweep(self, room: NodeInfo) -> None:
        if room.view is None and not room.pods and not room.kept:
            del self.rooms[room.name]
