"""Adopted objects that their users keep from running: suspended Jobs, and pods with scheduling gates.

Their jobs are held, also those of Jobs that are suspended in the queue, or, if Starburst manages them, in the
cloud (one that is suspended while it runs on the cluster: see `runs.sweeper`). When a Job is resumed, or the
gates are gone, the job is released.
"""

from __future__ import annotations

from collections.abc import Callable

from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.core.model.events import HoldRequested, ReleaseRequested
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import StopReason
from starburst.core.state import Changes
from starburst.domain.job import Phase, Site
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from starburst.runs.ports import AdoptionPort, Report

#: Value of the annotation `kept`.
SUSPENDED = "suspended"
SUSPENDED_BY_USER = "its user suspended its Job"
#: Phases in which the core holds a job that it is asked to hold.
HOLDABLE = (Phase.QUEUED, Phase.BLOCKED)


def why_kept(view: JobView | PodView) -> str:
    """What keeps an object that waits from running; "" if nothing does."""
    # One with nodes, or with none any more, was suspended by a Starburst.
    if isinstance(view, JobView) and view.suspended and names.NODES not in view.annotations:
        return SUSPENDED
    return "gated" if view.gated else ""


def is_suspended_now(view: JobView | PodView) -> bool:
    """Whether its user suspended a Job after it was taken in, which is not noted on it yet."""
    return names.KEPT not in view.annotations and why_kept(view) == SUSPENDED


class Holds:
    """Holds jobs whose Jobs are suspended in the queue; releases jobs that were held for their objects.

    `keep` is called with a job that was held here, to have that noted on its object.
    """

    def __init__(
        self, desk: AdoptionPort, registry: RunRegistry, report: Report, keep: Callable[[str], None]
    ) -> None:
        self._desk = desk
        self._registry = registry
        self._report = report
        self._keep = keep
        #: Objects whose jobs are held for them, or are to be, by job; and their jobs, by uid.
        self._kept: dict[str, JobView | PodView] = {}
        self._jobs: dict[str, str] = {}
        #: Jobs that were to be held, until that is noted on their objects.
        self._asked: set[str] = set()

    def object_changed(self, view: JobView | PodView, *, gone: bool) -> None:
        """An event of the watches: an object with a queue's label."""
        job_id = view.labels.get(names.JOB, "")
        ours = not gone and names.ADOPTED in view.annotations and self._registry.is_ours(view)
        if ours and (names.KEPT in view.annotations or job_id in self._asked or is_suspended_now(view)):
            self._kept[job_id] = view
            self._jobs[view.uid] = job_id
            self._look(job_id)
        elif view.uid in self._jobs:
            self._kept.pop(self._jobs.pop(view.uid), None)
            self._asked.discard(job_id)

    def pod_changed(self, owner: str) -> None:
        """An event of the watches: a pod of the object with this uid."""
        if owner in self._jobs:
            self._look(self._jobs[owner])

    def told(self, changes: Changes) -> None:
        """A step of the core."""
        for job_id in self._kept.keys() & changes.jobs.keys():
            self._look(job_id)

    def _look(self, job_id: str) -> None:
        record, view = self._desk.record(job_id), self._kept[job_id]
        phase = None if record is None else record.phase
        noted = names.KEPT in view.annotations
        if _is_managed(view) and is_suspended_now(view):
            self._asked.add(job_id)  # its run, which has a Job of its own, is ended for it
        elif noted or not (record is None or phase in (*HOLDABLE, Phase.HELD) or _is_being_held(record)):
            self._asked.discard(job_id)
        if phase is Phase.HELD and (noted or job_id in self._asked):
            if not self._is_kept(view):
                self._asked.discard(job_id)
                self._report(ReleaseRequested(job_id))
            elif not noted:
                self._keep(job_id)
        elif phase in HOLDABLE and is_suspended_now(view):
            self._asked.add(job_id)
            self._report(HoldRequested(job_id))
        elif record is not None and _is_away(record) and _is_managed(view) and is_suspended_now(view):
            self._report(HoldRequested(job_id, stops=SUSPENDED_BY_USER))

    def _is_kept(self, view: JobView | PodView) -> bool:
        """Whether an object is still suspended or gated; of a Job, the gates are those of its pods."""
        if isinstance(view, PodView):
            return view.gated
        if view.suspended or not view.gated:
            return view.suspended
        pods = self._registry.active_pods(view.uid)
        return not pods or any(pod.gated for pod in pods)


def _is_managed(view: JobView | PodView) -> bool:
    """Whether it is a Job whose status Starburst writes: no site suspends it but its user."""
    return isinstance(view, JobView) and view.managed


def _is_being_held(record: JobRecord) -> bool:
    """Whether a job's run in the cloud is stopped in order to hold the job."""
    return record.phase is Phase.STOPPING and record.stop_why is StopReason.SUSPEND


def _is_away(record: JobRecord) -> bool:
    """Whether a job leaves for the cloud, or runs there and is not told to stop."""
    runs = record.phase in (Phase.STARTING, Phase.RUNNING) and record.site is Site.CLOUD
    return runs or record.phase is Phase.OFFLOADING
