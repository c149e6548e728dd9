"""Writes the state of jobs to their objects: events, conditions, and the end of what ran in the cloud.

A control loop: it compares the record of a job with what its object shows, and patches the difference. So it
can run at any time, and a restart needs no memory of what was written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import structlog

from starburst.clusters.kubernetes.adoption.holds import SUSPENDED
from starburst.clusters.kubernetes.manifest import withdrawn
from starburst.clusters.kubernetes.object_status import (
    job_status,
    live_status,
    operator_status,
    pod_status,
    site_of,
)
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.sweeper import is_run_of
from starburst.core.model.jobs import JobRecord
from starburst.core.state import Changes
from starburst.domain.job import Phase, Site
from starburst.kube import names
from starburst.kube.api import STRATEGIC, Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.features import Features
from starburst.kube.objects import JobView, PodView, resource_of
from starburst.kube.recorder import EventType, Recorder, api_time, reference_to
from starburst.kube.resources import JOBS, PODS, Object
from starburst.runs.ports import AdoptionPort

log = structlog.get_logger()

#: Kinds of decisions that become events, and the reasons of those events.
REASONS: Mapping[str, str] = {
    "waits": "Queued",
    "waits-on": "Queued",
    "held": "Held",
    "released": "Released",
    "placed": "Placed",
    "offloaded": "Offloaded",
    "no-offer": "NoOffer",
    "returning": "Returned",
    "stopping": "Stopping",
    "lost": "Lost",
    "shrinks": "Shrunk",
    "suspended": "Suspended",
    "stalled": "HeldUp",
    "goes-on": "GoesOn",
    "not-started": "NotStarted",
    "awaits-volumes": "Held",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "cancelled": "Cancelled",
}
WARNINGS = ("lost", "shrinks", "stalled", "not-started", "failed")
#: Conditions of a job that has not ended; one of them is true.
CONDITIONS = ("Queued", "Placed", "Offloaded")

#: Wall seconds between writes to one object; between tries that fail twice as long each time, up to a minute.
PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0


class StatusWriter:
    """Keeps the objects of one scheduler's jobs in step with its records."""

    def __init__(
        self, api: Api, features: Features, desk: AdoptionPort, registry: RunRegistry, recorder: Recorder
    ) -> None:
        self._api = api
        self._features = features
        self._desk = desk
        self._registry = registry
        self._recorder = recorder
        #: Adopted objects by job.
        self._objects: dict[str, JobView | PodView] = {}
        self._reasons: dict[str, str] = {}
        #: When an object was last written to (loop's time).
        self._written: dict[str, float] = {}
        #: Tries in a row that failed, by job.
        self._failures: dict[str, int] = {}
        #: Jobs that wait for the last pods of an object, by its uid.
        self._emptying: dict[str, str] = {}
        self._asked: dict[str, None] = {}
        #: Jobs of ended runs of submitted jobs that vanish sooner once their end is stored, by job.
        self._vanishing: dict[str, JobView] = {}
        #: Jobs whose hold is to be noted on their objects.
        self._to_keep: set[str] = set()
        self._wake = asyncio.Event()

    def found(self, job_id: str, view: JobView | PodView) -> None:
        """Note the object of a job that is about to be handed in."""
        self._objects[job_id] = view

    def object_changed(self, view: JobView | PodView, *, gone: bool) -> None:
        """An event of the watches: an object of any scheduler's job."""
        job_id = view.labels.get(names.JOB) or adopted_id(view.name, view.uid)
        if not gone and names.ADOPTED in view.annotations and self._registry.is_ours(view):
            self._objects[job_id] = view
            self.look(job_id)
        elif _is_to_vanish(view) and self._registry.is_ours(view):
            assert isinstance(view, JobView)
            if gone:
                self._vanishing.pop(job_id, None)
            else:
                self._vanishing[job_id] = view
                self.look(job_id)
        elif gone and job_id in self._objects and self._objects[job_id].uid == view.uid:
            self.forget(job_id)
            self._emptying.pop(view.uid, None)

    def forget(self, job_id: str) -> None:
        """Write nothing more to the object of this job: it is gone, or another Starburst's."""
        for known in (self._objects, self._reasons, self._written, self._failures):
            known.pop(job_id, None)

    def pod_ended(self, owner: str) -> None:
        """A pod of this object has ended; the end of a job may wait for the last one."""
        job_id = self._emptying.get(owner)
        if job_id is not None:
            self.look(job_id)

    def told(self, changes: Changes) -> None:
        """A step of the core: write events for its decisions, and compare the jobs it changed."""
        for decision in changes.decisions:
            view = self._objects.get(decision.subject)
            reason = REASONS.get(decision.kind)
            if view is None or reason is None:
                continue
            self._reasons[decision.subject] = decision.reason
            kind: EventType = "Warning" if decision.kind in WARNINGS else "Normal"
            self._recorder.put(reference_to(view), kind, reason, decision.reason)
        for job_id in changes.jobs:
            if job_id in self._objects or job_id in self._vanishing:
                self.look(job_id)

    def look(self, job_id: str) -> None:
        """Have an object compared with its job."""
        self._asked[job_id] = None
        self._wake.set()

    def keep(self, job_id: str) -> None:
        """Have it noted on its object that a job is held because that is suspended."""
        self._to_keep.add(job_id)
        self.look(job_id)

    def is_suspended(self, job_id: str) -> bool:
        """Whether the managed Job of a job is suspended, so that no run of it should live."""
        view = self._objects.get(job_id)
        return isinstance(view, JobView) and view.managed and view.suspended

    def look_at_all(self) -> None:
        """Compare all objects, after a start."""
        for job_id in self._objects:
            self.look(job_id)

    async def run(self) -> None:
        """Compare and patch until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked, self._asked = self._asked, {}
            for job_id in asked:
                try:
                    await self._mend(job_id)
                    self._failures.pop(job_id, None)
                except ApiError as error:
                    if not error.absent:  # else it was deleted meanwhile
                        self._retry(job_id, error)
                except ApiUnreachableError as error:
                    self._retry(job_id, error)

    def _retry(self, job_id: str, error: Exception) -> None:
        log.warning("not-shown", job=job_id, error=str(error))
        failures = self._failures[job_id] = self._failures.get(job_id, 0) + 1
        pause_s = min(PAUSE_S * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE_S)
        asyncio.get_running_loop().call_later(pause_s, self.look, job_id)

    async def _mend(self, job_id: str) -> None:
        if job_id in self._vanishing:
            await self._let_vanish(self._vanishing[job_id], job_id)
        view = self._objects.get(job_id)
        if view is None or view.deleting or (_ended(view) and names.LOGS in view.annotations):
            return
        if isinstance(view, JobView) and view.released:
            return  # its operator writes its status
        # Of a job that ended while the API server was away for long the record may be kept no longer.
        record = self._desk.record(job_id) or self._desk.past(job_id)
        if record is None:
            return
        if _ended(view):
            await self._note_end(view, record)
        elif record.phase.is_end:
            await self._end(view, record)
        else:
            if isinstance(view, JobView) and is_away(record) and not (view.withdrawn or view.managed):
                await self._withdraw(view)
            await self._note_hold(view, record)
            await self._show(view, record)

    async def _note_hold(self, view: JobView | PodView, record: JobRecord) -> None:
        """Note what its job is held for; once it is released, its user holds it by other means only."""
        noted = names.KEPT in view.annotations
        annotations: Object = {}
        if record.phase is not Phase.HELD and noted and not record.alive:
            # Without nodes it counts as suspended by Starburst, which resumes it.
            annotations = {names.KEPT: None, **({names.NODES: ""} if is_suspended(view) else {})}
        elif record.phase is Phase.HELD and record.id in self._to_keep and not noted:
            annotations = {names.KEPT: SUSPENDED}
        self._to_keep.discard(record.id)
        if annotations:
            body = {"metadata": {"uid": view.uid, "annotations": annotations}}
            await self._api.patch(resource_of(view), view.namespace, view.name, body)

    async def _withdraw(self, view: JobView) -> None:
        """Take the pods of a Job away and keep the Job, since it is not to run here."""
        body = {"metadata": {"annotations": {names.NODES: ""}}, **withdrawn(self._features)}
        await self._api.patch(JOBS, view.namespace, view.name, body)

    async def _end(self, view: JobView | PodView, record: JobRecord) -> None:
        """Write the end of a job that did not end here, once nothing of it is left here."""
        if isinstance(view, JobView):
            if not (view.withdrawn or view.managed):
                await self._withdraw(view)  # the change brings us back
            elif self._registry.has_active_pods(view.uid):
                self._emptying[view.uid] = record.id
            else:
                self._emptying.pop(view.uid, None)
                if view.operator is not None:
                    await self._end_operators(view, record)
                    return
                unit = self._registry.get((record.id, record.attempt)) if view.managed else None
                run = unit.view if unit is not None and isinstance(unit.view, JobView) else None
                status = job_status(view, record, len(record.job.tasks), api_time(time.time()), run)
                body = {"status": status}
                await self._api.patch(JOBS, view.namespace, view.name, body, sub="status", kind=STRATEGIC)
        elif not view.node:
            body = {"status": pod_status(record)}
            await self._api.patch(PODS, view.namespace, view.name, body, sub="status")

    async def _end_operators(self, view: JobView, record: JobRecord) -> None:
        """Write the end of an operator's object, whose status has no patch that merges its conditions."""
        there = await self._api.find(resource_of(view), view.namespace, view.name)
        if there is None or view.operator is None:
            return
        status = operator_status(view.operator, there.get("status") or {}, record, api_time(time.time()))
        version = there["metadata"]["resourceVersion"]
        body = {"metadata": {"uid": view.uid, "resourceVersion": version}, "status": status}
        await self._api.patch(resource_of(view), view.namespace, view.name, body, sub="status")

    async def _let_vanish(self, view: JobView, job_id: str) -> None:
        """Give the Job of an ended run the time to live that its user wrote."""
        record, key = self._desk.record(job_id), self._registry.key_of(view)
        if record is None or key is None or is_run_of(record, key):
            return  # its end is not stored yet
        body = {"metadata": {"uid": view.uid, "annotations": {names.TTL: None}}, **_time_to_live(view)}
        await self._api.patch(JOBS, view.namespace, view.name, body)
        self._vanishing.pop(job_id, None)

    async def _note_end(self, view: JobView | PodView, record: JobRecord) -> None:
        if not record.phase.is_end:
            return
        annotations: Object = {
            names.LOGS: f"starburst logs {record.id}",
            names.EXIT_CODE: "" if record.exit_code is None else str(record.exit_code),
            names.DECISION: f"{record.message}; ran in the {site_of(record)}",
        }
        if names.TTL in view.annotations:
            annotations[names.TTL] = None
        body = {"metadata": {"uid": view.uid, "annotations": annotations}, **_time_to_live(view)}
        await self._api.patch(resource_of(view), view.namespace, view.name, body)

    async def _show(self, view: JobView | PodView, record: JobRecord) -> None:
        """The condition that is true now, and the last reason, where `kubectl describe` shows them.

        What was written is known to be there once the watch brings it: Job controllers of old servers
        overwrite a status with what they read before.
        """
        state = "Offloaded" if is_away(record) else "Placed" if record.alive else "Queued"
        reason = self._reasons.get(record.id, record.message)
        status: Object = {}
        theirs = isinstance(view, JobView) and view.operator is not None  # which writes it while it lives
        if isinstance(view, JobView) and view.managed and not theirs:
            status = live_status(view, record, len(record.job.tasks), api_time(time.time()))
        conditions = _conditions(view, state, reason)
        if conditions and not theirs:
            status["conditions"] = conditions
        decision = view.annotations.get(names.DECISION, "")
        if not status and reason in ("", decision):
            return
        loop = asyncio.get_running_loop()
        rest_s = self._written.get(record.id, loop.time() - PAUSE_S) + PAUSE_S - loop.time()
        if rest_s > 0:
            loop.call_later(rest_s, self.look, record.id)
            return
        self._written[record.id] = loop.time()
        metadata: Object = {"uid": view.uid}
        if reason not in ("", decision):
            metadata["annotations"] = {names.DECISION: reason}
        body: Object = {"metadata": metadata}
        if status:  # servers take annotations of Jobs and Pods along with their status
            body["status"] = status
            await self._api.patch(
                resource_of(view), view.namespace, view.name, body, sub="status", kind=STRATEGIC
            )
        else:
            await self._api.patch(resource_of(view), view.namespace, view.name, body)


def _conditions(view: JobView | PodView, state: str, reason: str) -> list[Object]:
    """The conditions of an object that have to be changed."""
    known, now = dict(view.conditions), api_time(time.time())
    return [
        {
            "type": kind,
            "status": status,
            "reason": state,
            "message": reason,
            "lastTransitionTime": now,
        }
        for kind, status in ((f"starburst.io/{name}", str(name == state)) for name in CONDITIONS)
        if known.get(kind) != status
    ]


def _is_to_vanish(view: JobView | PodView) -> bool:
    """Whether a Job has ended whose time to live is put aside."""
    return isinstance(view, JobView) and bool(view.end) and names.TTL in view.annotations


def _time_to_live(view: JobView | PodView) -> Object:
    """The patch of its spec that puts a Job's time to live back; users may write any text there."""
    text = view.annotations.get(names.TTL, "")
    ours = isinstance(view, JobView) and text.isdecimal() and len(text) < 10
    return {"spec": {"ttlSecondsAfterFinished": int(text)}} if ours else {}


def is_suspended(view: JobView | PodView) -> bool:
    """Whether it is a suspended Job."""
    return isinstance(view, JobView) and view.suspended


def is_away(record: JobRecord) -> bool:
    """Whether a job is in the cloud, or on its way there."""
    return record.phase is Phase.OFFLOADING or (record.alive and record.site is Site.CLOUD)


def _ended(view: JobView | PodView) -> bool:
    return bool(view.end) if isinstance(view, JobView) else view.over
