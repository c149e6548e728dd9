"""Pods that wait: by priority, then age, in lines of those that fit or fail together.

A line that failed is blocked: its pods are not tried again before something changed that may help them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from chakra_plugin.demand import Demand
from chakra_plugin.directives import Directive, Hold
from chakra_plugin.gangs import Gang
from starburst.kube.objects import PodView

#: Seconds that a pod waits after a failed binding, doubled each time (kube-scheduler's defaults).
FIRST_BACKOFF_S = 1.0
LAST_BACKOFF_S = 10.0

#: −priority, epoch seconds of creation, a number that no other pod has.
QueueOrder = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class PodShape:
    """Pods of one shape can stand in for each other."""

    demand: Demand
    directive: Directive | None = None


@dataclass(frozen=True, slots=True)
class InvalidPod:
    """The pod itself is wrong; no change of the cluster will help."""

    why: str


#: What is to be done with a pod.
Disposition = PodShape | Gang | Hold | InvalidPod


@dataclass(slots=True)
class QueuedPod:
    """A pod that waits."""

    pod: PodView
    order: QueueOrder
    #: Epoch seconds at which it was first seen to wait.
    since: float
    standing: Disposition
    #: In none of the lines before that time.
    not_before: float = 0.0


@dataclass(slots=True, eq=False)
class PendingGroup:
    """Pods that fit or fail together: of one shape, or one gang."""

    key: PodShape | Gang
    waiting: dict[str, QueuedPod] = field(default_factory=dict)
    #: Why it fits nowhere; "" while it was not tried.
    blocked: str = ""
    _heap: list[tuple[QueueOrder, str]] = field(default_factory=list)

    def first(self) -> QueuedPod:
        """The one whose turn it is; the line is not empty."""
        heap = self._heap
        while True:
            entry = self.waiting.get(heap[0][1])
            if entry is not None:
                return entry
            heappop(heap)

    def join(self, entry: QueuedPod) -> None:
        """A pod waits in this line."""
        self.waiting[entry.pod.uid] = entry
        heappush(self._heap, (entry.order, entry.pod.uid))
        if len(self._heap) > 2 * len(self.waiting) + 16:
            self._heap = [(each.order, uid) for uid, each in self.waiting.items()]
            heapify(self._heap)


class SchedulingQueue:
    """All lines, and the pods that are in none: held, faulty, or waiting after an error."""

    def __init__(self) -> None:
        self.entries: dict[str, QueuedPod] = {}
        self.ready: dict[PendingGroup, None] = {}
        self.blocked: dict[PendingGroup, None] = {}
        self._lines: dict[PodShape | Gang, PendingGroup] = {}
        self._groups: dict[object, dict[PendingGroup, None]] = {}
        self._asleep: list[tuple[float, str]] = []
        self._counter = 0

    def put(self, pod: PodView, standing: Disposition, now: float, since: float | None = None) -> None:
        """A pod waits, is another than it was, or is to be treated in another way than before."""
        known = self.entries.get(pod.uid)
        if known is not None and known.standing == standing:
            known.pod = pod
            return
        if known is not None:
            self.remove(pod.uid)
            entry = QueuedPod(pod, known.order, known.since, standing, known.not_before)
        else:
            self._counter += 1
            order = (-pod.priority, pod.created_at, self._counter)
            entry = QueuedPod(pod, order, now if since is None else since, standing)
        self.entries[pod.uid] = entry
        if entry.not_before <= now:
            self._join(entry)

    def remove(self, uid: str) -> QueuedPod | None:
        """A pod waits no more."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._leave(entry)
        return entry

    def back(self, entry: QueuedPod) -> None:
        """A pod that was removed waits again, in its old place."""
        self.entries[entry.pod.uid] = entry
        self._join(entry)

    def delay(self, uid: str, until: float) -> None:
        """Not before that time."""
        entry = self.entries[uid]
        self._leave(entry)
        entry.not_before = until
        heappush(self._asleep, (until, uid))

    def wake(self, now: float) -> None:
        """Pods whose time has come are in their lines again."""
        while self._asleep and self._asleep[0][0] <= now:
            until, uid = heappop(self._asleep)
            entry = self.entries.get(uid)
            if entry is not None and entry.not_before == until:
                entry.not_before = 0.0
                self._join(entry)

    def next_wake(self) -> float | None:
        """When the next of them wakes."""
        return self._asleep[0][0] if self._asleep else None

    def block(self, line: PendingGroup, why: str) -> None:
        """It fits nowhere."""
        line.blocked = why
        if line in self.ready:
            del self.ready[line]
            self.blocked[line] = None

    def unblock(self, line: PendingGroup) -> None:
        """It is worth a try again; what was said of it stays true until then."""
        if line in self.blocked:
            del self.blocked[line]
            self.ready[line] = None

    def unblock_group(self, group: object) -> None:
        """Something about a gang, or the pods of an owner, is new."""
        for line in self._groups.get(group, ()):
            self.unblock(line)

    def line(self, shape: PodShape) -> PendingGroup | None:
        """The line of a shape, if somebody waits in it."""
        return self._lines.get(shape)

    def reason(self, uid: str) -> str:
        """What there is to say of a pod that waits; "" if nothing."""
        entry = self.entries.get(uid)
        if entry is None:
            return ""
        standing = entry.standing
        if isinstance(standing, InvalidPod):
            return standing.why
        if isinstance(standing, Hold):
            return standing.why if standing.told else ""
        line = self._lines.get(standing)
        return line.blocked if line is not None else ""

    def reasons(self) -> Iterator[tuple[QueuedPod, str]]:
        """Every pod of which there is something to say, with its words."""
        return ((entry, why) for uid, entry in self.entries.items() if (why := self.reason(uid)))

    def _join(self, entry: QueuedPod) -> None:
        standing = entry.standing
        if isinstance(standing, (Hold, InvalidPod)):
            return
        line = self._lines.get(standing)
        if line is None:
            line = self._lines[standing] = PendingGroup(standing)
            self.ready[line] = None
            self._groups.setdefault(_group(line), {})[line] = None
        line.join(entry)
        if isinstance(standing, Gang):
            self.unblock(line)

    def _leave(self, entry: QueuedPod) -> None:
        standing = entry.standing
        line = None if isinstance(standing, (Hold, InvalidPod)) else self._lines.get(standing)
        if line is None or line.waiting.pop(entry.pod.uid, None) is None or line.waiting:
            return
        del self._lines[line.key]
        self.ready.pop(line, None)
        self.blocked.pop(line, None)
        group = self._groups[_group(line)]
        del group[line]
        if not group:
            del self._groups[_group(line)]


def _group(line: PendingGroup) -> object:
    if isinstance(line.key, Gang):
        return line.key
    return line.key.directive.group if line.key.directive else None


def backoff_s(failures: int) -> float:
    """Seconds to wait after so many failed bindings, from 1."""
    return float(min(FIRST_BACKOFF_S * 2 ** min(failures - 1, 10), LAST_BACKOFF_S))
