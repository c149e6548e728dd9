"""What Chakra knows: nodes, pods and Jobs as watched, waiting pods, and the bindings it has decided.

The shell passes in what the watches say (`*_changed`) and what became of each binding (`bound`, `found`,
`refused`). Both may make waiting pods worth another try, which the next scheduling cycle gives them
(`Planner`). No I/O, no clock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from chakra_plugin.scheduling.cache import Cache
from chakra_plugin.scheduling.cycle import Bind, Preemption, SchedulerOptions
from chakra_plugin.scheduling.demand import Demand, demand_of
from chakra_plugin.scheduling.directives import Directive, Hold, directive_of, managed
from chakra_plugin.scheduling.filters import barred
from chakra_plugin.scheduling.gangs import Gang, RankGroups, gang_of
from chakra_plugin.scheduling.queue import Disposition, InvalidPod, PodShape, SchedulingQueue, backoff_s
from starburst.kube import names
from starburst.kube.objects import JobView, NodeView, PodView, number
from starburst.kube.volumes.cache import VolumeCache
from starburst.kube.volumes.demand import NO_VOLUMES, NONE_FREE, VolumeChoice, VolumeDemand


class SchedulerState:
    """The state of one scheduler; only `Planner` changes it besides the methods here."""

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.cache = Cache()
        self.queue = SchedulingQueue()
        self.groups = RankGroups()
        self.volumes = VolumeCache()
        #: Volumes chosen for the claims of assumed pods, by uid of the pod.
        self.choices: dict[str, VolumeChoice] = {}
        #: Decided bindings of pods that are to have the address of the first pod of their gang.
        self.without_master: list[Bind] = []
        #: Victims of preemption that were asked to leave, and those that could not be deleted, by uid.
        self.evicted: set[str] = set()
        self.spared: set[str] = set()
        #: Whether a node was added, changed or removed since the last cycle.
        self.nodes_changed = False
        self._jobs: dict[str, JobView] = {}
        #: Pods that wait or are assumed, by the uid of their owner.
        self._owned: defaultdict[str, set[str]] = defaultdict(set)
        #: Waiting pods with claims, by uid.
        self._claiming: dict[str, None] = {}
        #: Bindings that failed in a row, by uid of the pod.
        self._failures: dict[str, int] = {}

    def node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        """An event of the watch of nodes."""
        if old == new:
            return
        self.nodes_changed = True
        self.volumes.node_changed(old, new)
        if new is None:
            assert old is not None
            for uid in self.cache.node_gone(old.name):
                self.try_again(uid)
        else:
            self.cache.node_is(new)

    def job_changed(self, old: JobView | None, new: JobView | None, now: float) -> None:
        """An event of the watch of Jobs; the disposition of waiting pods may change with it."""
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
        """An event of the watch of pods."""
        self._pod_changed(old, new, now)
        pod = new or old
        if pod is not None and pod.claims:
            if new is None or new.node:
                self._drop_choice(pod.uid)
            assignment = self.cache.assignments.get(pod.uid)
            self.volumes.use(pod, "" if assignment is None else assignment.node)

    def _pod_changed(self, old: PodView | None, new: PodView | None, now: float) -> None:
        if new is None:
            assert old is not None
            self._forget(old)
        elif old == new:
            return
        elif new.over:
            self._forget(new)
            if new.phase == "Succeeded" and new.node:
                self.regroup(new, _rank(new))
        elif new.node:
            self._forget_waiting(new)
            self.cache.bound(new)
            self.regroup(new, _rank(new))
        elif new.uid in self.cache.assignments:
            self.cache.refresh(new)
        elif self.is_ours(new):
            self._wait(new, now)
        else:
            self._forget_waiting(new)

    def look_at_claims(self, now: float) -> None:
        """Try pods again whose claims may demand something else by now."""
        changed = self.volumes.take_changed()
        for uid in list(self._claiming) if changed else ():
            entry = self.queue.entries.get(uid)
            if entry is not None and (
                None in changed or any((entry.pod.namespace, use.name) in changed for use in entry.pod.claims)
            ):
                self._wait(entry.pod, now)
                self.try_again(uid)

    def demand(self, pod: PodView) -> Demand:
        """The demands of a pod, those of its claims included."""
        return demand_of(pod, self._volume_demand(pod))

    def _volume_demand(self, pod: PodView) -> VolumeDemand:
        return self.volumes.demand(pod.namespace, pod.claims, own=(pod.uid,)) if pod.claims else NO_VOLUMES

    def assume(self, pod: PodView, node: str) -> str:
        """Assign a pod to a node, with volumes for its claims. Returns why there are none, or ""."""
        if pod.claims:
            demand = self._volume_demand(pod)  # others may have chosen since the pod was queued
            why = demand.waits or demand.conflict(node, self.volumes.labels(node))
            choice = None if why else self.volumes.choose(demand, node)
            if choice is None:
                return why or f"{NONE_FREE} on {node}"
            if choice.claims:
                self.choices[pod.uid] = choice
                self.volumes.assume(choice)
            self.volumes.use(pod, node)
        self.cache.assume(pod, node)
        return ""

    def release(self, uid: str, *, undo: bool = False) -> None:
        """Take back an assumed assignment, and the volumes that were chosen for it."""
        pod = self.cache.release(uid, undo=undo)
        if pod is not None and pod.claims:
            self._drop_choice(uid)
            self.volumes.use(pod, "")

    def _drop_choice(self, uid: str) -> None:
        choice = self.choices.pop(uid, None)
        if choice is not None:
            self.volumes.forget(choice)

    def bound(self, bind: Bind) -> None:
        """The server accepted a binding; the assignment stays assumed until the watch confirms it."""
        self._failures.pop(bind.pod.uid, None)

    def found(self, bind: Bind, node: str) -> None:
        """The pod is bound to this node, perhaps by another scheduler."""
        assignment = self.cache.assignments.get(bind.pod.uid)
        if assignment is not None and assignment.assumed and assignment.node != node:
            self.cache.release(bind.pod.uid)
            self.cache.assume(assignment.pod, node)
        self.bound(bind)

    def refused(self, bind: Bind, now: float, *, lost: bool = False) -> float | None:
        """The pod was not bound; `lost`: its node is not fit for it any more.

        Returns:
            When to send the same binding again (epoch seconds); None if the assignment was released and the
            pod waits again. Members of a gang keep theirs for a while, since the others are placed.
        """
        uid = bind.pod.uid
        assignment = self.cache.assignments.get(uid)
        if assignment is None or not assignment.assumed:
            return None
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        retry_at = now + backoff_s(failures)
        if bind.gang is not None and not lost and retry_at < bind.decided_at + self.options.gang_timeout_s:
            return retry_at
        self.release(uid)
        self._leave_groups(uid)
        if self.is_ours(assignment.pod):
            self._wait(assignment.pod, now, bind.since)
            if not lost:
                self.queue.delay(uid, retry_at)
        return None

    def valid(self, bind: Bind) -> bool:
        """Whether a decided binding may still be sent: the pod waits for it, and the node is fit for it."""
        node_info = self.cache.node_infos.get(bind.node)
        assignment = self.cache.assignments.get(bind.pod.uid)
        if assignment is None or not self.stands(bind) or self._volume_demand(bind.pod).waits:
            return False
        if node_info is None or node_info.view is None or barred(self.demand(bind.pod), node_info.view):
            return False
        return all(node_info.free.get(name, 0) >= 0 for name, amount in bind.pod.requests.items() if amount)

    def stands(self, bind: Bind) -> bool:
        """Whether the pod still waits for this binding, and Starburst has not changed its instruction."""
        assignment = self.cache.assignments.get(bind.pod.uid)
        if assignment is None or not assignment.assumed or assignment.node != bind.node:
            return False
        found = self._instruction(assignment.pod)
        if isinstance(found, (Hold, Gang, InvalidPod)):
            return found == bind.disposition
        shape = bind.disposition
        plain = demand_of(assignment.pod)
        return isinstance(shape, PodShape) and (plain, found) == (
            replace(shape.demand, volumes=NO_VOLUMES),
            shape.directive,
        )

    def victim_spared(self, preemption: Preemption, victim: PodView) -> None:
        """A victim could not be deleted; it is never chosen again, and those after it stay."""
        after = preemption.victims[preemption.victims.index(victim) :]
        self.evicted.difference_update(each.uid for each in after)
        self.spared.add(victim.uid)
        self.cache.withdraw_nomination(preemption.pod.uid)
        self.try_again(preemption.pod.uid)

    def try_again(self, uid: str) -> None:
        entry = self.queue.entries.get(uid)
        if entry is not None and isinstance(entry.disposition, Gang):
            self.queue.unblock_group(entry.disposition)
        elif entry is not None and isinstance(entry.disposition, PodShape):
            pending_group = self.queue.pending_group(entry.disposition)
            if pending_group is not None:
                self.queue.unblock(pending_group)

    def is_ours(self, pod: PodView) -> bool:
        waits = not (pod.deleting or pod.over or pod.node)
        return waits and pod.scheduler == self.options.scheduler and self._is_here(pod)

    def _is_here(self, pod: PodView) -> bool:
        return not self.options.namespaces or pod.namespace in self.options.namespaces

    def _wait(self, pod: PodView, now: float, since: float | None = None) -> None:
        if pod.owner is not None:
            self._owned[pod.owner.uid].add(pod.uid)
        if pod.claims:
            self._claiming[pod.uid] = None
        self.queue.put(pod, self._disposition(pod), now, since)

    def _instruction(self, pod: PodView) -> Directive | Hold | Gang | InvalidPod | None:
        found = directive_of(pod, self._jobs.get(pod.owner.uid) if pod.owner else None)
        gang = gang_of(pod) if found is None else None
        return InvalidPod(gang) if isinstance(gang, str) else gang or found

    def _disposition(self, pod: PodView) -> Disposition:
        found = self._instruction(pod)
        if isinstance(found, (Hold, InvalidPod)):
            return found
        volumes = self._volume_demand(pod)
        if volumes.waits:
            return InvalidPod(volumes.waits)
        return found if isinstance(found, Gang) else PodShape(demand_of(pod, volumes), found)

    def _forget(self, pod: PodView) -> None:
        """The pod is deleted, or has ended."""
        self._forget_waiting(pod)
        self.cache.gone(pod.uid)
        self.evicted.discard(pod.uid)
        self.spared.discard(pod.uid)
        self._leave_groups(pod.uid)

    def _forget_waiting(self, pod: PodView) -> None:
        entry = self.queue.remove(pod.uid)
        if entry is not None and isinstance(entry.disposition, Gang):
            self.queue.unblock_group(entry.disposition)
        if not pod.node:
            self.cache.withdraw_nomination(pod.uid)
        self._failures.pop(pod.uid, None)
        self._claiming.pop(pod.uid, None)
        if pod.owner is not None:
            self._owned[pod.owner.uid].discard(pod.uid)
            if not self._owned[pod.owner.uid]:
                del self._owned[pod.owner.uid]

    def regroup(self, pod: PodView, rank: int | None) -> None:
        if rank is None and not isinstance(gang_of(pod), Gang):
            return
        self.groups.drop(pod.uid)
        for group in self.groups.put(pod, rank):
            self.queue.unblock_group(group)

    def _leave_groups(self, uid: str) -> None:
        for group in self.groups.drop(uid):
            self.queue.unblock_group(group)

    def is_leaving(self, pod: PodView) -> bool:
        return pod.deleting or pod.uid in self.evicted

    def is_movable(self, pod: PodView) -> bool:
        """Whether a pod may be a victim: not one of another namespace, where Chakra may delete none.

        Pods that Starburst placed are moved by Starburst alone.
        """
        if pod.uid in self.spared or not self._is_here(pod):
            return False
        return not managed(pod, self._jobs.get(pod.owner.uid) if pod.owner else None)


def _rank(pod: PodView) -> int | None:
    return number(pod.annotations.get(names.RANK, ""))
