"""A fake API server that lives: a Job controller, a Chakra and kubelets on top of it, in virtual time.

A pod says itself what becomes of it: the command of its first container ends with seconds and an exit code.
Semantics: the Job controller of Kubernetes 1.20 (parallelism 0 and deletion delete active pods; past
backoffLimit the rest is deleted and the Job Failed; a finished Job is left alone), suspend as from 1.22 on.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starburst.kube import names
from starburst.kube.api import STRATEGIC, Api
from starburst.kube.objects import is_copy
from starburst.kube.recorder import api_time
from starburst.kube.resources import JOBS, NODES, PODS, Resource
from tests.kube_unit.server import Asked, FakeServer, Watcher
from tests.kube_unit.store import Address, Object, RefusedError

T = TypeVar("T")

#: Virtual seconds: to begin, to end when told to, and after which a test is thought to hang.
BEGIN_S, END_S, LIMIT_S = 0.1, 1.0, 2000.0
#: Real seconds in which loopback delivers what was sent, and while a call waits for its answer, and virtual
#: ones that pass if there was nothing.
LOOPBACK_S, ANSWER_S, JUMP_S = 0.001, 2.0, 0.5
FINALIZER = "foregroundDeletion"


class World(FakeServer):
    """To be used as FakeServer is; `alive` until the end of the block."""

    def __init__(self, minor: str = "20") -> None:
        super().__init__(minor)
        #: Nodes that take no new pods.
        self.cordoned: set[str] = set()
        #: Nobody binds, nobody makes pods.
        self.chakra = self.controller = True
        #: What containers wait for instead of beginning: reason and message.
        self.waits_for: tuple[str, str] | None = None
        #: Of all nodes, epoch seconds.
        self.clock: Callable[[], float] = time.time
        #: What should never be: two pods of one rank that run.
        self.broken: list[str] = []
        #: Every pod that ever ran: owner or own name, attempt, node.
        self.ran: list[tuple[str, str, str]] = []
        self._under_way: set[tuple[object, ...]] = set()
        #: Resource versions of jobs that are over, by uid: nothing is to be done until they change.
        self._at_rest: dict[str, str] = {}
        self._queue: asyncio.Queue[Object | bytes | None] = asyncio.Queue()
        #: Pods by the uid of their owner, and the version of the store that they are of.
        self._owned: tuple[int, dict[str, list[Object]]] = -1, {}

    async def __aenter__(self) -> World:
        await super().__aenter__()
        for plural in (JOBS, PODS):
            self.watchers.add(Watcher(Address.of(plural.path()), "", self._queue))
        self._living = asyncio.create_task(self._live())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._living.cancel()
        with suppress(asyncio.CancelledError):
            await self._living
        await super().__aexit__(*error)

    def add_node(self, name: str, gpus: int = 4) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        self.add(NODES, {"metadata": {"name": name}, "spec": {}, "status": status})

    def nudge(self) -> None:
        """Look again: a switch was turned."""
        self._queue.put_nowait({})

    def is_watched(self, resource: Resource) -> bool:
        """Whether others than its own controllers watch."""
        return resource.plural in {one.within.plural for one in self.watchers if one.queue is not self._queue}

    def mute_watches(self, resource: Resource) -> None:
        """As `FakeServer`; its own controllers hear on."""
        super().mute_watches(resource)
        self.watchers.add(Watcher(Address.of(resource.path()), "", self._queue))

    def _called(self, asked: Asked) -> Object | bytes:
        """Conditions are merged by type, as a strategic merge patch does."""
        if asked.method == "PATCH" and asked.headers.get("Content-Type") == STRATEGIC:
            address = Address.of(asked.path)
            known = (self.store.get(address).get("status") or {}).get("conditions") or []
            new = asked.body["status"].get("conditions") or []
            kept = [found for found in known if found["type"] not in {each["type"] for each in new}]
            asked.body["status"]["conditions"] = [*kept, *new]
        return super()._called(asked)

    async def _live(self) -> None:
        while True:
            await self._queue.get()
            while not self._queue.empty():
                self._queue.get_nowait()
            for job in self.all(JOBS) if self.controller else ():
                if self._at_rest.get(job["metadata"]["uid"]) == job["metadata"]["resourceVersion"]:
                    continue
                if "managedBy" in job["spec"] and "deletionTimestamp" not in job["metadata"]:
                    continue  # another controller's
                with suppress(RefusedError):  # it changed under our hands: the change brings us back
                    self._keep_job(job)
            for pod in self.all(PODS):
                if not _over(pod) or "deletionTimestamp" in pod["metadata"]:
                    with suppress(RefusedError):
                        self._keep_pod(pod)

    # The Job controller.

    def pods_of(self, job: Object) -> list[Object]:
        version, owned = self._owned
        if version != self.store.version:
            owned = {}
            for pod in self.all(PODS):
                owned.setdefault(_owner(pod), []).append(pod)
            self._owned = self.store.version, owned
        return owned.get(job["metadata"]["uid"], [])

    def _keep_job(self, job: Object) -> None:
        metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
        if "deletionTimestamp" in metadata:
            for pod in self.pods_of(job):
                self._delete(pod)
            if not self.pods_of(job):
                self._change(JOBS, job, {"metadata": {"finalizers": None}})
            return
        if FINALIZER not in metadata.get("finalizers", ()):
            self._change(JOBS, job, {"metadata": {"finalizers": [FINALIZER]}})
            return
        if _condition(job, "Complete") or _condition(job, "Failed"):
            ttl_s = spec.get("ttlSecondsAfterFinished")
            if ttl_s is not None and ("ttl", metadata["uid"], ttl_s) not in self._under_way:
                self._under_way.add(("ttl", metadata["uid"], ttl_s))
                asyncio.get_running_loop().call_later(ttl_s, self._take_away, job, ttl_s)
            self._at_rest[metadata["uid"]] = metadata["resourceVersion"]
            return
        if "startTime" not in status:
            self._change(JOBS, job, {"status": {"startTime": metadata["creationTimestamp"]}})
            return
        counted = [pod for pod in self.pods_of(job) if "deletionTimestamp" not in pod["metadata"]]
        active = [pod for pod in counted if not _over(pod)]
        succeeded = sum(pod["status"]["phase"] == "Succeeded" for pod in counted)
        completions = spec.get("completions") or 1
        if sum(pod["status"]["phase"] == "Failed" for pod in counted) > spec.get("backoffLimit", 6):
            self._finish(job, active, "Failed", "BackoffLimitExceeded")
        elif succeeded >= completions:
            self._finish(job, active, "Complete", "")
        else:
            wanted = 0 if spec.get("suspend") else min(spec.get("parallelism", 1), completions - succeeded)
            for pod in active[wanted:]:
                self._delete(pod)
            for _ in range(wanted - len(active)):
                self._make_pod(job)

    def _finish(self, job: Object, active: list[Object], kind: str, reason: str) -> None:
        for pod in active:
            self._delete(pod)
        known = (job.get("status") or {}).get("conditions") or []
        condition = {"type": kind, "status": "True", "reason": reason, "message": "says the controller"}
        self._change(JOBS, job, {"status": {"conditions": [*known, condition]}})

    def _take_away(self, then: Object, ttl_s: int) -> None:
        """As the TTL controller does, with its pods, unless its time to live is another one by now."""
        namespace, name = then["metadata"]["namespace"], then["metadata"]["name"]
        with suppress(RefusedError):
            job = self.get(JOBS, namespace, name)
            if job["metadata"]["uid"] != then["metadata"]["uid"]:
                return
            if job["spec"].get("ttlSecondsAfterFinished") == ttl_s:
                for pod in self.pods_of(job):
                    self.remove(PODS, namespace, pod["metadata"]["name"])
                self._change(JOBS, job, {"metadata": {"finalizers": None}})
                self.remove(JOBS, namespace, name)

    def _make_pod(self, job: Object) -> None:
        metadata, template = job["metadata"], job["spec"]["template"]
        asked = template.get("metadata") or {}
        owner = {"kind": "Job", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
        made = {
            "namespace": metadata["namespace"],
            "generateName": f"{metadata['name']}-",
            "labels": {**(asked.get("labels") or {}), "job-name": metadata["name"]},
            "annotations": dict(asked.get("annotations") or {}),
            "ownerReferences": [owner],
        }
        self.add(PODS, {"metadata": made, "spec": template["spec"]})

    # Chakra and the kubelets.

    def _keep_pod(self, pod: Object) -> None:
        phase, node = pod["status"]["phase"], pod["spec"].get("nodeName")
        if "deletionTimestamp" in pod["metadata"]:
            grace_s = pod["metadata"]["deletionGracePeriodSeconds"]
            self._later(min(grace_s, END_S), "end", pod)
        elif pod["spec"].get("schedulingGates"):
            pass
        elif not node and self.chakra and pod["spec"].get("schedulerName") == names.CHAKRA:
            self._bind(pod)
        elif node and phase == "Pending":
            self._later(BEGIN_S, "begin", pod)
        elif phase == "Running":
            seconds, _ = self._fate(pod)
            self._later(seconds, "exit", pod)

    def _bind(self, pod: Object) -> None:
        if _over(pod):
            return
        job = next((job for job in self.all(JOBS) if job["metadata"]["uid"] == _owner(pod)), None)
        own = [item for item in (pod, job) if item is not None and not is_copy(item["metadata"])]
        texts = [_marks(item).get(names.NODES, "") for item in own]
        nodes = next((text.split(",") for text in texts if text), [])
        if not nodes:
            return
        mates = self.pods_of(job) if job is not None else []
        spec = job["spec"] if job is not None else {}
        by_turns = spec.get("completions", 1) > spec.get("parallelism", 1)
        free = ("Failed", "Succeeded") if by_turns else ("Failed",)
        taken = {_marks(mate).get(names.RANK) for mate in mates if mate["status"]["phase"] not in free}
        rank = next(rank for rank in range(len(nodes) + 1) if str(rank) not in taken)
        there = {node["metadata"]["name"] for node in self.all(NODES)} - self.cordoned
        if rank >= len(nodes) or nodes[rank] not in there or not self._has_room(nodes[rank], pod):
            why = {"type": "PodScheduled", "status": "False", "message": f"{nodes[0]} takes no pods"}
            if not pod["status"].get("conditions"):
                self._change(PODS, pod, {"status": {"conditions": [why]}})
            return
        metadata = {"name": pod["metadata"]["name"], "annotations": {names.RANK: str(rank)}}
        address = Address.of(PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"]))
        self._told(lambda: self.store.bind(address, {"metadata": metadata, "target": {"name": nodes[rank]}}))

    def _has_room(self, node: str, pod: Object) -> bool:
        """Whether a node has the GPUs of a pod, beside those of pods that may live there."""
        here = (one for one in self.all(PODS) if one["spec"].get("nodeName") == node and not _over(one))
        amounts = next(one["status"] for one in self.all(NODES) if one["metadata"]["name"] == node)
        return sum(map(gpus_of, here)) + gpus_of(pod) <= int(amounts["allocatable"].get("nvidia.com/gpu", 0))

    def _later(self, seconds: float, what: str, pod: Object) -> None:
        key = (what, pod["metadata"]["uid"])
        if key not in self._under_way:
            self._under_way.add(key)
            asyncio.get_running_loop().call_later(seconds, self._happen, what, pod)

    def _happen(self, what: str, then: Object) -> None:
        metadata = then["metadata"]
        try:
            pod = self.get(PODS, metadata["namespace"], metadata["name"])
        except RefusedError:
            return
        if pod["metadata"]["uid"] != metadata["uid"]:
            return
        if what == "end":
            self.remove(PODS, metadata["namespace"], metadata["name"])
        elif "deletionTimestamp" in pod["metadata"] or _over(pod):
            return
        elif what == "begin" and self.waits_for is not None:
            waiting = dict(zip(("reason", "message"), self.waits_for, strict=True))
            self._change(
                PODS,
                pod,
                {"status": {"containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]}},
            )
        elif what == "begin":
            self._begin(pod)
        else:
            self.end_pod(pod, self._fate(pod)[1])

    def _begin(self, pod: Object) -> None:
        whose, rank = _owner(pod) or pod["metadata"]["name"], _marks(pod).get(names.RANK)
        labels = pod["metadata"].get("labels") or {}
        for other in self.all(PODS):
            same = (other["metadata"].get("labels") or {}).get(names.JOB, 0) == labels.get(names.JOB, 1)
            same = same or (_owner(other) == whose)
            twin = same and _marks(other).get(names.RANK) == rank and other is not pod
            if twin and other["status"]["phase"] == "Running":
                self.broken.append(f"{other['metadata']['name']} runs beside {pod['metadata']['name']}")
        owners = pod["metadata"].get("ownerReferences") or [pod["metadata"]]
        self.ran.append(
            (owners[0]["name"], _marks(pod).get(names.ATTEMPT, ""), pod["spec"].get("nodeName", ""))
        )
        self._change(PODS, pod, {"status": {"phase": "Running"}})

    def end_pod(self, pod: Object, code: int, reason: str = "") -> None:
        """Its container exits; or, with a reason, the kubelet throws it out."""
        ended_at = api_time(self.clock())
        end = {"exitCode": code, "reason": "Error", "finishedAt": ended_at}
        ended = [{"name": "main", "state": {"terminated": end}}]
        status: Object = {"phase": "Failed" if code else "Succeeded", "containerStatuses": ended}
        if reason:
            status = {"phase": "Failed", "reason": reason, "message": "low on memory"}
        self._change(PODS, pod, {"status": status})

    def _fate(self, pod: Object) -> tuple[float, int]:
        *_, seconds, code = pod["spec"]["containers"][0]["command"]
        return float(seconds), int(code)

    # Writing.

    def _change(self, resource: Any, item: Object, change: Object) -> None:
        self.change(resource, item["metadata"]["namespace"], item["metadata"]["name"], change)

    def _delete(self, pod: Object) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            self.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])

    def delete(self, resource: Any, namespace: str, name: str) -> None:
        """As a user does."""
        self._told(lambda: self.store.delete(Address.of(resource.path(namespace, name)), {}))


def _owner(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences")
    return str(owners[0]["uid"]) if owners else ""


def gpus_of(pod: Object) -> int:
    """GPUs of all its containers."""
    limits = ((each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"])
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)


def _over(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _marks(item: Object) -> dict[str, str]:
    found: dict[str, str] = item["metadata"].get("annotations") or {}
    return found


def _condition(item: Object, kind: str) -> Object | None:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind and each["status"] == "True"), None)


# Virtual time.


class _Loop(asyncio.SelectorEventLoop):
    """Its time jumps to the next timer when nothing is to be done and nothing is on its way on loopback."""

    def __init__(self) -> None:
        self.now = 1000.0
        #: Calls that wait for an answer.
        self.calls = 0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        ready = super().select(ANSWER_S if self._loop.calls else LOOPBACK_S)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self._loop.now += min(timeout, JUMP_S)
        return ready


class PatientApi(Api):
    """Time stands still until a call is answered: one that the kernel delivers late meets no time limit."""

    async def _once(self, *args: Any, **more: Any) -> Object:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        loop.calls += 1
        try:
            return await super()._once(*args, **more)
        finally:
            loop.calls -= 1


def run(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run in virtual time; sockets of this process work."""
    loop = _Loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(main, LIMIT_S))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
