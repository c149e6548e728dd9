"""Watches the cluster and says what it means: nodes, runs, and jobs that users put into it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic

import structlog

from starburst.clusters.kubernetes.adoption import Adoption, adopted_id
from starburst.clusters.kubernetes.leave_rights import Leaving
from starburst.clusters.kubernetes.node_capacity import Room
from starburst.clusters.kubernetes.runs import RunBook, RunKey, Unit
from starburst.clusters.kubernetes.status_writer import Mirror
from starburst.clusters.kubernetes.stuck import Limits, stuck
from starburst.core.model.events import CancelRequested, NodesChanged, RunEnd, SiteSynced
from starburst.core.model.jobs import JobRecord
from starburst.core.state import Changes
from starburst.domain.job import Phase, Site
from starburst.domain.node import Node
from starburst.kube import names
from starburst.kube.api import JOBS, NODES, PODS, Api, Object, Resource
from starburst.kube.objects import JobView, NodeView, PodView, read_job, read_node, read_pod
from starburst.kube.recorder import Recorder
from starburst.kube.reflector import Reflector, T
from starburst.runs.ports import AdoptionPort, Report

log = structlog.get_logger()

#: Changes are gathered for this long before nodes and runs are reported. Wall seconds.
GATHER_S = 0.05
#: How often runs are looked at whose pods cannot be bound.
SWEEP_S = 5.0


@dataclass(slots=True)
class Ear(Generic[T]):
    """What a watch tells, passed on."""

    changed: Callable[[T | None, T | None], None]
    synced: Callable[[], None]


class Watcher:
    """One watch each of Jobs, pods and nodes, from a list of all of them until cancelled.

    `displace` takes a run back that does not get the room the core gave it: how its end counts, and why.
    """

    def __init__(
        self,
        api: Api,
        *,
        desk: AdoptionPort,
        book: RunBook,
        mirror: Mirror,
        adoption: Adoption,
        leaving: Leaving,
        recorder: Recorder,
        report: Report,
        displace: Callable[[RunKey, RunEnd, str], Awaitable[None]],
        limits: Limits,
    ) -> None:
        self._api = api
        self._desk = desk
        self._book = book
        self._mirror = mirror
        self._adoption = adoption
        self._recorder = recorder
        self._report = report
        self._displace = displace
        self._limits = limits
        self._room = Room(self._is_placed)
        self._leaving = leaving
        self._reported: tuple[Node, ...] = ()
        self._dirty = asyncio.Event()
        self._synced = asyncio.Event()
        self._unsynced = {JOBS.plural, NODES.plural, PODS.plural}
        #: Runs that cannot go on, and since when each has for the same limit.
        self._stuck_since: dict[tuple[RunKey, float], float] = {}
        #: Runs whose pods were left behind by a Job that is gone.
        self._orphans: set[RunKey] = set()
        #: Jobs that nobody wants any more and that the core has not taken up yet.
        self._unwanted: set[str] = set()

    async def run(self) -> None:
        """Go on until cancelled."""
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("watch jobs", self._watch(JOBS, read_job, self._job_changed, names.QUEUE)),
                ("watch pods", self._watch(PODS, read_pod, self._pod_changed)),
                ("watch nodes", self._watch(NODES, read_node, self._node_changed)),
                ("report", self._reporting()),
                ("mirror", self._mirror.run()),
                ("adoption", self._adoption.run()),
                ("events", self._recorder.run()),
                ("sweep", self._sweeping()),
                ("leaving", self._leaving.run()),
            )
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def told(self, changes: Changes) -> None:
        """See `Cluster.told`."""
        for record in changes.jobs.values():
            self._room.look_again({slot.where for slot in record.slots})
            if record.id in self._unwanted:
                self._unwanted.discard(record.id)
                self._report(CancelRequested(record.id))
        self._mirror.told(changes)
        self._dirty.set()

    # --- what the watches say ----------------------------------------------------------------------------

    async def _watch(
        self,
        resource: Resource,
        read: Callable[[Object], T],
        changed: Callable[[T | None, T | None], None],
        selector: str = "",
    ) -> None:
        def synced() -> None:
            self._unsynced.discard(resource.plural)
            self._dirty.set()

        await Reflector(self._api, resource, read, Ear(changed, synced), selector=selector).run()

    def _job_changed(self, old: JobView | None, new: JobView | None) -> None:
        self._book.job_changed(old, new)
        view = new or old
        assert view is not None
        self._room.look_again(self._book.nodes_of(view.uid))  # whose its pods are may be known only now
        self._object_changed(old, new)

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        self._book.pod_changed(old, new)
        self._room.pod_changed(old, new)
        pod = new or old
        assert pod is not None
        if pod.owner is None and names.QUEUE in pod.labels:
            self._object_changed(old, new)
        elif pod.owner is not None and (new is None or new.over):
            self._mirror.pod_ended(pod.owner.uid)
        self._dirty.set()

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        self._room.node_changed(old, new)
        self._dirty.set()

    def _object_changed(self, old: JobView | PodView | None, new: JobView | PodView | None) -> None:
        view = new or old
        assert view is not None
        self._dirty.set()
        if (new is None or new.deleting) and not (old is not None and old.deleting):
            self._deleted(view)
        self._adoption.changed(old, new)
        self._mirror.object_changed(view, gone=new is None)

    def _deleted(self, view: JobView | PodView) -> None:
        """A user who deletes an object that was adopted does not want its job any more."""
        ended = view.end if isinstance(view, JobView) else view.over
        theirs = names.CONTROLLER in view.labels and not self._book.is_ours(view)
        if ended or theirs or not self._adoption.is_taken(view):
            return
        unit = self._book.get(self._book.key_of(view) or ("", 0))
        if unit is None or unit.stopping is None:  # else it was we who deleted it
            self._cancel(view.labels.get(names.JOB) or adopted_id(view.name, view.uid))

    def _cancel(self, job_id: str) -> None:
        """Its user does not want the job; what the core does not know yet it would pass over."""
        self._report(CancelRequested(job_id))
        if self._desk.record(job_id) is None:
            self._unwanted.add(job_id)

    def _is_placed(self, pod: PodView) -> bool:
        """Whether the core holds a place for the run that a pod is part of."""
        key = self._book.run_of(pod)
        record = None if key is None else self._desk.record(key[0])
        return key is not None and record is not None and _is_run_of(record, key)

    # --- what is reported --------------------------------------------------------------------------------

    async def _reporting(self) -> None:
        """Report what changed, gathered for a moment; at first all of it, and then that this was all."""
        synced = False
        while True:
            await self._dirty.wait()
            await asyncio.sleep(GATHER_S)
            self._dirty.clear()
            if self._unsynced:
                continue
            if not synced:  # before any wait can count as over
                await self._leaving.begin()
            nodes = self._room.nodes()
            if nodes != self._reported or not synced:
                self._reported = nodes
                self._report(NodesChanged(nodes))
            for event in self._book.take_events():
                self._report(event)
            if not synced:
                synced = True
                self._report_deleted()
                self._orphans |= self._book.orphans()
                self._report(SiteSynced(Site.CLUSTER, self._book.known() | self._orphans))
                self._mirror.look_at_all()
                self._synced.set()

    def _report_deleted(self) -> None:
        """Jobs whose objects were deleted while nobody watched."""
        there = self._adoption.uids()
        for job_id, adopted in self._desk.adopted().items():
            if adopted.uid not in there and not (adopted.kind == "Pod" and self._may_be_made_anew(job_id)):
                self._cancel(job_id)

    def _may_be_made_anew(self, job_id: str) -> bool:
        """Whether the Pod of a job can be missing, or another one, for what we did."""
        record = self._desk.record(job_id)
        if record is None or record.attempt == 0:
            return False
        if any(key[0] == job_id for key in self._book.known()):
            return True
        # A run here has a Pod, and a job that only ran in the cloud has kept its own.
        runs_here = record.phase in (Phase.STARTING, Phase.RUNNING) and record.site is Site.CLUSTER
        return not (runs_here or (record.site is Site.CLOUD and record.attempt == 1))

    # --- runs that get no room after all -----------------------------------------------------------------

    async def _sweeping(self) -> None:
        """Take back what should not be, or cannot go on; before all is known nobody can tell."""
        await self._synced.wait()
        while True:
            for key in [*self._orphans]:
                if await self._take_back(key):
                    self._orphans.discard(key)
            for unit in self._book:
                if _is_half_stopped(unit) or self._is_stray(unit):
                    log.warning("taken-back", job=unit.key[0], attempt=unit.key[1])
                    await self._take_back(unit.key)
            await self._end_stuck(asyncio.get_running_loop().time())
            await asyncio.sleep(SWEEP_S)

    async def _end_stuck(self, now: float) -> None:
        """Others get the places of runs that cannot use them."""
        found = {unit.key: stuck(unit, self._limits) for unit in self._book if _is_live(unit)}
        waiting = {(key, limit_s): why for key, (why, limit_s) in found.items() if why}
        self._stuck_since = {each: self._stuck_since.get(each, now) for each in waiting}
        for each, since in self._stuck_since.items():
            key, limit_s = each
            if now - since >= limit_s:
                log.warning("displaced", job=key[0], attempt=key[1], why=waiting[each])
                unit = self._book.get(key)
                began = unit is not None and unit.told_started
                await self._take_back(key, RunEnd.DISPLACED if began else RunEnd.NOT_STARTED, waiting[each])

    async def _take_back(self, key: RunKey, how: RunEnd = RunEnd.DISPLACED, why: str = "") -> bool:
        try:
            await self._displace(key, how, why)
        except Exception as error:  # whatever it was, the next sweep tries again
            log.warning("displace-failed", job=key[0], error=str(error))
            return False
        return True

    def _is_stray(self, unit: Unit) -> bool:
        """Whether an object is for a run that the core does not know of: a write came through after all."""
        ended = isinstance(unit.view, JobView) and unit.view.end
        if ended or not _is_live(unit) or (unit.adopted and not unit.view.annotations.get(names.NODES)):
            return False
        record = self._desk.record(unit.key[0])
        return record is not None and not _is_run_of(record, unit.key)


def _is_run_of(record: JobRecord, key: RunKey) -> bool:
    return record.alive and record.site is Site.CLUSTER and (record.id, record.attempt) == key


def _is_live(unit: Unit) -> bool:
    """Whether a run goes on, and nobody ends it."""
    return not unit.told_end and not unit.gone and unit.stopping is None and not unit.view.deleting


def _is_half_stopped(unit: Unit) -> bool:
    """Whether we began to end a run and came no further than to say so."""
    if unit.stopping is None or unit.told_end or unit.gone or unit.view.deleting:
        return False
    return not (isinstance(unit.view, JobView) and (unit.view.end or unit.view.withdrawn))
