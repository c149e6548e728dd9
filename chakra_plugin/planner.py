"""Chakra's state machine: news of the cluster in, rounds of bindings out. No I/O, no clock.

The shell tells what the watches say and what became of each binding, and asks for rounds. A round places pods
in their order, out of order over what does not fit, and counts each as placed at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from heapq import heapify, heappop, heappush

from chakra_plugin.cache import Cache, NodeInfo
from chakra_plugin.cycle import Bind, Cycle, Preemption, SchedulerOptions
from chakra_plugin.demand import Demand, demand_of
from chakra_plugin.directives import Directive, Hold, directive_of, managed
from chakra_plugin.filters import admits, barred, rejections, unavailable
from chakra_plugin.gangs import Gang, RankGroups, gang_of, missing
from chakra_plugin.node_ranking import NodeRanking, triple
from chakra_plugin.preemption import eviction
from chakra_plugin.scheduling_queue import (
    Disposition,
    InvalidPod,
    PendingGroup,
    PodShape,
    QueuedPod,
    QueueOrder,
    SchedulingQueue,
    backoff_s,
)
from starburst.kube import names
from starburst.kube.objects import JobView, NodeView, PodView
from starburst.policy.placement import PLACEMENTS

#: Blocked lines × nodes up to which all lines are tried again when a node changes: what they say
#: of the nodes would be old otherwise.
RETELL = 100_000
#: Changes of rooms after which rankings are made anew, so that what they remember stays small.
LOG_LENGTH = 20_000
RANKINGS = 500


class Planner:
    """One scheduler's mind."""

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.cache = Cache()
        self.queue = SchedulingQueue()
        self.groups = RankGroups()
        self._score = PLACEMENTS[options.placement]
        self._jobs: dict[str, JobView] = {}
        #: Pods that wait or are assumed, by the uid of their owner.
        self._owned: defaultdict[str, set[str]] = defaultdict(set)
        self._rankings: dict[Demand, NodeRanking] = {}
        self._evicted: set[str] = set()
        self._spared: set[str] = set()
        self._failures: dict[str, int] = {}
        self._nodes_changed = False

    # News.

    def node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        """As a watch tells it."""
        if old == new:
            return
        self._nodes_changed = True
        if new is None:
            assert old is not None
            for uid in self.cache.node_gone(old.name):
                self._try_again(uid)
        else:
            self.cache.node_is(new)

    def job_changed(self, old: JobView | None, new: JobView | None, now: float) -> None:
        """As a watch tells it; pods that wait may have to be treated in another way."""
        job = new or old
        assert job is not None
        if new is None:
            self._jobs.pop(job.uid, None)
        else:
            self._jobs[job.uid] = new
        for uid in list(self._owned.get(job.uid, ())):
            entry = self.queue.entries.get(uid)
            if entry is not None:
                self._wait(entry.pod, now)

    def pod_changed(self, old: PodView | None, new: PodView | None, now: float) -> None:
        """As a watch tells it."""
        if new is None:
            assert old is not None
            self._forget(old)
        elif old == new:
            return
        elif new.over:
            self._forget(new)
            if new.phase == "Succeeded" and new.node:
                self._regroup(new, _rank(new))
        elif new.node:
            self._forget_waiting(new)
            self.cache.bound(new)
            self._regroup(new, _rank(new))
        elif new.uid in self.cache.places:
            self.cache.refresh(new)
        elif self._ours(new):
            self._wait(new, now)
        else:
            self._forget_waiting(new)

    # What became of bindings.

    def bound(self, bind: Bind) -> None:
        """The server took it; the place stays assumed until the watch says so, too."""
        self._failures.pop(bind.pod.uid, None)

    def found(self, bind: Bind, node: str) -> None:
        """The server has the pod on this node, whoever bound it."""
        place = self.cache.places.get(bind.pod.uid)
        if place is not None and place.assumed and place.node != node:
            self.cache.release(bind.pod.uid)
            self.cache.assume(place.pod, node)
        self.bound(bind)

    def refused(self, bind: Bind, now: float, *, lost: bool = False) -> float | None:
        """The pod was surely not bound; `lost`: because the node is none any more.

        Returns:
            When to send the same binding again; None if its place was given back, and the pod waits again.
            Members of a gang keep their places for a while: the others are there, or coming.
        """
        uid = bind.pod.uid
        place = self.cache.places.get(uid)
        if place is None or not place.assumed:
            return None
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        retry_at = now + backoff_s(failures)
        if bind.gang is not None and not lost and retry_at < bind.decided_at + self.options.gang_timeout_s:
            return retry_at
        self.cache.release(uid)
        self._leave_groups(uid)
        if self._ours(place.pod):
            self._wait(place.pod, now, bind.since)
            if not lost:
                self.queue.delay(uid, retry_at)
        return None

    def valid(self, bind: Bind) -> bool:
        """Whether a decided binding may still be sent: the pod waits for it, the node is fit."""
        room = self.cache.rooms.get(bind.node)
        place = self.cache.places.get(bind.pod.uid)
        if place is None or not place.assumed or place.node != bind.node:
            return False
        if self._standing(place.pod) != bind.standing:
            return False  # Starburst has another mind by now
        if room is None or room.view is None or barred(demand_of(bind.pod), room.view):
            return False
        return all(room.free.get(name, 0) >= 0 for name, amount in bind.pod.requests.items() if amount)

    def spared(self, preemption: Preemption, victim: PodView) -> None:
        """A victim could not be deleted: it will be nobody's victim any more."""
        self._evicted.discard(victim.uid)
        self._spared.add(victim.uid)
        self.cache.unkeep(preemption.pod.uid)
        self._try_again(preemption.pod.uid)

    # Rounds.

    def plan(self, now: float, limit: int = 10**9) -> Cycle:
        """Place what can be placed, until there are `limit` bindings; what is left over stays ready."""
        self.queue.wake(now)
        self._unblock()
        this = Cycle()
        aside: list[QueuedPod] = []
        heads: list[tuple[QueueOrder, PendingGroup]] = [
            (self._order(line), line) for line in self.queue.ready
        ]
        heapify(heads)
        while heads and len(this.binds) < limit:
            _, line = heappop(heads)
            why = self._try(line, this, aside, now)
            if why:
                this.failed += 1
                self.queue.block(line, why)
            elif line.waiting:
                heappush(heads, (self._order(line), line))
        for entry in aside:
            self._put_back(entry)
        if len(self.cache.log) > LOG_LENGTH or len(self._rankings) > RANKINGS:
            self.cache.log.clear()
            self._rankings.clear()
        return this

    def _order(self, line: PendingGroup) -> QueueOrder:
        """Whose turn it is; the rest of a gang that stands by halves goes before others of its priority."""
        order = line.first().order
        if isinstance(line.key, Gang) and self._needed(line, line.key) < line.key.size:
            return order[0], -math.inf, order[2]
        return order

    def _needed(self, line: PendingGroup, gang: Gang) -> int:
        owners = {entry.pod.owner.uid if entry.pod.owner else "" for entry in line.waiting.values()}
        return missing(gang, self.groups.there(gang, owners))

    def _try(self, line: PendingGroup, this: Cycle, aside: list[QueuedPod], now: float) -> str:
        """One pod, or one gang, of a line. Why it fits nowhere, or ""."""
        if isinstance(line.key, Gang):
            return self._try_gang(line, line.key, this, now)
        entry = line.first()
        if line.key.directive is not None:
            return self._try_directed(entry, line.key.demand, line.key.directive, this, now)
        room = self._room_for(entry.pod, line.key.demand)
        if room is not None:
            this.binds.append(self._take(entry, room.name, None, now))
            return ""
        return self._try_preemption(entry, line.key.demand, this, aside)

    def _room_for(self, pod: PodView, demand: Demand) -> NodeInfo | None:
        kept = self.cache.rooms.get(self.cache.kept_on(pod.uid))
        if kept is not None and admits(demand, kept, pod.uid):
            return kept
        ranking = self._rankings.get(demand)
        if ranking is None:
            ranking = self._rankings[demand] = NodeRanking(demand, self.cache, self._score)
        return ranking.best()

    def _try_directed(
        self, entry: QueuedPod, demand: Demand, directive: Directive, this: Cycle, now: float
    ) -> str:
        rank = directive.index
        if rank is None:
            rank = self.groups.free_ranks(directive.group, 1)[0]
        if rank >= len(directive.nodes):
            return f"{names.NODES} names {len(directive.nodes)} node(s), none for rank {rank}."
        node = directive.nodes[rank]
        room = self.cache.rooms.get(node)
        if room is not None and admits(demand, room):
            this.binds.append(self._take(entry, node, rank, now))
            return ""
        other = f"node(s) weren't {node}, which {names.NODES} names for rank {rank}"
        return unavailable(
            rejections(demand, each) if each.name == node else [other] for each in self.cache.nodes()
        )

    def _try_gang(self, line: PendingGroup, gang: Gang, this: Cycle, now: float) -> str:
        """All places that the gang needs, or none."""
        waiting = sorted(line.waiting.values(), key=lambda entry: entry.order)
        needed = self._needed(line, gang)
        if len(waiting) < needed:
            return f"gang {gang.name} of {gang.size} waits for {needed - len(waiting)} more of its pods."
        members = waiting[:needed]
        found: dict[str, str] = {}
        # The largest first: they have the fewest nodes to choose from.
        for entry in sorted(members, key=lambda entry: triple(entry.pod.requests), reverse=True):
            demand = demand_of(entry.pod)
            room = self._room_for(entry.pod, demand)
            if room is None:
                why = unavailable(rejections(demand, each) for each in self.cache.nodes())
                for uid in found:
                    self.cache.release(uid, undo=True)
                return f"gang {gang.name} needs {needed} places at once, found {len(found)}: {why}"
            self.cache.assume(entry.pod, room.name)
            found[entry.pod.uid] = room.name
        ranks = iter(self.groups.free_ranks(gang, needed))
        for entry in members:
            rank = next(ranks) if entry.pod.index is None else entry.pod.index
            this.binds.append(self._taken(entry, found[entry.pod.uid], rank, now))
        return ""

    def _try_preemption(self, entry: QueuedPod, demand: Demand, this: Cycle, aside: list[QueuedPod]) -> str:
        """Room at the cost of others. Why there is none, or ""; then the pod waits until they left."""
        pod, cache = entry.pod, self.cache
        if self.options.preempt and pod.preempts:
            found = eviction(demand, pod.uid, cache.nodes(), self._leaving, self._movable)
            if found is not None:
                if found.victims or cache.kept_on(pod.uid) != found.node:
                    cache.keep(pod, found.node)
                    self._evicted.update(victim.uid for victim in found.victims)
                    this.preemptions.append(Preemption(pod, found.node, found.victims))
                self.queue.remove(pod.uid)
                aside.append(entry)
                return ""
            cache.unkeep(pod.uid)
        return unavailable(rejections(demand, room) for room in cache.nodes())

    def _put_back(self, entry: QueuedPod) -> None:
        """A pod whose room is being made waits blocked, until pods have left."""
        self.queue.back(entry)
        shape = entry.standing
        assert isinstance(shape, PodShape)
        why = unavailable(rejections(shape.demand, room) for room in self.cache.nodes())
        line = self.queue.line(shape)
        if line is not None:
            self.queue.block(line, why)

    def _leaving(self, pod: PodView) -> bool:
        return pod.deleting or pod.uid in self._evicted

    def _movable(self, pod: PodView) -> bool:
        """What Starburst placed is its own to move."""
        if pod.uid in self._spared:
            return False
        return not managed(pod, self._jobs.get(pod.owner.uid) if pod.owner else None)

    def _take(self, entry: QueuedPod, node: str, rank: int | None, now: float) -> Bind:
        self.cache.assume(entry.pod, node)
        return self._taken(entry, node, rank, now)

    def _taken(self, entry: QueuedPod, node: str, rank: int | None, now: float) -> Bind:
        self.queue.remove(entry.pod.uid)
        self._regroup(entry.pod, rank)
        return Bind(entry.pod, node, rank, entry.standing, entry.since, now)

    def _unblock(self) -> None:
        """Lines that what grew may help."""
        grown = [self.cache.rooms[name] for name in self.cache.grown if name in self.cache.rooms]
        self.cache.grown.clear()
        retell = self._nodes_changed and len(self.queue.blocked) * len(self.cache.rooms) <= RETELL
        self._nodes_changed = False
        if grown or retell:
            for line in [line for line in self.queue.blocked if retell or _helped(line, grown)]:
                self.queue.unblock(line)

    # Pods come and go.

    def _try_again(self, uid: str) -> None:
        entry = self.queue.entries.get(uid)
        if entry is not None and isinstance(entry.standing, PodShape):
            line = self.queue.line(entry.standing)
            if line is not None:
                self.queue.unblock(line)

    def _ours(self, pod: PodView) -> bool:
        options = self.options
        here = not options.namespaces or pod.namespace in options.namespaces
        return here and pod.scheduler == options.scheduler and not (pod.deleting or pod.over or pod.node)

    def _wait(self, pod: PodView, now: float, since: float | None = None) -> None:
        if pod.owner is not None:
            self._owned[pod.owner.uid].add(pod.uid)
        self.queue.put(pod, self._standing(pod), now, since)

    def _standing(self, pod: PodView) -> Disposition:
        found = directive_of(pod, self._jobs.get(pod.owner.uid) if pod.owner else None)
        if isinstance(found, Hold):
            return found
        if found is None:
            gang = gang_of(pod)
            if gang is not None:
                return gang if isinstance(gang, Gang) else InvalidPod(gang)
        return PodShape(demand_of(pod), found)

    def _forget(self, pod: PodView) -> None:
        """It is gone, or over."""
        self._forget_waiting(pod)
        self.cache.gone(pod.uid)
        self._evicted.discard(pod.uid)
        self._spared.discard(pod.uid)
        self._leave_groups(pod.uid)

    def _forget_waiting(self, pod: PodView) -> None:
        entry = self.queue.remove(pod.uid)
        if entry is not None and isinstance(entry.standing, Gang):
            self.queue.unblock_group(entry.standing)
        if not pod.node:
            self.cache.unkeep(pod.uid)
        self._failures.pop(pod.uid, None)
        if pod.owner is not None:
            self._owned[pod.owner.uid].discard(pod.uid)
            if not self._owned[pod.owner.uid]:
                del self._owned[pod.owner.uid]

    def _regroup(self, pod: PodView, rank: int | None) -> None:
        if rank is None and not isinstance(gang_of(pod), Gang):
            return
        self.groups.drop(pod.uid)
        for group in self.groups.put(pod, rank):
            self.queue.unblock_group(group)

    def _leave_groups(self, uid: str) -> None:
        for group in self.groups.drop(uid):
            self.queue.unblock_group(group)


def _helped(line: PendingGroup, grown: list[NodeInfo]) -> bool:
    """Whether one of these rooms may take a pod of a line; kept room is taken for free, to be safe."""
    if isinstance(line.key, PodShape):
        directive, demands = line.key.directive, {line.key.demand}
    else:
        directive, demands = None, {demand_of(entry.pod) for entry in line.waiting.values()}
    if directive is not None:
        return any(room.name in directive.nodes for room in grown)
    return any(admits(demand, room, kept=False) for room in grown for demand in demands)


def _rank(pod: PodView) -> int | None:
    text = pod.annotations.get(names.RANK, "")
    return int(text) if text.isdecimal() else None
