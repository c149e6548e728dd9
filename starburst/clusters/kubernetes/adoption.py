"""Adoption: Jobs and Pods that users apply with a queue's label become jobs of that queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import structlog

from starburst.aio import in_thread
from starburst.clusters.kubernetes.offload_rights import OffloadRights
from starburst.clusters.kubernetes.options import ClusterOptions
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.domain.job import Submission
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import JobView, PodView
from starburst.kube.recorder import Recorder, reference_to
from starburst.kube.resources import JOBS, PODS, Object
from starburst.runs.ports import AdoptionPort, QueueFullError

log = structlog.get_logger()

#: Wall seconds between tries of one object when the server does not answer.
PAUSE_S = 2.0
#: The same if the queue's quota is full or the store refuses the job; and if the account has no rights in the
#: namespace.
LONG_PAUSE_S, DENIED_PAUSE_S = 30.0, 60.0


class Adoption:
    """Hands in the jobs of objects that were found, then marks the objects. Both can be repeated: ids come
    from uids.

    `found` is called with each object before its job is handed in; `rights` knows whether the job may leave
    for a cloud.
    """

    def __init__(
        self,
        api: Api,
        desk: AdoptionPort,
        *,
        recorder: Recorder,
        found: Callable[[str, JobView | PodView], None],
        rights: OffloadRights,
        options: ClusterOptions,
    ) -> None:
        self._api = api
        self._desk = desk
        self._recorder = recorder
        self._found = found
        self._rights = rights
        self._options = options
        self._views: dict[str, JobView | PodView] = {}
        self._refused: dict[str, str] = {}
        #: Objects whose jobs were handed in, and that may not be marked yet.
        self._handed_in: set[str] = set()
        self._queue: asyncio.Queue[str] = asyncio.Queue()

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
            return
        self._views[new.uid] = new
        if names.ADOPTED in new.annotations:
            self._handed_in.discard(new.uid)
        if _waits_for_us(new):
            self._queue.put_nowait(new.uid)

    async def run(self) -> None:
        """Adopt objects, one after the other, until cancelled."""
        while True:
            uid = await self._queue.get()
            view = self._views.get(uid)
            if view is None or not _waits_for_us(view):
                continue
            try:
                await self._adopt(view)
            except (ApiError, ApiUnreachableError) as error:
                log.warning("adoption-failed", object=f"{view.namespace}/{view.name}", error=str(error))
                denied = isinstance(error, ApiError) and error.status == 403
                self._later(uid, DENIED_PAUSE_S if denied else PAUSE_S)
            except QueueFullError as error:
                self._put_off(view, str(error))
            except Exception:  # whatever is wrong is wrong with this object alone
                log.exception("unreadable", object=f"{view.namespace}/{view.name}")
                self._put_off(view, "Starburst cannot take it in; its log says why")

    def _put_off(self, view: JobView | PodView, why: str) -> None:
        self._handed_in.discard(view.uid)
        self._refuse(view, why)
        self._later(view.uid, LONG_PAUSE_S)

    def _later(self, uid: str, pause_s: float) -> None:
        asyncio.get_running_loop().call_later(pause_s, self._queue.put_nowait, uid)

    async def _adopt(self, view: JobView | PodView) -> None:
        resource = JOBS if isinstance(view, JobView) else PODS
        there = await self._api.find(resource, view.namespace, view.name)
        latest = self._views.get(view.uid)
        if there is None or there["metadata"]["uid"] != view.uid or latest is None or latest.deleting:
            return
        job_id = adopted_id(view.name, view.uid)
        submission = await self._options.read(there, job_id)
        if isinstance(submission, str):
            self._refuse(view, submission)
            return
        if self._options.queues and submission.job.queue not in self._options.queues:
            known = ", ".join(self._options.queues)
            self._refuse(view, f"there is no queue {submission.job.queue!r}; the queues are {known}")
            return
        confined = await self._rights.why_confined(submission)
        submission = replace(submission, job=replace(submission.job, confined=confined))
        self._found(job_id, view)
        self._handed_in.add(view.uid)
        await in_thread(partial(self._desk.submit, submission))  # it waits for the disk
        await self._api.patch(resource, view.namespace, view.name, self._mark(there, submission))
        log.info("adopted", job=job_id, object=f"{view.namespace}/{view.name}")

    def _mark(self, there: Object, submission: Submission) -> Object:
        metadata: Object = {
            "labels": {names.JOB: submission.job.id, names.CONTROLLER: self._options.controller},
            "annotations": {names.ADOPTED: "true"},
        }
        limit_s = there["spec"].get("activeDeadlineSeconds")
        if "template" not in there["spec"] or limit_s is None:
            return {"metadata": metadata}
        # It would count the time in the queue; the run gets it back when it starts, unless that was just now.
        metadata["resourceVersion"] = there["metadata"]["resourceVersion"]
        metadata["annotations"][names.ACTIVE_DEADLINE] = str(limit_s)
        return {"metadata": metadata, "spec": {"activeDeadlineSeconds": None}}

    def _refuse(self, view: JobView | PodView, why: str) -> None:
        """Write an event on the object, once per reason."""
        if self._refused.get(view.uid) == why:
            return
        self._refused[view.uid] = why
        log.warning("not-adopted", object=f"{view.namespace}/{view.name}", why=why)
        self._recorder.put(reference_to(view), "Warning", "NotQueued", why)


def _waits_for_us(view: JobView | PodView) -> bool:
    """Whether an object names a queue and has not been adopted."""
    asks = names.QUEUE in view.labels and view.scheduler == names.CHAKRA
    if not asks or names.JOB in view.labels or view.deleting:
        return False
    if isinstance(view, JobView):
        return not view.end and not view.suspended
    return view.owner is None and not view.node and not view.over
