"""Which run an object is for: name and uid as the store has them, since anybody may write labels."""

from __future__ import annotations

import hashlib
import re

from starburst.clusters.kubernetes.manifest import object_name
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from starburst.runs.ports import AdoptionPort

RunKey = tuple[str, int]

#: Characters of a job id.
MAX_ID = 63
_ATTEMPT = re.compile("[0-9]{1,9}")


def adopted_id(name: str, uid: str) -> str:
    """The job id of an object: the same each time the object is found, and different for every object."""
    end = "-" + hashlib.sha256(uid.encode()).hexdigest()[:8]
    return name[: MAX_ID - len(end)].rstrip("-.").replace(".", "-") + end


class RunIdentity:
    """Reads the run from an object of one scheduler, `controller`, and doubts what its labels say."""

    def __init__(self, desk: AdoptionPort, controller: str) -> None:
        self._desk = desk
        self._controller = controller

    def is_ours(self, view: JobView | PodView) -> bool:
        """Whether an object is marked as belonging to this scheduler."""
        return view.labels.get(names.CONTROLLER) == self._controller

    def marked(self, view: JobView | PodView) -> RunKey | None:
        """The run that an object is marked with; None of those of others, and of objects that wait."""
        attempt = view.annotations.get(names.ATTEMPT, "")
        if not self.is_ours(view) or names.JOB not in view.labels:
            return None
        return (view.labels[names.JOB], int(attempt)) if _ATTEMPT.fullmatch(attempt) else None

    def of(self, view: JobView | PodView) -> RunKey | None:
        """The run that an object is for; None if it is for none, or only claims to be.

        The object of a submitted job has the attempt in its name. That of an adopted job has a name and a
        uid from which the job's id was made, unless Starburst made it anew, and no later attempt than the
        scheduler has begun.
        """
        if isinstance(view, JobView) and self.is_ours(view):
            job_id = view.labels.get(names.JOB, "")
            attempt = _attempt_of(view, job_id)
            if attempt is not None:
                return job_id, attempt
        key = self.marked(view)
        if key is None or names.ADOPTED not in view.annotations:
            return None
        if key[0] != adopted_id(view.name, view.uid) and not self._is_made_anew(view, key[0]):
            return None
        record = self._desk.record(key[0]) if key[1] > 1 else None
        return key if record is None else (key[0], min(key[1], record.attempt))

    def _is_made_anew(self, view: JobView | PodView, job_id: str) -> bool:
        submission = self._desk.submission(job_id)
        if submission is None:
            return True  # nothing is known of it, and nothing is done about it
        known, kind = submission.workload.adopted, "Job" if isinstance(view, JobView) else "Pod"
        return known is not None and (known.kind, known.namespace, known.name) == (kind, *view.key)


def _attempt_of(view: JobView, job_id: str) -> int | None:
    """The attempt in the name of a submitted job's object; None if it has none of this job."""
    attempt = view.name.rpartition("-")[2]
    if not _ATTEMPT.fullmatch(attempt) or view.name != object_name(job_id, int(attempt)):
        return None
    return int(attempt)
