"""Which run an object is for: name and uid as the store has them, since anybody may write labels."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from starburst.clusters.kubernetes.manifest import namespace_of, object_name
from starburst.domain.job import Site
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from starburst.runs.ports import AdoptionPort

RunKey = tuple[str, int]
View = TypeVar("View", JobView, PodView)

#: Characters of a job id.
MAX_ID = 63
#: Submitted jobs whose namespace is remembered; it never changes, and each event of an object asks for it.
REMEMBERED = 10_000
_ATTEMPT = re.compile("[0-9]{1,9}")


def adopted_id(name: str, uid: str) -> str:
    """The job id of an object: the same each time the object is found, and different for every object."""
    end = "-" + hashlib.sha256(uid.encode()).hexdigest()[:8]
    return name[: MAX_ID - len(end)].rstrip("-.").replace(".", "-") + end


class RunIdentity:
    """Reads the run from an object of one scheduler, `controller`, and doubts what its labels say.

    Labels of an adopted object may be stripped off; then the store decides, by the object's name and uid.
    Those of a Job that Starburst made are also in its template, which is never changed (`read_job`).
    `namespace` is where submitted jobs go that name none.
    """

    def __init__(self, desk: AdoptionPort, controller: str, namespace: str) -> None:
        self._desk = desk
        self._controller = controller
        self._namespace = namespace
        self._submitted_to = lru_cache(REMEMBERED)(self._read_namespace)

    def is_ours(self, view: JobView | PodView) -> bool:
        """Whether an object is this scheduler's: it is marked so, or has no mark and is of a known run."""
        if names.CONTROLLER in view.labels:
            return self._is_marked(view)
        return self._stored(view) is not None

    def marked(self, view: JobView | PodView) -> RunKey | None:
        """The run that an object is marked with; None of those of others, and of objects that wait."""
        attempt = view.annotations.get(names.ATTEMPT, "")
        if not self._is_marked(view) or names.JOB not in view.labels:
            return None
        return (view.labels[names.JOB], int(attempt)) if _ATTEMPT.fullmatch(attempt) else None

    def of(self, view: JobView | PodView) -> RunKey | None:
        """The run that an object is for; None if it is for none, or only claims to be.

        The object of a submitted job has the attempt in its name. That of an adopted job has a name and a
        uid from which the job's id was made, unless Starburst made it anew, and no later attempt than the
        scheduler has begun.
        """
        if names.CONTROLLER in view.labels and not self._is_marked(view):
            return None
        return self._labelled(view) or self._stored(view)

    def believed(self, view: View) -> View:
        """An adopted object as it is read: without the label of a job that is another object's.

        Whoever applied it wrote that. The object of a job has the name and uid that its id was made from, or
        was made anew under that name. The marks of another scheduler are left.
        """
        job_id = view.labels.get(names.JOB)
        others = view.labels.get(names.CONTROLLER, self._controller) != self._controller
        if job_id is None or names.ADOPTED not in view.annotations or others:
            return view
        if job_id == adopted_id(view.name, view.uid) or self._is_made_anew(view, job_id):
            return view
        labels = {key: value for key, value in view.labels.items() if key != names.JOB}
        return replace(view, labels=labels)

    def _is_marked(self, view: JobView | PodView) -> bool:
        return view.labels.get(names.CONTROLLER) == self._controller

    def _labelled(self, view: JobView | PodView) -> RunKey | None:
        """The run by the labels, as far as name and uid agree."""
        if isinstance(view, JobView) and self._is_marked(view):
            job_id = view.labels.get(names.JOB, "")
            attempt = _attempt_of(view.name, job_id)
            if attempt is not None and self._goes_there(job_id, view.namespace):
                return job_id, attempt
        key = self.marked(view)
        if key is None or names.ADOPTED not in view.annotations:
            return None
        if key[0] != adopted_id(view.name, view.uid) and not self._is_made_anew(view, key[0]):
            return None
        record = self._desk.record(key[0]) if key[1] > 1 else None
        return key if record is None else (key[0], min(key[1], record.attempt))

    def _stored(self, view: JobView | PodView) -> RunKey | None:
        """The run that the store has for an adopted object of this name and uid, if it was ever placed."""
        if not (view.node if isinstance(view, PodView) else view.annotations.get(names.NODES)):
            return None
        job_ids = [adopted_id(view.name, view.uid)]
        if names.ADOPTED in view.annotations:
            job_ids += [job_id for job_id in self._desk.adopted() if self._is_made_anew(view, job_id)]
        records = (record for job_id in job_ids if (record := self._desk.living(job_id)) is not None)
        runs = ((each.id, each.attempt) for each in records if each.alive and each.site is Site.CLUSTER)
        return next(runs, None)

    def _goes_there(self, job_id: str, namespace: str) -> bool:
        """Whether the object of a submitted job is in this namespace, for all that is known."""
        try:
            return self._submitted_to(job_id) == namespace
        except LookupError:
            return True

    def _read_namespace(self, job_id: str) -> str:
        """Where the object of a submitted job goes.

        Raises:
            LookupError: the store has no such job, or not yet.
        """
        workload = self._desk.workload(job_id)
        if workload is None:
            raise LookupError(job_id)
        return namespace_of(workload, self._namespace)

    def _is_made_anew(self, view: JobView | PodView, job_id: str) -> bool:
        workload = self._desk.workload(job_id)
        if workload is None:
            return True  # nothing is known of it, and nothing is done about it
        known, kind = workload.adopted, "Job" if isinstance(view, JobView) else "Pod"
        return known is not None and (known.kind, known.namespace, known.name) == (kind, *view.key)


def _attempt_of(name: str, job_id: str) -> int | None:
    """The attempt in the name of a submitted job's object; None if it has none of this job."""
    attempt = name.rpartition("-")[2]
    if not _ATTEMPT.fullmatch(attempt) or name != object_name(job_id, int(attempt)):
        return None
    return int(attempt)
