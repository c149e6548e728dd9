"""The queue of waiting pods: by priority, then age, in groups that fit or fail together.

A line that failed is blocked: its pods are not tried again before something changed that may help them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from chakra_plugin.scheduling.demand import Demand
from chakra_plugin.scheduling.directives import Directive, Hold
from chakra_plugin.scheduling.gangs import Gang
from starburst.kube.objects import PodView

#: Seconds that a pod waits after a failed binding, doubled each time (kube-scheduler's defaults).
FIRST_BACKOFF_S = 1.0
LAST_BACKOFF_S = 10.0

#: −priority, epoch seconds of creation, a number that no other pod has.
QueueOrder = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class PodShape:
    """Demand and directive of a pod: pods of one shape are interchangeable."""

    demand: Demand
    directive: Directive | None = None


@dataclass(frozen=True, slots=True)
class InvalidPod:
    """Not placed before the pod itself, or one of its claims, is another one."""

    why: str


#: How a waiting pod is treated: placed by shape or gang, held for Starburst, or never placed.
Disposition = PodShape | Gang | Hold | InvalidPod


@dataclass(slots=True)
class QueuedPod:
    """A waiting pod."""

    pod: PodView
    order: QueueOrder
    #: When it was first seen to wait, epoch seconds.
    since: float
    disposition: Disposition
    #: Backoff: in no group before that time, epoch seconds.
    not_before: float = 0.0


@dataclass(slots=True, eq=False)
class PendingGroup:
    """Waiting pods that fit or fail together: of one shape, or of one gang."""

    key: PodShape | Gang
    waiting: dict[str, QueuedPod] = field(default_factory=dict)
    #: Why it fits nowhere; "" while it was not tried.
    blocked: str = ""
    _heap: list[tuple[QueueOrder, str]] = field(default_factory=list)

    def first(self) -> QueuedPod:
        """The first pod in order; the group is not empty."""
        heap = self._heap
        while True:
            entry = self.waiting.get(heap[0][1])
            if entry is not None:
                return entry
            heappop(heap)

    def join(self, entry: QueuedPod) -> None:
        """Add a pod."""
        self.waiting[entry.pod.uid] = entry
        heappush(self._heap, (entry.order, entry.pod.uid))
        if len(self._heap) > 2 * len(self.waiting) + 16:
            self._heap = [(each.order, uid) for uid, each in self.waiting.items()]
            heapify(self._heap)


class SchedulingQueue:
    """All groups, and the pods that are in none: held, invalid, or in backoff."""

    def __init__(self) -> None:
        self.entries: dict[str, QueuedPod] = {}
        self.ready: dict[PendingGroup, None] = {}
        self.blocked: dict[PendingGroup, None] = {}
        self._pending_groups: dict[PodShape | Gang, PendingGroup] = {}
        self._groups: dict[object, dict[PendingGroup, None]] = {}
        self._asleep: list[tuple[float, str]] = []
        self._counter = 0

    def put(self, pod: PodView, disposition: Disposition, now: float, since: float | None = None) -> None:
        """Add a pod, or update the pod or its disposition."""
        known = self.entries.get(pod.uid)
        if known is not None and known.disposition == disposition:
            known.pod = pod
            return
        if known is not None:
            self.remove(pod.uid)
            entry = QueuedPod(pod, known.order, known.since, disposition, known.not_before)
        else:
            self._counter += 1
            order = (-pod.priority, pod.created_at, self._counter)
            entry = QueuedPod(pod, order, now if since is None else since, disposition)
        self.entries[pod.uid] = entry
        if entry.not_before <= now:
            self._join(entry)

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove a pod."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._leave(entry)
        return entry

    def back(self, entry: QueuedPod) -> None:
        """Add a removed pod again, in its old order."""
        self.entries[entry.pod.uid] = entry
        self._join(entry)

    def delay(self, uid: str, until: float) -> None:
        """Keep a pod out of its group until that time (epoch seconds)."""
        entry = self.entries[uid]
        self._leave(entry)
        entry.not_before = until
        heappush(self._asleep, (until, uid))

    def wake(self, now: float) -> None:
        """Put pods whose backoff is over back into their groups."""
        while self._asleep and self._asleep[0][0] <= now:
            until, uid = heappop(self._asleep)
            entry = self.entries.get(uid)
            if entry is not None and entry.not_before == until:
                entry.not_before = 0.0
                self._join(entry)

    def next_wake(self) -> float | None:
        """When the next backoff ends; None if there is none."""
        return self._asleep[0][0] if self._asleep else None

    def block(self, pending_group: PendingGroup, why: str) -> None:
        """Block a group, since it fits nowhere."""
        pending_group.blocked = why
        if pending_group in self.ready:
            del self.ready[pending_group]
            self.blocked[pending_group] = None

    def unblock(self, pending_group: PendingGroup) -> None:
        """Make a blocked group ready; its reason stays until it is tried."""
        if pending_group in self.blocked:
            del self.blocked[pending_group]
            self.ready[pending_group] = None

    def unblock_group(self, group: object) -> None:
        """Unblock what waits for this gang, or for the pods of this owner."""
        for pending_group in self._groups.get(group, ()):
            self.unblock(pending_group)

    def pending_group(self, shape: PodShape) -> PendingGroup | None:
        """The group of a shape, None if no pod waits in it."""
        return self._pending_groups.get(shape)

    def reason(self, uid: str) -> str:
        """Why a pod waits, for its event; "" if there is nothing to report."""
        entry = self.entries.get(uid)
        if entry is None:
            return ""
        disposition = entry.disposition
        if isinstance(disposition, InvalidPod):
            return disposition.why
        if isinstance(disposition, Hold):
            return disposition.why if disposition.told else ""
        pending_group = self._pending_groups.get(disposition)
        return pending_group.blocked if pending_group is not None else ""

    def reasons(self) -> Iterator[tuple[QueuedPod, str]]:
        """Every pod with a reason to report, and the reason."""
        return ((entry, why) for uid, entry in self.entries.items() if (why := self.reason(uid)))

    def _join(self, entry: QueuedPod) -> None:
        disposition = entry.disposition
        if isinstance(disposition, (Hold, InvalidPod)):
            return
        pending_group = self._pending_groups.get(disposition)
        if pending_group is None:
            pending_group = self._pending_groups[disposition] = PendingGroup(disposition)
            self.ready[pending_group] = None
            self._groups.setdefault(_group(pending_group), {})[pending_group] = None
        pending_group.join(entry)
        if isinstance(disposition, Gang):
            self.unblock(pending_group)

    def _leave(self, entry: QueuedPod) -> None:
        disposition = entry.disposition
        pending_group = (
            None if isinstance(disposition, (Hold, InvalidPod)) else self._pending_groups.get(disposition)
        )
        if (
            pending_group is None
            or pending_group.waiting.pop(entry.pod.uid, None) is None
            or pending_group.waiting
        ):
            return
        del self._pending_groups[pending_group.key]
        self.ready.pop(pending_group, None)
        self.blocked.pop(pending_group, None)
        group = self._groups[_group(pending_group)]
        del group[pending_group]
        if not group:
            del self._groups[_group(pending_group)]


def _group(pending_group: PendingGroup) -> object:
    if isinstance(pending_group.key, Gang):
        return pending_group.key
    return pending_group.key.directive.group if pending_group.key.directive else None


def backoff_s(failures: int) -> float:
    """Seconds to wait after this many failed bindings in a row, from 1."""
    return float(min(FIRST_BACKOFF_S * 2 ** min(failures - 1, 10), LAST_BACKOFF_S))
