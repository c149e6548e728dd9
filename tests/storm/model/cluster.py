"""A Kubernetes in memory: API server, Job controller, Chakra and kubelets, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from starburst.app.wiring.kube_client import _refuse_unless_certain
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import JOBS, NODES, PODS, Object, Resource
from starburst.kube.transport import HttpRequest
from starburst.runs.fence import LeaderFence
from tests.clusters.kubernetes.world import World, _marks, _owner
from tests.kube_unit.server import Asked, Watcher, _enqueue
from tests.kube_unit.store import Address, RefusedError, copied
from tests.storm.loop import StormLoop, of_world
from tests.storm.model.marks import Marks
from tests.storm.weather import Weather

#: Of one call, virtual seconds.
CALL_S = (0.002, 0.4)
#: A process that is stopped before a call goes on when another one leads.
STOPPED_S = 600.0
MINOR = "31"


class OrderedSet(dict[Any, None]):
    """A set that is walked in the order of its additions, in every process."""

    def add(self, item: Any) -> None:
        """One more."""
        self[item] = None

    def discard(self, item: Any) -> None:
        """One less."""
        self.pop(item, None)


class ModelCluster(World):
    """What is so in the cluster; it lives on when a scheduler dies."""

    def __init__(self, weather: Weather, marks: Marks, seed: int) -> None:
        super().__init__(MINOR)
        self.watchers = OrderedSet()
        self.weather, self.marks = weather, marks
        self.draw = Random(f"{seed}/cluster")
        #: Until when nobody is answered.
        self.away_until = 0.0
        #: Nodes whose kubelet does not answer: their pods live, and nothing of them is told.
        self.silent: set[str] = set()
        self._kept: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Controllers and kubelets go on from now."""
        for plural in (JOBS, PODS):
            self.watchers.add(Watcher(Address.of(plural.path()), "", self._queue))
        self._kept.append(asyncio.create_task(self._live()))

    @property
    def is_away(self) -> bool:
        """Whether the API server does not answer."""
        return asyncio.get_running_loop().time() < self.away_until

    def go_away(self, seconds: float) -> None:
        """Nobody is answered for so long, and all streams break."""
        self.away_until = asyncio.get_running_loop().time() + seconds
        self.cut_watches()

    def node(self, name: str, gpus: int, *, ready: bool = True) -> Object:
        """What the API server says of a node."""
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}
        metadata = {"name": name, "labels": labels}
        status = {"allocatable": amounts, "conditions": [condition]}
        return {"metadata": metadata, "spec": {}, "status": status}

    def add_node(self, name: str, gpus: int = 4) -> None:
        """One more."""
        self.add(NODES, self.node(name, gpus))

    def pods_on(self, node: str) -> list[Object]:
        """What is bound there and not over."""
        ended = ("Succeeded", "Failed")
        return [
            pod
            for pod in self.all(PODS)
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] not in ended
        ]

    def evict(self, pod: Object) -> None:
        """As a drain does."""
        metadata = pod["metadata"]
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "evicted",
        }
        known = (pod.get("status") or {}).get("conditions") or []
        self.change(
            PODS, metadata["namespace"], metadata["name"], {"status": {"conditions": [*known, condition]}}
        )
        self.delete(PODS, metadata["namespace"], metadata["name"])

    def delete_at_once(self, namespace: str, name: str) -> None:
        """Its node is gone: nobody is asked."""
        self.remove(PODS, namespace, name)

    # Calls.

    async def serve(self, request: HttpRequest, fence: Callable[[], None] = lambda: None) -> Object:
        """Answer one call, or fail to. `fence` is asked at the last instant before a write.

        Raises:
            ApiError: refused.
            ApiUnreachableError: no answer; it may have been carried out.
        """
        line = f"{request.method} {request.path}"
        writes = request.method != "GET"
        await asyncio.sleep(self.draw.uniform(*CALL_S))
        weather = self.weather
        if self.is_away:
            raise ApiUnreachableError(f"{line}: connection refused", sent=False)
        if weather.strikes("api-refuses", line):
            raise ApiError(500, "InternalError", "as drawn")
        if weather.strikes("api-throttles", line):
            raise ApiError(429, "TooManyRequests", "as drawn", 1.0)
        if weather.strikes("api-not-reached", line):
            raise ApiUnreachableError(f"{line}: no connection", sent=False)
        if writes and weather.strikes("api-cut-before", line):
            raise ApiUnreachableError(f"{line}: cut off")
        if writes and weather.strikes("api-lands-later", line):
            after_s = weather.draw("api-lands-later").uniform(5.0, 60.0)
            fence()
            of_world(lambda: asyncio.get_running_loop().call_later(after_s, self._lands, request))
            raise ApiUnreachableError(f"{line}: cut off")
        if weather.strikes("api-never-answers", line):
            if writes and weather.draw("api-never-answers").random() < 0.5:
                fence()
                self._lands(request)
            await asyncio.sleep(request.timeout.total or 15.0)
            raise ApiUnreachableError(f"{line}: timed out")
        if weather.strikes("api-slow", line):
            await asyncio.sleep(weather.draw("api-slow").uniform(1, 14))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StormLoop)
        if writes:
            await loop.may_die(lambda: weather.strikes("crash-before-call", line))
            await loop.may_stop(lambda: weather.strikes("leader-stopped-before-call", line), STOPPED_S)
            fence()
        answer = self._asked(request)
        if writes:
            await loop.may_die(lambda: weather.strikes("crash-after-call", line))
        if writes and weather.strikes("api-answer-lost", line):
            raise ApiUnreachableError(f"{line}: cut off")
        return answer

    def _lands(self, request: HttpRequest) -> None:
        """A write takes effect, and nobody hears of that."""
        with suppress(ApiError):
            self._asked(request)

    def _asked(self, request: HttpRequest) -> Object:
        headers = {"Content-Type": request.content_type}
        body = None if request.body is None else json.loads(json.dumps(request.body))
        asked = Asked(request.method, request.path, dict(request.query or {}), body, headers)
        try:
            answer = of_world(lambda: self._told(lambda: self._called(asked)))
        except RefusedError as no:
            raise ApiError(no.status, no.reason, no.message, name=no.name) from None
        assert isinstance(answer, dict)
        found: Object = copied(answer)
        return found

    async def stream(
        self, resource: Resource, version: str, namespace: str, selector: str, last_s: int
    ) -> AsyncGenerator[Object, None]:
        """The events of a watch."""
        line = f"WATCH {resource.path(namespace)}"
        if self.is_away:
            raise ApiUnreachableError(f"{line}: connection refused", sent=False)
        if int(version) < self.store.compacted or self.weather.strikes("watch-expired", line):
            raise ApiError(410, "Expired", "too old resource version")
        watcher = Watcher(Address.of(resource.path(namespace)), selector, asyncio.Queue())
        since = int(version)
        if self.weather.strikes("watch-repeats", line):
            since = max(self.store.compacted, since - self.weather.draw("watch-repeats").randint(1, 60))
        of_world(lambda: self._follow(watcher, since, last_s))
        try:
            while (event := await watcher.queue.get()) is not None:
                if isinstance(event, bytes) or self.weather.strikes("watch-cut", line):
                    raise ApiUnreachableError(f"{line}: the stream broke")
                if self.weather.strikes("watch-late", line):
                    await asyncio.sleep(self.weather.draw("watch-late").uniform(1, 60))
                yield copied(event)
        finally:
            self.watchers.discard(watcher)

    def _follow(self, watcher: Watcher, since: int, last_s: int) -> None:
        for change in self.store.history:
            if change.version > since:
                _enqueue(watcher, change)
        self.watchers.add(watcher)
        asyncio.get_running_loop().call_later(last_s, self._ends, watcher)

    def _ends(self, watcher: Watcher) -> None:
        version = {"resourceVersion": str(self.store.version)}
        watcher.queue.put_nowait({"type": "BOOKMARK", "object": {"metadata": version}})
        watcher.queue.put_nowait(None)
        self.watchers.discard(watcher)  # who died never reads that

    # What runs.

    def _later(self, seconds: float, what: str, pod: Object) -> None:
        new = (what, pod["metadata"]["uid"]) not in self._under_way
        if new and what == "end" and self.weather.strikes("pod-lingers", pod["metadata"]["name"]):
            seconds = pod["metadata"]["deletionGracePeriodSeconds"]
        super()._later(seconds, what, pod)

    def _happen(self, what: str, then: Object) -> None:
        node = then["spec"].get("nodeName", "")
        if node in self.silent:  # it goes on there, and is told of later
            asyncio.get_running_loop().call_later(30.0, self._happen, what, then)
            return
        if what == "begin" and self.weather.strikes("image-never-there", then["metadata"]["name"]):
            why = {"reason": "ImagePullBackOff", "message": "no such image"}
            waiting = {"containerStatuses": [{"name": "main", "state": {"waiting": why}}]}
            self._change(PODS, then, {"status": waiting})
            return
        if what == "exit" and self.weather.strikes("oom-killed", then["metadata"]["name"]):
            with suppress(RefusedError):  # it is gone
                self.end_pod(then, 137)
            return
        super()._happen(what, then)

    def _begin(self, pod: Object) -> None:
        super()._begin(pod)
        key = self._key(pod)
        self.marks.settle()
        self.marks.begins(*key, pod["metadata"]["uid"], asyncio.get_running_loop().time())

    def _told(self, write: Any) -> Any:
        before = len(self.store.history)
        answer = super()._told(write)
        now = asyncio.get_running_loop().time()
        for change in self.store.history[before:]:
            if change.address.plural == "pods" and change.old is not None:
                self._mark_end(change.old, change.new, now)
        return answer

    def _mark_end(self, old: Object, new: Object | None, now: float) -> None:
        uid = old["metadata"]["uid"]
        phase = None if new is None else new["status"]["phase"]
        if phase in ("Succeeded", "Failed"):
            self.marks.ends(uid, now, 0 if phase == "Succeeded" else 1)
        elif new is None:
            self.marks.ends(uid, now, None)

    def _key(self, pod: Object) -> tuple[str, int, int]:
        owner = next((job for job in self.all(JOBS) if job["metadata"]["uid"] == _owner(pod)), pod)
        job = (owner["metadata"].get("labels") or {}).get(names.JOB, owner["metadata"]["name"])
        attempt = _marks(pod).get(names.ATTEMPT) or _marks(owner).get(names.ATTEMPT) or "0"
        return job, int(attempt), int(_marks(pod).get(names.RANK) or 0)


class ModelApi(Api):
    """A client of it. Retries, limits and fences are those of the real client."""

    def __init__(self, cluster: ModelCluster, fence: LeaderFence) -> None:
        self._cluster = cluster
        self._sleep = asyncio.sleep
        self.fence = partial(_refuse_unless_certain, fence)

    @property
    def host(self) -> str:
        """See `Api`."""
        return "http://model"

    async def close(self) -> None:
        """See `Api`."""

    async def watch(
        self, resource: Resource, version: str, *, namespace: str = "", selector: str = "", last_s: int = 300
    ) -> AsyncGenerator[Object, None]:
        """See `Api`."""
        async for event in self._cluster.stream(resource, version, namespace, selector, last_s):
            yield event

    async def log(
        self, namespace: str, pod: str, *, follow: bool = False, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[bytes]:
        """See `Api`: nobody writes anything here."""
        if self._cluster.is_away:
            raise ApiUnreachableError("log: connection refused", sent=False)
        yield b""

    async def _once(self, request: HttpRequest) -> Object:
        if request.method == "GET" or request.path.startswith("/apis/authorization.k8s.io/"):
            return await self._cluster.serve(request)
        self.fence()
        return await self._cluster.serve(request, lambda: self._asked_of(request))

    def _asked_of(self, request: HttpRequest) -> None:
        self.fence()
        self._cluster.marks.acts(f"{request.method} {request.path}")
