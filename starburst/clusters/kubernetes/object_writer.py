"""Writes to the cluster for runs: their objects are created or marked, and ended."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import structlog

from starburst.aio import TaskSet
from starburst.clusters.kubernetes.adoption.holds import SUSPENDED, SUSPENDED_BY_USER, is_suspended_now
from starburst.clusters.kubernetes.logs import LogKeeper
from starburst.clusters.kubernetes.manifest import (
    is_managed,
    job_object,
    made_anew,
    namespace_of,
    object_name,
    placed,
    resumed,
    withdrawn,
)
from starburst.clusters.kubernetes.options import ClusterOptions
from starburst.clusters.kubernetes.refusals import is_final, is_full, words
from starburst.clusters.kubernetes.runs.fresh_looks import pods_of
from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.run_object import RunObject
from starburst.clusters.kubernetes.runs.taken_back import end_taken_back, note_taken_back
from starburst.clusters.kubernetes.submitter_rights import impersonation_of, not_entitled
from starburst.core.model.events import CancelRequested, RunEnd, RunEnded
from starburst.domain.job import Adopted
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError
from starburst.kube.features import Features
from starburst.kube.objects import JobView, PodView, read_job, read_pod
from starburst.kube.operator_kinds import resource_named
from starburst.kube.resources import JOBS, PODS, Object
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.ports import AdoptionPort, Report, Run

log = structlog.get_logger()


class ObjectWriter:
    """Writes of one scheduler. Each looks first at what is there, so it can be repeated.

    `follow` is called with the namespace of each Job that is about to be created.
    """

    def __init__(
        self,
        desk: AdoptionPort,
        registry: RunRegistry,
        options: ClusterOptions,
        report: Report,
        follow: Callable[[str], None],
    ) -> None:
        self._desk = desk
        self._registry = registry
        self._options = options
        self._tenancy = options.tenancy
        self._controller = options.controller
        self._report = report
        self._follow = follow
        self._keeping = TaskSet()
        #: Adopted jobs whose objects were deleted, to be made anew.
        self._cleared_jobs: set[str] = set()

    async def start(self, api: Api, features: Features, run: Run, why: str) -> None:
        """Create or mark the object of a run; `why` is the decision, in a sentence. See `RunSite.start`."""
        try:
            adopted = run.workload.adopted
            if adopted is None:
                await self._create(api, features, run, why)
            elif not is_managed(run.workload):
                await self._place(api, features, run, adopted, why)
            elif await self._is_there(api, adopted):
                await self._create(api, features, run, why)
            else:
                self._unwanted(run)
        except ApiError as error:
            if not is_final(error) and not is_full(error):
                raise
            end = RunEnd.REFUSED if is_final(error) else RunEnd.NOT_STARTED
            self._report(RunEnded(run.job.id, run.attempt, end, message=words(error)))

    async def _is_there(self, api: Api, adopted: Adopted) -> bool:
        """Whether the very Job that its user made is there, and stays."""
        try:
            there = await api.find(resource_named(adopted.kind), adopted.namespace, adopted.name)
        except ApiError as error:
            if error.status != 404:
                raise
            # This is no outage of the cluster.
            raise RuntimeError(f"the cluster does not tell of its {adopted.kind}: {error}") from error
        metadata = {} if there is None else there["metadata"]
        return metadata.get("uid") == adopted.uid and "deletionTimestamp" not in metadata

    async def _create(self, api: Api, features: Features, run: Run, why: str) -> None:
        seen = self._registry.get((run.job.id, run.attempt))
        if seen is not None and not seen.told_end:
            # It is there, or it ends, and its end would be taken for that of a second Job of its name. Only a
            # store that was put back to a backup asks for a run that ends.
            return self._tell_again(run)
        namespace = namespace_of(run.workload, self._tenancy.namespace)
        # Whoever makes a Job in a cluster may have there what it asks for.
        adopted = run.workload.adopted is not None
        why_not = "" if adopted else await not_entitled(api, self._tenancy, run, namespace)
        if why_not:
            message = f"its submitter may not have that in the cluster: {why_not}"
            self._report(RunEnded(run.job.id, run.attempt, RunEnd.REFUSED, message=message))
            return None
        body = job_object(
            run,
            namespace=namespace,
            controller=self._controller,
            decision=why,
            indexed=features.indexed,
            checkpoints=self._tenancy.checkpoints,
            reporting=self._options.reporting(run),
        )
        self._follow(namespace)
        try:
            await api.create(JOBS, namespace, body, impersonation=impersonation_of(run))
        except ApiError as error:
            # An answer that was lost may have been a yes: the quota is full of this very Job then.
            if error.reason != "AlreadyExists" and not is_full(error):
                raise
            there = await api.find(JOBS, namespace, body["metadata"]["name"])
            if there is None:
                raise
            if self._registry.key_of(read_job(there)) != (run.job.id, run.attempt):
                name = f"{namespace}/{body['metadata']['name']}"
                raise ApiError(422, "AlreadyExists", f"a Job {name} is there that is not ours") from None
            self._tell_again(run)
        return None

    def _tell_again(self, run: Run) -> None:
        for event in self._registry.again((run.job.id, run.attempt)):
            self._report(event)

    async def _place(self, api: Api, features: Features, run: Run, adopted: Adopted, why: str) -> None:
        """Let Chakra bind the pods of an adopted object; a withdrawn Job creates new ones."""
        resource = resource_named(adopted.kind)
        there = await api.find(resource, adopted.namespace, adopted.name)
        if there is not None and await self._cleared(api, run, _view(adopted.kind, there)):
            there = None
        elif there is None and not self._is_owed(run, adopted.kind):
            return await self._gone(api, run, adopted)
        if there is None:
            anew = made_anew(run, controller=self._controller, decision=why)
            await api.create(resource, adopted.namespace, anew)
            self._cleared_jobs.discard(run.job.id)
            return None
        if adopted.kind == "Pod" and "deletionTimestamp" in there["metadata"]:
            raise RuntimeError("it is being deleted")  # by whom is told once it is gone
        labels = there["metadata"].get("labels") or {}
        ours = {names.JOB: run.job.id, names.CONTROLLER: self._controller}
        if there["metadata"]["uid"] != adopted.uid and not ours.items() <= labels.items():
            return self._unwanted(run)
        if labels.get(names.CONTROLLER, self._controller) != self._controller:
            return self._unwanted(run)  # another Starburst was the first to mark it
        if is_suspended_now(_view(adopted.kind, there)):
            kept = {"metadata": {"uid": there["metadata"]["uid"], "annotations": {names.KEPT: SUSPENDED}}}
            await api.patch(resource, adopted.namespace, adopted.name, kept)
            held = RunEnded(run.job.id, run.attempt, RunEnd.SUSPENDED, message=SUSPENDED_BY_USER)
            return self._report(held)
        marks = {**placed(run, why), names.ADOPTED: "true", names.STOPPING: None, names.KEPT: None}
        body: Object = {"metadata": {"uid": there["metadata"]["uid"], "labels": ours, "annotations": marks}}
        if adopted.kind == "Job":
            limit_s = run.workload.time_limit_s
            body["spec"] = resumed(read_job(there), len(run.slots), limit_s, features, self._options.clock())
        try:
            marked = await api.patch(resource, adopted.namespace, adopted.name, body)
        except ApiError as error:
            if not error.absent and error.status != 409:
                raise
            # Asked again after a pause.
            raise RuntimeError("it was deleted or made anew meanwhile") from error
        self._registry.begins((run.job.id, run.attempt), _view(adopted.kind, marked))
        return None

    async def _gone(self, api: Api, run: Run, adopted: Adopted) -> None:
        """Report the end of a run whose object is gone: Starburst took it back, or its user deleted it."""
        key = run.job.id, run.attempt
        is_pod = adopted.kind == "Pod"
        end = await end_taken_back(api, key, adopted.namespace, adopted.name) if is_pod else None
        if end is None:
            self._unwanted(run)
        else:
            self._report(end)

    def _unwanted(self, run: Run) -> None:
        """Report the job as cancelled: its user deleted the object, and may have created another."""
        self._report(CancelRequested(run.job.id))
        self._report(RunEnded(run.job.id, run.attempt, RunEnd.STOPPED))

    def _is_owed(self, run: Run, kind: str) -> bool:
        """Whether an object that is not there is to be made anew: its site took it, or this process did.

        A process that was started in between does not know; then a Job that had a run counts as taken, since
        `ClusterWatcher` has cancelled those that were deleted meanwhile.
        """
        if run.attempt == 1:
            return False
        seen = any(key[0] == run.job.id for key in self._registry.known())
        return kind == "Pod" or run.job.id in self._cleared_jobs or not seen

    async def _cleared(self, api: Api, run: Run, view: JobView | PodView) -> bool:
        """Whether a Pod, or a Job that failed or never ran, was of an earlier run, and is deleted now."""
        key = self._registry.key_of(view)
        if key is None or key[0] != run.job.id or key[1] >= run.attempt:
            return False
        if isinstance(view, JobView):
            earlier = self._registry.get(key)
            if view.end != "Failed" and not (earlier is not None and earlier.void):
                return False
        elif not view.over:
            if not view.deleting and not view.node:
                return False  # it never got a place
            raise RuntimeError(f"run {key[1]} of {key[0]} is still ending")  # asked again after a pause
        self._cleared_jobs.add(run.job.id)
        resource = JOBS if isinstance(view, JobView) else PODS
        how = "Background" if isinstance(view, JobView) else ""
        await api.delete(resource, view.namespace, view.name, uid=view.uid, grace_s=0, propagation=how)
        if isinstance(view, JobView) and await api.find(JOBS, view.namespace, view.name) is not None:
            raise RuntimeError(f"the earlier Job of {key[0]} is still there")
        return True

    async def end(
        self, api: Api, features: Features, key: RunKey, how: RunEnd, grace_s: float, *, why: str = ""
    ) -> None:
        """End a run so that its end counts as `how`, with the message `why`; the first call decides both.

        A run that has ended by itself is left to the watch, which tells how. See `RunSite.stop`.

        Raises:
            RuntimeError: no watch has told of it, or of pods of it that are alive; it is to be ended again.
        """
        unit = self._registry.get(key)
        kind, namespace, name, adopted = self._object_of(key, unit)
        resource = resource_named(kind)
        there = await api.find(resource, namespace, name)
        view = None if there is None else _view(kind, there)
        active = unit.active if unit is not None else []
        if view is None or self._registry.key_of(view) != key:
            self._keep_logs(api, key, active)
            await self._end_strays(api, namespace, key, active, grace_s)
            return
        if _is_over(view):
            return
        if isinstance(view, JobView) and adopted:
            # It stays, so only its pods tell when it has ended.
            self._registry.listed(view.uid, await pods_of(api, view, there))
            active = self._registry.active_pods(view.uid)
        self._keep_logs(api, key, active)
        body: Object = withdrawn(features) if isinstance(view, JobView) and adopted else {}
        marks = _end_marks(view, key, how, why, adopted=adopted)
        body["metadata"] = {"annotations": marks, "uid": view.uid}
        try:
            await api.patch(resource, namespace, name, body)
        except ApiError as error:
            if not error.absent:  # a 409 is another object of its name: the next try sees it
                raise
            # Deleted between the read and the patch: what is left of the run are its pods.
            await self._end_strays(api, namespace, key, active, grace_s)
            return
        mark = marks.get(names.STOPPING) or view.annotations[names.STOPPING]
        self._registry.ending(key, view.uid, mark)
        if not adopted:
            await api.delete(JOBS, namespace, name, uid=view.uid, propagation="Foreground")
        if isinstance(view, PodView):
            active = [] if view.over else [view]
            if active and not view.deleting:
                await note_taken_back(api, view, key, mark, again=names.STOPPING not in marks)
        await self._delete(api, active, grace_s)
        self._require_told(view.uid)
        if self._registry.complete and self._registry.get(key) is None:
            # A list may come when nothing of it is there any more, and so never tell of its end.
            raise RuntimeError(f"no watch has told of run {key[1]} of {key[0]}, which is being ended")

    async def relabel(self, api: Api, key: RunKey) -> bool:
        """Whether the Job of a submitted run is there and stays; it gets its queue's label if it lacks it."""
        submission = self._desk.submission(key[0])
        _, namespace, name, adopted = self._object_of(key, None)
        there = None if submission is None or adopted else await api.find(JOBS, namespace, name)
        if there is None or submission is None or self._registry.key_of(read_job(there)) != key:
            return False
        metadata = there["metadata"]
        if "deletionTimestamp" in metadata:
            return False
        if names.QUEUE not in (metadata.get("labels") or {}):
            log.warning("label-put-back", object=f"{namespace}/{name}", label=names.QUEUE)
            labels = {names.QUEUE: submission.job.queue}
            await api.patch(JOBS, namespace, name, {"metadata": {"uid": metadata["uid"], "labels": labels}})
        return True

    async def clear(self, api: Api, pods: list[PodView]) -> None:
        """Delete pods that outlived their Job, with their own grace."""
        for pod in pods:
            await api.delete(PODS, pod.namespace, pod.name, uid=pod.uid)

    async def _delete(self, api: Api, pods: list[PodView], grace_s: float) -> None:
        """Delete pods, with a grace of at least 1 s: with 0 the server drops pods whose containers still run.

        For pods that are being deleted already it shortens the grace.
        """
        for pod in pods:
            grace = max(1, math.ceil(grace_s))
            await api.delete(PODS, pod.namespace, pod.name, uid=pod.uid, grace_s=grace)

    def object_of(self, key: RunKey) -> tuple[str, str, str]:
        """Kind, namespace and name of the object of a run of which nothing was seen."""
        return self._object_of(key, None)[:3]

    def _object_of(self, key: RunKey, seen: RunObject | None) -> tuple[str, str, str, bool]:
        """Kind, namespace and name of a run's object, if possible as `seen`, and whether a user made it."""
        if seen is not None:
            kind = "Job" if isinstance(seen.view, JobView) else "Pod"
            return kind, *seen.view.key, seen.view.name != object_name(*key)
        submission = self._desk.submission(key[0])
        workload = None if submission is None else submission.workload
        if workload is not None and workload.adopted is not None and not is_managed(workload):
            found = workload.adopted
            return found.kind, found.namespace, found.name, True
        default = self._tenancy.namespace
        namespace = default if workload is None else namespace_of(workload, default)
        return "Job", namespace, object_name(*key), False

    async def _end_strays(
        self, api: Api, namespace: str, key: RunKey, known: list[PodView], grace_s: float
    ) -> None:
        """The object of a run is gone: delete pods that it left behind."""
        job_id, attempt = key
        unit = self._registry.get(key)
        if unit is not None and isinstance(unit.view, JobView) and self._registry.is_ahead(unit.view.uid):
            self._registry.listed(unit.view.uid, await pods_of(api, unit.view, None))
            known = unit.active
        selector = f"{names.JOB}={job_id},{names.CONTROLLER}={self._controller}"
        listed = [read_pod(item) for item in await api.list(PODS, namespace, selector)]
        runs = self._registry
        strays = [pod for pod in listed if not pod.over and key in (runs.run_of(pod), runs.left_over(pod))]
        await self._delete(api, strays or known, grace_s)
        if strays:
            raise RuntimeError(f"{len(strays)} pods of {job_id} are still there")  # asked again after a pause
        if unit is not None:
            self._require_told(unit.view.uid)
        if not known:  # else the end is reported when they are gone
            self._report(RunEnded(job_id, attempt, RunEnd.STOPPED))

    def _require_told(self, uid: str) -> None:
        """Raise RuntimeError if pods live of which no watch has told: asked again, they are listed again."""
        if self._registry.is_ahead(uid):
            raise RuntimeError("pods are still there of which no watch has told")

    def _keep_logs(self, api: Api, key: RunKey, pods: list[PodView]) -> None:
        """Copy the logs of pods that are about to be deleted."""
        keeper = LogKeeper(api, self._options.logs)
        directory = AttemptDir.of(self._options.logs, *key).path
        for number, pod in enumerate(pods):
            if pod.node and not pod.deleting:
                rank = pod.annotations.get(names.RANK, str(number))
                path = directory / rank / "log"
                self._keeping.ensure(path, partial(keeper.keep, pod.namespace, pod.name, path))

    async def close(self) -> None:
        """Cancel copies of logs that are under way."""
        await self._keeping.cancel()


def _is_over(view: JobView | PodView) -> bool:
    """Whether it has ended by itself; one that is being deleted can be marked Failed for what it loses."""
    if isinstance(view, PodView):
        return view.over and not (view.phase == "Failed" and view.deleting)
    return view.end == "Complete" or (view.end == "Failed" and not view.deleting)


def _view(kind: str, there: Object) -> JobView | PodView:
    return read_job(there) if kind == "Job" else read_pod(there)


def _end_marks(
    view: JobView | PodView, key: RunKey, how: RunEnd, why: str, *, adopted: bool
) -> dict[str, str | None]:
    """The annotations of a run that is being ended; the first call decides how that counts.

    An adopted Job that its user suspended is noted as kept, unless its user has resumed it since.
    """
    begun = view.annotations.get(names.STOPPING, "")
    if not begun.startswith(f"{key[1]} "):
        kept = {names.KEPT: SUSPENDED} if how is RunEnd.SUSPENDED and adopted else {}
        return {names.NODES: "", names.STOPPING: f"{key[1]} {how.value} {why}".rstrip(), **kept}
    if isinstance(view, JobView) and not view.suspended:
        return {names.NODES: "", names.KEPT: None}
    return {names.NODES: ""}
