"""Adopted objects that their users keep from running: suspended Jobs, and pods with scheduling gates.

Their jobs are held. When a Job is resumed, or the gates are gone, the job is released.
"""

from __future__ import annotations

from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.core.model.events import ReleaseRequested
from starburst.core.state import Changes
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from starburst.runs.ports import AdoptionPort, Report


def why_kept(view: JobView | PodView) -> str:
    """What keeps an object that is to be taken in from running; "" if nothing does."""
    # One with nodes, or with none any more, was suspended by a Starburst.
    if isinstance(view, JobView) and view.suspended and names.NODES not in view.annotations:
        return "suspended"
    return "gated" if view.gated else ""


class Holds:
    """Releases jobs that were held for the state of their objects."""

    def __init__(self, desk: AdoptionPort, registry: RunRegistry, report: Report) -> None:
        self._desk = desk
        self._registry = registry
        self._report = report
        #: Objects whose jobs were held for it, by job; and their jobs, by uid.
        self._kept: dict[str, JobView | PodView] = {}
        self._jobs: dict[str, str] = {}

    def object_changed(self, view: JobView | PodView, *, gone: bool) -> None:
        """An event of the watches: an object with a queue's label."""
        job_id = view.labels.get(names.JOB, "")
        if gone or names.KEPT not in view.annotations or not self._registry.is_ours(view):
            self._kept.pop(self._jobs.pop(view.uid, ""), None)
            return
        self._kept[job_id] = view
        self._jobs[view.uid] = job_id
        self._look(job_id)

    def pod_changed(self, owner: str) -> None:
        """An event of the watches: a pod of the object with this uid."""
        if owner in self._jobs:
            self._look(self._jobs[owner])

    def told(self, changes: Changes) -> None:
        """A step of the core."""
        for job_id in self._kept.keys() & changes.jobs.keys():
            self._look(job_id)

    def _look(self, job_id: str) -> None:
        record = self._desk.record(job_id)
        if record is not None and record.phase is Phase.HELD and not self._is_kept(self._kept[job_id]):
            self._report(ReleaseRequested(job_id))

    def _is_kept(self, view: JobView | PodView) -> bool:
        """Whether an object is still suspended or gated; of a Job, the gates are those of its pods."""
        if isinstance(view, PodView):
            return view.gated
        if view.suspended or not view.gated:
            return view.suspended
        pods = self._registry.active_pods(view.uid)
        return not pods or any(pod.gated for pod in pods)
