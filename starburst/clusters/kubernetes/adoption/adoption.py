"""Adoption: Jobs and Pods that users apply with a queue's label become jobs of that queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from starburst.aio import first_of
from starburst.clusters.kubernetes.adoption.found_objects import FoundObjects, ObjectText, text_of
from starburst.clusters.kubernetes.adoption.grouped_submissions import GroupedSubmissions
from starburst.clusters.kubernetes.adoption.holds import why_kept
from starburst.clusters.kubernetes.adoption.offload_rights import OffloadRights
from starburst.clusters.kubernetes.options import ClusterOptions
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.domain.job import Submission
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import JobView, PodView, is_copy, resource_of
from starburst.kube.recorder import Recorder, reference_to
from starburst.kube.resources import Object
from starburst.kube.work_queue import WorkQueue
from starburst.runs.ports import AdoptionPort, QueueFullError

log = structlog.get_logger()

#: Wall seconds between tries of one object when the server does not answer.
PAUSE_S = 2.0
#: The same if the queue's quota is full or the store refuses the job; and if the account has no rights in the
#: namespace.
LONG_PAUSE_S, DENIED_PAUSE_S = 30.0, 60.0
#: Objects that are adopted at a time: most of them wait for the server or the disk.
WORKERS = 64
#: Tries to mark an object that others change meanwhile.
MARK_TRIES = 5


class Adoption:
    """Hands in the jobs of objects that were found, then marks the objects. Both can be repeated: ids come
    from uids.

    `found` is called with each object before its job is handed in, `lost` with the job of an object that
    another Starburst marked first; `rights` knows whether the job may leave for a cloud.
    """

    def __init__(
        self,
        api: Api,
        desk: AdoptionPort,
        *,
        recorder: Recorder,
        found: Callable[[str, JobView | PodView], None],
        lost: Callable[[str], None],
        rights: OffloadRights,
        options: ClusterOptions,
    ) -> None:
        self._api = api
        self._desk = desk
        self._submissions = GroupedSubmissions(desk)
        self._recorder = recorder
        self._found = found
        self._lost = lost
        self.rights = rights
        self._options = options
        #: What the watches brought of objects that wait to be taken in.
        self.objects = FoundObjects()
        self._views: dict[str, JobView | PodView] = {}
        self._refused: dict[str, str] = {}
        #: Objects whose jobs were handed in, and that may not be marked yet.
        self._handed_in: set[str] = set()
        self._queue = WorkQueue()

    def uids(self) -> set[str]:
        """The uids of all objects with a queue's label."""
        return set(self._views)

    def is_taken(self, view: JobView | PodView) -> bool:
        """Whether there is a job for an object, which may not be marked yet."""
        return names.ADOPTED in view.annotations or view.uid in self._handed_in

    def changed(self, old: JobView | PodView | None, new: JobView | PodView | None) -> None:
        """An event of the watches, for an object with a queue's label."""
        if new is None:
            if old is not None:
                self._views.pop(old.uid, None)
                self._refused.pop(old.uid, None)
                self._handed_in.discard(old.uid)
                self.objects.forget(old.uid)
            return
        self._views[new.uid] = new
        if names.ADOPTED in new.annotations:
            self._handed_in.discard(new.uid)
        if self._waits(new):
            self._queue.add(new.uid)
        else:
            self.objects.forget(new.uid)

    def _waits(self, view: JobView | PodView) -> bool:
        """Whether an object has not been adopted, or only by what the store no longer knows."""
        return _may_wait(view) and (names.JOB not in view.labels or self._is_forgotten(view))

    def _is_forgotten(self, view: JobView | PodView) -> bool:
        """Whether an object is marked as ours and has no place, and there was never a job of it.

        So it is where the store was put back to a backup of before its adoption.
        """
        ours = view.labels.get(names.CONTROLLER) == self._options.controller
        if not ours or names.ADOPTED not in view.annotations or view.annotations.get(names.NODES):
            return False
        job_ids = {view.labels[names.JOB], adopted_id(view.name, view.uid)}
        return not any(map(self._desk.knows, job_ids))

    async def run(self) -> None:
        """Adopt objects, some at a time, until cancelled."""
        workers = {f"adoption {number}": self._work() for number in range(WORKERS)}
        await first_of({**workers, "submissions": self._submissions.run()})

    async def _work(self) -> None:
        while True:
            uid = await self._queue.take()
            try:
                view = self._views.get(uid)
                if view is not None and self._waits(view):
                    await self._try(view)
            finally:
                self._queue.done(uid)

    async def _try(self, view: JobView | PodView) -> None:
        """Adopt one object; whatever is wrong with it is its own trouble."""
        try:
            await self._adopt(view)
        except (ApiError, ApiUnreachableError) as error:
            log.warning("adoption-failed", object=f"{view.namespace}/{view.name}", error=str(error))
            denied = isinstance(error, ApiError) and error.status == 403
            self._later(view.uid, DENIED_PAUSE_S if denied else PAUSE_S)
        except QueueFullError as error:
            self._put_off(view, str(error))
        except Exception:
            log.exception("unreadable", object=f"{view.namespace}/{view.name}")
            self._put_off(view, "Starburst cannot take it in; its log says why")

    def _put_off(self, view: JobView | PodView, why: str) -> None:
        self._handed_in.discard(view.uid)
        self._refuse(view, why)
        self._later(view.uid, LONG_PAUSE_S)

    def _later(self, uid: str, pause_s: float) -> None:
        asyncio.get_running_loop().call_later(pause_s, self._queue.add, uid)

    async def _adopt(self, view: JobView | PodView) -> None:
        why_not = _why_not(view)
        if why_not:
            self._refuse(view, why_not)
            return
        text = self.objects.get(view.uid) or await self._fetched(view)
        if text is None:
            return
        submission = await self._read(view, text)
        latest = self._views.get(view.uid)
        if isinstance(submission, str):
            self._refuse(view, submission)
            return
        if latest is None or latest.deleting:
            return
        confined = await self.rights.why_confined(submission)
        latest = self._views.get(view.uid)
        if latest is None or latest.deleting:  # the job is not there yet, so the watch did not cancel it
            return
        kept = "" if submission.job.hold else latest.annotations.get(names.KEPT) or why_kept(latest)
        hold = submission.job.hold or bool(kept)
        submission = replace(submission, job=replace(submission.job, confined=confined, hold=hold))
        self._found(submission.job.id, view)
        self._handed_in.add(view.uid)
        await self._submissions.submit(submission)
        await self._mark(view, text, submission.job.id, kept)

    async def _fetched(self, view: JobView | PodView) -> ObjectText | None:
        """The object as it is now; None if it is there no more, or has its marks, as the watch will tell.

        Marked again it would lose the time limit that the start of its run has given back to it.
        """
        there = await self._api.find(resource_of(view), view.namespace, view.name)
        if there is None or there["metadata"]["uid"] != view.uid:
            return None
        own = adopted_id(view.name, view.uid)
        labels = {} if is_copy(there["metadata"]) else there["metadata"].get("labels") or {}
        return None if labels.get(names.JOB) == own and self._desk.knows(own) else text_of(there)

    async def _read(self, view: JobView | PodView, text: ObjectText) -> Submission | str:
        """The job of an object, or why it cannot be taken in."""
        submission = await self._options.read(text.body, adopted_id(view.name, view.uid))
        if isinstance(submission, str):
            return submission
        queue = submission.job.queue
        if self._options.queues and queue not in self._options.queues:
            return f"there is no queue {queue!r}; the queues are {', '.join(self._options.queues)}"
        return submission

    async def _mark(self, view: JobView | PodView, text: ObjectText, job_id: str, kept: str) -> None:
        """Write on the version that was read whose the object is: of two Starbursts the second one loses."""
        resource, where = resource_of(view), f"{view.namespace}/{view.name}"
        for _ in range(MARK_TRIES):
            try:
                marks = self._marks(text, job_id, kept, view.uid)
                await self._api.patch(resource, view.namespace, view.name, marks)
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                log.info("adopted", job=job_id, object=where)
                return
            self.objects.forget(view.uid)
            there = await self._api.find(resource, view.namespace, view.name)
            if there is None or there["metadata"]["uid"] != view.uid:
                return  # the watch says so, too, and its job is cancelled
            labels = {} if is_copy(there["metadata"]) else there["metadata"].get("labels") or {}
            if names.JOB in labels:
                if labels.get(names.CONTROLLER) != self._options.controller:
                    log.warning("taken-by-another", object=where, controller=labels.get(names.CONTROLLER))
                    self._lost(job_id)
                return
            text = text_of(there)
        raise ApiError(409, "Conflict", f"{where} is changed faster than it can be marked")

    def _marks(self, text: ObjectText, job_id: str, kept: str, uid: str) -> Object:
        old: Object = dict.fromkeys(names.MARKS - {names.JOB, names.CONTROLLER}) if text.copied else {}
        metadata: Object = {
            "resourceVersion": text.version,
            "labels": {names.JOB: job_id, names.CONTROLLER: self._options.controller},
            "annotations": {
                **old,
                names.ADOPTED: "true",
                names.UID: uid,
                **({names.KEPT: kept} if kept else {}),
            },
        }
        spec: Object = {}
        if text.active_deadline_s is not None:
            # It would count the time in the queue; the run gets it back when it starts.
            metadata["annotations"][names.ACTIVE_DEADLINE] = str(text.active_deadline_s)
            spec["activeDeadlineSeconds"] = None
        if text.ttl_s is not None:
            # The Job might be gone before its end is stored; it gets this back afterwards.
            metadata["annotations"][names.TTL] = str(text.ttl_s)
            spec["ttlSecondsAfterFinished"] = None
        return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}

    def _refuse(self, view: JobView | PodView, why: str) -> None:
        """Write an event on the object, once per reason."""
        if self._refused.get(view.uid) == why:
            return
        self._refused[view.uid] = why
        log.warning("not-adopted", object=f"{view.namespace}/{view.name}", why=why)
        self._recorder.put(reference_to(view), "Warning", "NotQueued", why)


def _may_wait(view: JobView | PodView) -> bool:
    """Whether an object names a queue, and nothing of it runs."""
    asks = names.QUEUE in view.labels and view.scheduler == names.CHAKRA
    if not asks or view.deleting:
        return False
    if isinstance(view, JobView):
        return not view.end
    return view.owner is None and not view.node and not view.over


def _why_not(view: JobView | PodView) -> str:
    """Why an object of an operator is left to that; "" if it is not."""
    if not isinstance(view, JobView) or view.operator is None:
        return ""
    path = ".".join(("spec", *view.operator.suspend))
    released = f"its operator runs it; apply it with {path}: true, and Starburst runs it when its turn comes"
    return view.operator.refusal or (released if view.released else "")
