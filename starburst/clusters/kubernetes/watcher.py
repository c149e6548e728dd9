"""Watches the cluster, and reports nodes, runs, and jobs that users apply or delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from starburst.aio import TaskSet, first_of
from starburst.clusters.kubernetes.adoption.adoption import Adoption
from starburst.clusters.kubernetes.adoption.holds import Holds
from starburst.clusters.kubernetes.adoption.operator_objects import operator_reflector
from starburst.clusters.kubernetes.node_capacity import NodeCapacity
from starburst.clusters.kubernetes.runs.absences import Absences
from starburst.clusters.kubernetes.runs.evictions import Evictions, why_out
from starburst.clusters.kubernetes.runs.first_lists import FirstLists
from starburst.clusters.kubernetes.runs.gang_hosts import GangHosts
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.stripped_labels import StrippedLabels
from starburst.clusters.kubernetes.runs.sweeper import Sweeper, is_run_of
from starburst.clusters.kubernetes.runs.vanished import Vanished, may_be_made_anew
from starburst.clusters.kubernetes.status_writer import StatusWriter
from starburst.clusters.kubernetes.volume_rules import VolumeRules
from starburst.core.model.events import CancelRequested, Event, NodesChanged, RunEnd, RunEnded, SiteSynced
from starburst.core.state import Changes
from starburst.domain.job import Adopted, Site
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError
from starburst.kube.objects import JobView, NodeView, PodView, read_job, read_node, read_pod
from starburst.kube.operator_kinds import OperatorKind
from starburst.kube.reflector import Handler, Reflector, T
from starburst.kube.resources import CLAIMS, JOBS, NODES, PODS, STORAGE_CLASSES, VOLUMES, Object, Resource
from starburst.kube.volumes.lists import cluster_lists
from starburst.kube.volumes.views import read_claim
from starburst.runs.ports import AdoptionPort, Report

log = structlog.get_logger()

#: Changes are gathered for this long before nodes and runs are reported. Wall seconds.
GATHER_S = 0.05
#: Why an adopted job stays whose Job was ended by its controller although its command did not end.
ENDED_JOB = "its Job is over in the cluster, and is made anew when it has a place there"


class ClusterWatcher:
    """Watches of pods, nodes and Jobs, and the reports that follow from them.

    The first report waits until every watch that exists by then has listed its objects; see `FirstLists`.
    """

    def __init__(
        self,
        api: Api,
        *,
        desk: AdoptionPort,
        registry: RunRegistry,
        status_writer: StatusWriter,
        adoption: Adoption,
        sweeper: Sweeper,
        vanished: Vanished,
        report: Report,
    ) -> None:
        self._api = api
        self._desk = desk
        self._registry = registry
        self._status_writer = status_writer
        self._adoption = adoption
        self._rights = adoption.rights
        self._sweeper = sweeper
        self._report = report
        self._capacity = NodeCapacity(self._counted)
        self.volumes = VolumeRules(desk, registry)
        self._holds = Holds(desk, registry, report, status_writer.keep)
        self._evictions = Evictions(api, self._judged, report)
        self._hosts = GangHosts(api, registry)
        self._reported: tuple[Node, ...] = ()
        self._dirty = asyncio.Event()
        registry.wake = self._dirty.set
        self._lists = FirstLists(desk, registry, vanished.where)
        self._follow_lists({(VOLUMES.plural, ""), (STORAGE_CLASSES.plural, "")})
        #: The watches of Jobs, by namespace.
        self._job_watches = TaskSet()
        self._labels = StrippedLabels(api, desk, registry, vanished, self._job_watches)
        self._absences = Absences(
            desk,
            vanished=vanished,
            evictions=self._evictions,
            out=lambda name: why_out(name, self.node(name)),
            report=report,
            cancel=self.cancel,
            tasks=self._job_watches,
        )
        #: Kinds that were listed, with the namespace, and not compared with the adopted jobs since.
        self._listed = {("Job", ""), ("Pod", "")}
        #: Jobs to be cancelled that the core has not taken up yet.
        self._unwanted: set[str] = set()

    async def run(self) -> None:
        """Go on until cancelled or a watch fails."""
        parts = {
            "watch pods": self._watch(PODS, self._read_pod, self._pod_changed),
            "watch nodes": self._watch(NODES, read_node, self._node_changed),
            **{
                f"watch {each.resource.plural}": self._watch(each.resource, each.read, each.changed)
                for each in cluster_lists(self.volumes.cache)
            },
            "watch jobs": self._job_watches.until_failure(),
            "report": self._reporting(),
            "evictions": self._evictions.run(),
            "hosts": self._hosts.run(),
        }
        await first_of(parts)

    def watch_jobs(self, namespace: str) -> None:
        """Watch the Jobs of a namespace, of all namespaces for "", unless they are watched."""
        for watched in ("", namespace):
            if watched in self._job_watches:
                return
        self._lists.expect({(JOBS.plural, namespace)})
        self._follow_lists({(CLAIMS.plural, namespace)})
        self._job_watches.ensure(
            (CLAIMS.plural, namespace),
            lambda: self._watch(CLAIMS, read_claim, self.volumes.cache.claim_changed, namespace=namespace),
        )
        changed = partial(self._labels.told, self._job_changed)
        self._job_watches.ensure(
            namespace,
            lambda: self._watch(JOBS, self._read_job, changed, selector=names.QUEUE, namespace=namespace),
        )

    def watch_kind(self, kind: OperatorKind, namespace: str) -> None:
        """Watch the objects of an operator in a namespace, in all namespaces for "", unless they are."""
        key = kind.resource.path(), namespace
        if key in self._job_watches:
            return

        self._lists.expect({key})

        def synced() -> None:
            self._lists.listed(key)
            self._listed.add((kind.name, namespace))
            self._dirty.set()

        def refused(error: ApiError) -> None:
            self._lists.refused(key, error)
            self._dirty.set()

        told = partial(self._labels.told, self._object_changed)
        handler: Handler[JobView] = Handler(told, synced, refused)
        seen = self._adoption.objects.seen
        watch = operator_reflector(self._api, kind, namespace, seen=seen, handler=handler)
        self._job_watches.ensure(key, watch.run)

    def _follow_lists(self, watches: set[tuple[str, str]]) -> None:
        """No claim is judged before these lists have come; nor is anything reported at first."""
        self.volumes.cache.unsynced |= watches
        self._lists.expect(watches)

    def node(self, name: str) -> NodeView | None:
        """One node as the watch last told of it; None if there is none of that name."""
        return self._capacity.view(name)

    async def close(self) -> None:
        """End the watches of Jobs."""
        await self._job_watches.cancel()

    def told(self, changes: Changes) -> None:
        """See `Cluster.told`."""
        for record in changes.jobs.values():
            self._capacity.look_again({slot.where for slot in record.slots})
            if record.id in self._unwanted:
                self._unwanted.discard(record.id)
                self._report(CancelRequested(record.id))
        self._holds.told(changes)
        self._status_writer.told(changes)
        self._dirty.set()

    # Events of the watches.

    async def _watch(
        self,
        resource: Resource,
        read: Callable[[Object], T],
        changed: Callable[[T | None, T | None], None],
        *,
        selector: str = "",
        namespace: str = "",
    ) -> None:
        watch = resource.plural, namespace

        def synced() -> None:
            if self._lists.listed(watch):
                self._listed.add(("Job", namespace))
            self.volumes.cache.synced(watch)
            self._dirty.set()

        def refused(error: ApiError) -> None:
            self._lists.refused(watch, error)
            self._dirty.set()

        def told(old: T | None, new: T | None) -> None:
            changed(old, new)
            self._dirty.set()

        handler = Handler(told, synced, refused)
        await Reflector(self._api, resource, read, handler, namespace=namespace, selector=selector).run()

    def _read_job(self, item: Object) -> JobView:
        view = self._registry.believed(read_job(item))
        self._adoption.objects.seen(item)
        return view

    def _read_pod(self, item: Object) -> PodView:
        view = self._registry.believed(read_pod(item))
        if view.owner is None:
            self._adoption.objects.seen(item)
        return view

    def _job_changed(self, old: JobView | None, new: JobView | None) -> None:
        self._registry.job_changed(old, new)
        view = new or old
        assert view is not None
        self._capacity.look_again(self._registry.nodes_of(view.uid))  # whose they are may be known only now
        self._object_changed(old, new)

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        job = self._registry.pod_changed(old, new)
        self._capacity.pod_changed(old, new)
        self.volumes.pod_changed(old, new)
        pod = new or old
        assert pod is not None
        # The label of its queue may be stripped off a Pod that runs.
        if not job and (names.QUEUE in pod.labels or self._registry.key_of(pod) is not None):
            self._object_changed(old, new)
        elif job:
            self._hosts.pod_changed(pod)
            self._holds.pod_changed(job)
            if new is None or new.over:
                self._status_writer.pod_ended(job)
        self._dirty.set()

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        self._capacity.node_changed(old, new)
        self.volumes.node_changed(old, new)
        self._dirty.set()

    def _object_changed(self, old: JobView | PodView | None, new: JobView | PodView | None) -> None:
        view = new or old
        assert view is not None
        self._dirty.set()
        if (new is None or new.deleting) and not (old is not None and old.deleting):
            self._deleted(view)
        elif isinstance(view, JobView) and view.released and self._adoption.is_taken(view):
            self._released(view)
        self._adoption.changed(old, new)
        self._holds.object_changed(view, gone=new is None)
        self._status_writer.object_changed(view, gone=new is None)

    def _deleted(self, view: JobView | PodView) -> None:
        """An adopted object was deleted: cancel its job, unless Starburst deleted it."""
        ended = view.end if isinstance(view, JobView) else view.over
        theirs = names.CONTROLLER in view.labels and not self._registry.is_ours(view)
        if ended or theirs or not self._adoption.is_taken(view):
            return
        if self._registry.is_ending(view):
            return  # Starburst deleted it, or it had ended
        unit = self._registry.get(self._registry.key_of(view) or ("", 0))
        if isinstance(view, PodView) and view.node:
            self._evictions.judge(unit.key if unit is not None else (_job_of(view), 0), view)
        else:
            self.cancel(_job_of(view))

    def _released(self, view: JobView) -> None:
        """The user of an operator's object let its operator run it: the job of it is cancelled."""
        record = self._desk.record(_job_of(view))
        if not (view.end or view.deleting or (record is not None and record.phase.is_end)):
            log.info("released", job=_job_of(view))
            self.cancel(_job_of(view))

    def _judged(self, pod: PodView, why: str) -> None:
        """A bare Pod that ran was deleted: by its user, or by the cluster for the reason `why`."""
        self._registry.taken(pod, why)
        if not why:
            self.cancel(_job_of(pod))
        self._dirty.set()

    def cancel(self, job_id: str) -> None:
        """Request the cancellation; it is repeated for a job that the core has not taken up yet."""
        self._report(CancelRequested(job_id))
        if self._desk.record(job_id) is None:
            self._unwanted.add(job_id)

    def lost(self, job_id: str) -> None:
        """Another Starburst was the first to mark the object of this job: it is theirs."""
        self._status_writer.forget(job_id)
        self.cancel(job_id)

    def _counted(self, pod: PodView) -> Resources | None:
        """What the core counts on a pod's node for it; None if it is of no run that the core counts there."""
        key = self._registry.run_of(pod)
        record = None if key is None else self._desk.record(key[0])
        if key is None or record is None or not is_run_of(record, key):
            return None
        here = [slot for slot in record.slots if slot.where == pod.node]
        own = (slot for slot in here if str(slot.rank) == pod.annotations.get(names.RANK))
        return next((slot.resources for slot in (*own, *here)), None)

    # Reports.

    async def _reporting(self) -> None:
        """Report what changed, gathered for a moment; at first all of it, and then that this was all."""
        while True:
            await self._dirty.wait()
            await asyncio.sleep(GATHER_S)
            self._dirty.clear()
            if self._lists.pending:
                continue
            if not self._lists.over:  # before the core may offload any adopted job
                await self._rights.begin()
            nodes = self._capacity.nodes()
            if nodes != self._reported or not self._lists.over:
                self._reported = nodes
                self._report(NodesChanged(nodes))
            for rule in self.volumes.changes():
                self._report(rule)
            for event in self._registry.take_events():
                self._report(event)
                self._keep_ended(event)
            if not self._lists.over:
                self._lists.over = True
                await self._absences.first(self._lists.missing(), self._gone())
                self._report_synced()
            elif self._listed or self._lists.trusted:
                self._report_judged()

    def _keep_ended(self, event: Event) -> None:
        """Let a job stay whose Job is over, since its end elsewhere could not be written there."""
        if not isinstance(event, RunEnded):
            return
        run = self._registry.get((event.job_id, event.attempt))
        if run is not None and run.adopted and isinstance(run.view, JobView) and run.view.end:
            again = event.end in (RunEnd.DISPLACED, RunEnd.NOT_STARTED, RunEnd.LOST)
            self._rights.keep(event.job_id, ENDED_JOB if again else "")

    def _report_synced(self) -> None:
        """Everything has been listed: what is missing is gone."""
        orphans = self._registry.orphans()
        known = self._registry.known() | orphans | self._lists.trusted | self._absences.open
        self._report(SiteSynced(Site.CLUSTER, known))
        self._absences.synced = True
        self._status_writer.look_at_all()
        self._sweeper.begin(orphans - self._lists.trusted)

    def _report_judged(self) -> None:
        """More has been listed: report what is missing there, as at first."""
        judged, orphans = self._lists.judged(), self._registry.orphans()
        self._absences.judge(sorted(judged - orphans), self._gone())
        self._sweeper.begin(orphans & judged)

    def _gone(self) -> dict[str, Adopted]:
        """Jobs whose objects are there no more: deleted while Starburst was down, or taken away.

        Of kinds that were not listed, it is not known what is there.
        """
        listed, self._listed = self._listed, set()
        there = self._adoption.uids()
        return {
            job_id: adopted
            for job_id, adopted in self._desk.adopted().items()
            if job_id not in self._absences.ended and adopted.uid not in there
            if listed & {(adopted.kind, ""), (adopted.kind, adopted.namespace)}
            if not self._lists.hides(adopted.kind, adopted.namespace)
            if not may_be_made_anew(self._desk.record(job_id), adopted.kind, self._registry)
        }


def _job_of(view: JobView | PodView) -> str:
    return view.labels.get(names.JOB) or adopted_id(view.name, view.uid)
