"""Scheduling cycles: in each, waiting pods are placed in their order, out of order over what does not fit.

A cycle counts each pod as placed as soon as it is decided (`Cache.assume`). What fits nowhere is blocked
until something changes that may help it. No I/O, no clock: the shell asks for cycles and sends the bindings.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from heapq import heapify, heappop, heappush

from chakra_plugin.scheduling.cache import NodeInfo
from chakra_plugin.scheduling.cycle import Bind, Cycle, Preemption, SchedulerOptions
from chakra_plugin.scheduling.demand import Demand, demand_of
from chakra_plugin.scheduling.directives import Directive
from chakra_plugin.scheduling.filters import admits, rejections, unavailable
from chakra_plugin.scheduling.gangs import Gang, missing, owner_key
from chakra_plugin.scheduling.node_ranking import NodeRanking, triple
from chakra_plugin.scheduling.preemption import eviction
from chakra_plugin.scheduling.queue import PendingGroup, PodShape, QueuedPod, QueueOrder
from chakra_plugin.scheduling.state import SchedulerState
from starburst.kube import names
from starburst.kube.objects import PodView
from starburst.policy.placement import PLACEMENTS

#: Blocked groups × nodes up to which all groups are tried again when a node changes: their messages count
#: nodes, and would be old otherwise.
RETELL = 100_000
#: Changes of nodes after which rankings are made anew, so that what they remember stays small.
LOG_LENGTH = 20_000
RANKINGS = 500


class Planner:
    """Decides bindings and preemptions from a `SchedulerState`."""

    def __init__(self, options: SchedulerOptions) -> None:
        self.state = SchedulerState(options)
        self._score = PLACEMENTS[options.placement]
        self._rankings: dict[Demand, NodeRanking] = {}

    def plan(self, now: float, limit: int = 10**9) -> Cycle:
        """Run one cycle, until there are `limit` bindings; groups that were not tried stay ready."""
        self.state.queue.wake(now)
        self.state.look_at_claims(now)
        self._unblock()
        cycle = Cycle(self._with_master())
        aside: list[QueuedPod] = []
        heads: list[tuple[QueueOrder, PendingGroup]] = [
            (self._order(pending_group), pending_group) for pending_group in self.state.queue.ready
        ]
        heapify(heads)
        while heads and len(cycle.binds) < limit:
            _, pending_group = heappop(heads)
            why = self._try(pending_group, cycle, aside, now)
            if why:
                cycle.failed += 1
                self.state.queue.block(pending_group, why)
            elif pending_group.waiting:
                heappush(heads, (self._order(pending_group), pending_group))
        for entry in aside:
            self._put_back(entry)
        self.state.look_at_claims(now)  # what was chosen now is not free for others
        if len(self.state.cache.log) > LOG_LENGTH or len(self._rankings) > RANKINGS:
            self.state.cache.log.clear()
            self._rankings.clear()
        return cycle

    def _order(self, pending_group: PendingGroup) -> QueueOrder:
        """The sort key of a group; a gang that is placed in part goes before others of its priority."""
        order = pending_group.first().order
        if (
            isinstance(pending_group.key, Gang)
            and self._needed(pending_group, pending_group.key) < pending_group.key.size
        ):
            return order[0], -math.inf, order[2]
        return order

    def _needed(self, pending_group: PendingGroup, gang: Gang) -> int:
        owners = {entry.pod.owner.uid if entry.pod.owner else "" for entry in pending_group.waiting.values()}
        return missing(gang, self.state.groups.there(gang, owners))

    def _try(self, pending_group: PendingGroup, cycle: Cycle, aside: list[QueuedPod], now: float) -> str:
        """Try one pod, or one gang, of a group. Returns why it fits nowhere, or ""."""
        if isinstance(pending_group.key, Gang):
            return self._try_gang(pending_group, pending_group.key, cycle, now)
        entry = pending_group.first()
        if pending_group.key.directive is not None:
            return self._try_directed(
                entry, pending_group.key.demand, pending_group.key.directive, cycle, now
            )
        node_info = self._node_for(entry.pod, pending_group.key.demand)
        if node_info is not None:
            return self._take(entry, node_info.name, None, cycle, now)
        return self._try_preemption(entry, pending_group.key.demand, cycle, aside)

    def _node_for(self, pod: PodView, demand: Demand) -> NodeInfo | None:
        nominated = self.state.cache.node_infos.get(self.state.cache.nominated_node(pod.uid))
        if nominated is not None and admits(demand, nominated, pod.uid):
            return nominated
        ranking = self._rankings.get(demand)
        if ranking is None:
            ranking = self._rankings[demand] = NodeRanking(demand, self.state.cache, self._score)
        return ranking.best()

    def _try_directed(
        self, entry: QueuedPod, demand: Demand, directive: Directive, cycle: Cycle, now: float
    ) -> str:
        rank = directive.index
        if rank is None:
            rank = self.state.groups.free_ranks(directive.group, 1)[0]
        node = directive.nodes[rank] if rank < len(directive.nodes) else self._vacated(directive)
        if not node:
            return f"{names.NODES} names {len(directive.nodes)} node(s), none for rank {rank}."
        node_info = self.state.cache.node_infos.get(node)
        if node_info is not None and admits(demand, node_info):
            return self._take(entry, node, rank, cycle, now)
        other = f"node(s) weren't {node}, which {names.NODES} names for rank {rank}"
        return unavailable(
            rejections(demand, each) if each.name == node else [other] for each in self.state.cache.nodes()
        )

    def _vacated(self, directive: Directive) -> str:
        """A node that a pod of the same Job has left, which has more completions than parallelism; or ""."""
        placed = self.state.cache.assignments.values()
        alive = Counter(each.node for each in placed if owner_key(each.pod) == directive.group)
        return next(iter((Counter(directive.nodes) - alive).elements()), "")

    def _try_gang(self, pending_group: PendingGroup, gang: Gang, cycle: Cycle, now: float) -> str:
        """Assign all pods that the gang needs, or none."""
        waiting = sorted(pending_group.waiting.values(), key=lambda entry: entry.order)
        needed = self._needed(pending_group, gang)
        if len(waiting) < needed:
            return f"gang {gang.name} of {gang.size} waits for {needed - len(waiting)} more of its pods."
        members = waiting[:needed]
        found: dict[str, str] = {}
        # The largest first: they have the fewest nodes to choose from.
        for entry in sorted(members, key=lambda entry: triple(entry.pod.requests), reverse=True):
            demand = self.state.demand(entry.pod)
            node_info = self._node_for(entry.pod, demand)
            why = "" if node_info is None else self.state.assume(entry.pod, node_info.name)
            if node_info is None or why:
                why = why or unavailable(rejections(demand, each) for each in self.state.cache.nodes())
                for uid in found:
                    self.state.release(uid, undo=True)
                return f"gang {gang.name} needs {needed} places at once, found {len(found)}: {why}"
            found[entry.pod.uid] = node_info.name
        ranks = iter(self.state.groups.free_ranks(gang, needed))
        for entry in members:
            rank = next(ranks) if entry.pod.index is None else entry.pod.index
            self._send(self._taken(entry, found[entry.pod.uid], rank, now), cycle)
        return ""

    def _try_preemption(self, entry: QueuedPod, demand: Demand, cycle: Cycle, aside: list[QueuedPod]) -> str:
        """Choose victims for a pod, which then waits for their end. Returns why there are none, or ""."""
        pod, cache = entry.pod, self.state.cache
        if self.state.options.preempt and pod.preempts:
            found = eviction(demand, pod.uid, cache.nodes(), self.state.is_leaving, self.state.is_movable)
            if found is not None:
                if found.victims or cache.nominated_node(pod.uid) != found.node:
                    cache.nominate(pod, found.node)
                    self.state.evicted.update(victim.uid for victim in found.victims)
                    cycle.preemptions.append(Preemption(pod, found.node, found.victims))
                self.state.queue.remove(pod.uid)
                aside.append(entry)
                return ""
            cache.withdraw_nomination(pod.uid)
        return unavailable(rejections(demand, node_info) for node_info in cache.nodes())

    def _put_back(self, entry: QueuedPod) -> None:
        """Block the group of a nominated pod until its victims are gone."""
        self.state.queue.back(entry)
        shape = entry.disposition
        assert isinstance(shape, PodShape)
        why = unavailable(rejections(shape.demand, node_info) for node_info in self.state.cache.nodes())
        pending_group = self.state.queue.pending_group(shape)
        if pending_group is not None:
            self.state.queue.block(pending_group, why)

    def _take(self, entry: QueuedPod, node: str, rank: int | None, cycle: Cycle, now: float) -> str:
        """Assign a pod to a node that admits it. Returns why its claims forbid that, or ""."""
        why = self.state.assume(entry.pod, node)
        if not why:
            self._send(self._taken(entry, node, rank, now), cycle)
        return why

    def _send(self, bind: Bind, cycle: Cycle) -> None:
        """Have a binding sent; that of a pod that asks for its gang's first address once that is known."""
        if bind.rank is None or bind.pod.annotations.get(names.MASTER_ADDR) != "":
            cycle.binds.append(bind)
        elif bind.rank == 0:
            cycle.binds.append(replace(bind, master=bind.pod.hostname or bind.node))
        elif master := self.state.groups.master_address(bind.group):
            cycle.binds.append(replace(bind, master=master))
        else:
            self.state.without_master.append(bind)

    def _with_master(self) -> list[Bind]:
        """Bindings that waited for the first address of their gang and have it now, or are void."""
        waiting, self.state.without_master = self.state.without_master, []
        masters = {
            group: self.state.groups.master_address(group) for group in {each.group for each in waiting}
        }
        found: list[Bind] = []
        for bind in waiting:
            master = masters[bind.group]
            if master or not self.state.stands(bind):
                found.append(replace(bind, master=master))
            else:
                self.state.without_master.append(bind)
        return found

    def _taken(self, entry: QueuedPod, node: str, rank: int | None, now: float) -> Bind:
        self.state.queue.remove(entry.pod.uid)
        self.state.regroup(entry.pod, rank)
        choice = self.state.choices.get(entry.pod.uid)
        return Bind(entry.pod, node, rank, entry.disposition, entry.since, now, choice)

    def _unblock(self) -> None:
        """Make those blocked groups ready that a change of the cluster may help."""
        cache, queue = self.state.cache, self.state.queue
        grown = [cache.node_infos[name] for name in cache.grown if name in cache.node_infos]
        cache.grown.clear()
        retell = self.state.nodes_changed and len(queue.blocked) * len(cache.node_infos) <= RETELL
        self.state.nodes_changed = False
        if grown or retell:
            for group in [group for group in queue.blocked if retell or _helped(group, grown)]:
                queue.unblock(group)


def _helped(pending_group: PendingGroup, grown: list[NodeInfo]) -> bool:
    """Whether one of these nodes may take a pod of a group; nominations are passed over, to be safe."""
    if isinstance(pending_group.key, PodShape):
        directive, demands = pending_group.key.directive, {pending_group.key.demand}
    else:
        directive, demands = None, {demand_of(entry.pod) for entry in pending_group.waiting.values()}
    if directive is not None:
        return any(node_info.name in directive.nodes for node_info in grown)
    return any(admits(demand, node_info, nominated=False) for node_info in grown for demand in demands)
