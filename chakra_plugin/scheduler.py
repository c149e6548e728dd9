"""The scheduler process: watches feed the state, cycles feed the binder, results of bindings come back."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any, Protocol

import structlog

from chakra_plugin.binder import WORKERS, Binder
from chakra_plugin.pod_events import NORMAL, WARNING, PodEvent, PodEventReporter
from chakra_plugin.scheduling.cycle import Bind, Preemption, SchedulerOptions
from chakra_plugin.scheduling.planner import Planner
from chakra_plugin.volume_binder import VolumeBinder
from starburst.aio import TaskSet, Wake, first_of
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import PodView, read_job, read_node, read_pod
from starburst.kube.reflector import Handler, Reflector, T
from starburst.kube.resources import CLAIMS, JOBS, NODES, PODS, STORAGE_CLASSES, VOLUMES, Object, Resource
from starburst.kube.volumes.lists import cluster_lists
from starburst.kube.volumes.views import read_claim

log = structlog.get_logger()

#: Bindings decided ahead of the binder: enough to keep it busy, and few enough that a new pod of high
#: priority does not wait behind many.
AHEAD = 4 * WORKERS
#: Wall seconds in which events gather before a cycle.
GATHER_S = 0.005
#: Seconds after the start in which claims, volumes and storage classes are listed before the first cycle.
VOLUMES_S = 10.0
#: How often a victim's deletion is tried, and wall seconds between.
EVICTION_TRIES, EVICTION_PAUSE_S = 5, 1.0


class SchedulerMetrics(Protocol):
    """Counters; `chakra_plugin.metrics.Metrics` implements them."""

    def scheduled(self, latency_s: float) -> None: ...
    def unschedulable(self) -> None: ...
    def bind_error(self) -> None: ...
    def preempted(self, count: int) -> None: ...
    def pending(self, count: int) -> None: ...
    def cycle_took(self, seconds: float) -> None: ...


class ChakraScheduler:
    """One term of the scheduler, from the first list to the loss of the Lease or the end of the process."""

    def __init__(
        self,
        api: Api,
        options: SchedulerOptions,
        metrics: SchedulerMetrics,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: random.Random | None = None,
    ) -> None:
        self.planner = Planner(options)
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._sleep = sleep
        self._draw = draw or random.Random()
        self._wake = Wake()
        self._reporter = PodEventReporter(
            api, options.scheduler, self.planner.state.queue, clock=clock, sleep=sleep
        )
        self._leading: Callable[[], bool] = lambda: True
        self._binder = Binder(api, self, clock=clock, sleep=sleep)
        self._volume_binder = VolumeBinder(api, self.planner.state.volumes, self, clock=clock, sleep=sleep)
        #: "" is all of them.
        self._job_namespaces = sorted(options.namespaces) or [""]
        self._unsynced = {("nodes", ""), ("pods", ""), *(("jobs", each) for each in self._job_namespaces)}
        volumes = self.planner.state.volumes
        volumes.unsynced |= {(VOLUMES.plural, ""), (STORAGE_CLASSES.plural, "")}
        volumes.unsynced |= {(CLAIMS.plural, each) for each in self._job_namespaces}
        self._volumes_by = 0.0
        self._evictions = TaskSet()
        self._count = count()

    async def run(self, still_leading: Callable[[], bool] = lambda: True) -> None:
        """Schedule until cancelled; nothing is bound while `still_leading` is false."""
        self._leading = still_leading
        self._volumes_by = self._clock() + VOLUMES_S
        planner, clock = self.planner, self._clock
        parts = {
            "watch nodes": self._watch(NODES, read_node, planner.state.node_changed),
            "watch pods": self._watch(
                PODS, read_relevant_pod, lambda old, new: planner.state.pod_changed(old, new, clock())
            ),
            **{
                f"watch jobs {namespace}": self._watch(
                    JOBS, read_job, lambda old, new: planner.state.job_changed(old, new, clock()), namespace
                )
                for namespace in self._job_namespaces
            },
            **self._volume_watches(),
            "volumes": self._volume_binder.until_failure(),
            "cycles": self._cycles(),
            "binder": self._binder.run(),
            "events": self._reporter.run(),
        }
        try:
            await first_of(parts)  # none ends by itself: until one fails or we are cancelled
        finally:
            await self._volume_binder.close()

    def _volume_watches(self) -> dict[str, Coroutine[Any, Any, None]]:
        volumes = self.planner.state.volumes
        return {
            **{
                f"watch {each.resource.plural}": self._watch(each.resource, each.read, each.changed)
                for each in cluster_lists(volumes)
            },
            **{
                f"watch claims {namespace}": self._watch(CLAIMS, read_claim, volumes.claim_changed, namespace)
                for namespace in self._job_namespaces
            },
        }

    async def _watch(
        self,
        resource: Resource,
        read: Callable[[Object], T | None],
        changed: Callable[[T | None, T | None], None],
        namespace: str = "",
    ) -> None:
        def told(old: T | None, new: T | None) -> None:
            changed(old, new)
            self._wake.ring()

        def synced() -> None:
            self._unsynced.discard((resource.plural, namespace))
            self.planner.state.volumes.synced((resource.plural, namespace))
            self._wake.ring()

        def refused(error: ApiError) -> None:
            """A namespace that went with its rights holds up its own pods only: their Jobs are not known."""
            if namespace and (resource.plural, namespace) in self._unsynced:
                log.warning("cannot-list", of=resource.plural, namespace=namespace, error=str(error))
                synced()

        handler = Handler(told, synced, refused)
        await Reflector(
            self._api, resource, read, handler, namespace=namespace, sleep=self._sleep, draw=self._draw
        ).run()

    async def _cycles(self) -> None:
        while True:
            await self._news()
            ahead = AHEAD - self._binder.outstanding
            if self._unsynced or self._volumes_due() or ahead < AHEAD // 2:
                continue  # its change wakes this loop
            self._cycle(ahead)
            if self.planner.state.queue.ready:
                self._wake.ring()  # the cycle reached its limit, or changed something for groups it had tried
            await self._sleep(GATHER_S)

    async def _news(self) -> None:
        """Wait until a cycle may find something to do."""
        at = self.planner.state.queue.next_wake()
        limit_s = math.inf if at is None else max(0.0, at - self._clock())
        await self._wake.wait(min(limit_s, self._volumes_due() or math.inf))

    def _volumes_due(self) -> float:
        """Seconds for which lists of claims and volumes are awaited; pods without any go on then."""
        left_s = self._volumes_by - self._clock() if self.planner.state.volumes.unsynced else 0.0
        return max(0.0, left_s)

    def _cycle(self, limit: int) -> None:
        began = time.perf_counter()
        cycle = self.planner.plan(self._clock(), limit)
        took_s = time.perf_counter() - began
        for bind in cycle.binds:
            if bind.volumes is None:
                self._binder.send(bind)
            else:
                self._volume_binder.send(bind, bind.volumes)
        for preemption in cycle.preemptions:
            self._evictions.ensure(next(self._count), partial(self._evict, preemption))
        for _ in range(cycle.failed):
            self._metrics.unschedulable()
        if cycle.binds or cycle.failed:
            self._metrics.cycle_took(took_s)
        self._metrics.pending(len(self.planner.state.queue.entries))
        self._reporter.look()

    # Results of bindings (see `BindingListener`).

    def bound(self, bind: Bind, node: str) -> None:
        """The pod is on this node."""
        self._wake.ring()
        if node != bind.node:
            log.warning("bound-by-another", pod="/".join(bind.pod.key), node=node, meant=bind.node)
            self.planner.state.found(bind, node)
            return
        self.planner.state.bound(bind)
        self._metrics.scheduled(self._clock() - bind.since)
        words = f"Successfully assigned {'/'.join(bind.pod.key)} to {node}"
        self._reporter.tell(PodEvent(bind.pod, NORMAL, "Scheduled", words))

    def refused(self, bind: Bind, *, lost: bool) -> float | None:
        """The pod was not bound."""
        self._wake.ring()
        self._metrics.bind_error()
        return self.planner.state.refused(bind, self._clock(), lost=lost)

    def stands(self, bind: Bind) -> bool:
        """Whether the pod still waits for this binding."""
        return self.planner.state.stands(bind)

    def volumes_bound(self, bind: Bind) -> None:
        """All claims of the pod are bound."""
        self._binder.send(bind)

    def volumes_failed(self, bind: Bind, why: str) -> float | None:
        """Claims of the pod were not bound."""
        if self.stands(bind):
            self._reporter.tell(PodEvent(bind.pod, WARNING, "FailedScheduling", why, condition=True))
        return self.refused(bind, lost=False)

    def unanswered(self) -> None:
        """A binding had no answer; it is tried again."""
        self._metrics.bind_error()

    def valid(self, bind: Bind) -> bool:
        """Whether a binding may still be sent."""
        return self.planner.state.valid(bind)

    def leading(self) -> bool:
        """Whether this process may bind at all."""
        return self._leading()

    # Preemption.

    async def _evict(self, preemption: Preemption) -> None:
        """Nominate the node, then delete the victims with their grace periods, as far as that goes."""
        pod = preemption.pod
        log.info("preempting", pod="/".join(pod.key), node=preemption.node, victims=len(preemption.victims))
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": preemption.node}}
        try:
            await self._api.patch(PODS, *pod.key, body, sub="status")
        except (ApiError, ApiUnreachableError) as error:
            log.warning("not-nominated", pod="/".join(pod.key), error=str(error))
        for victim in preemption.victims:
            if await self._delete(victim):
                self._metrics.preempted(1)
                words = f"Preempted by {'/'.join(pod.key)} on node {preemption.node}"
                self._reporter.tell(PodEvent(victim, NORMAL, "Preempted", words))
            else:
                self.planner.state.victim_spared(preemption, victim)
                self._wake.ring()
                return  # the others would end for nothing

    async def _delete(self, victim: PodView) -> bool:
        for left in reversed(range(EVICTION_TRIES)):
            if not self._leading():
                return False
            try:
                await self._api.delete(PODS, *victim.key, uid=victim.uid)
                return True  # or it was gone already
            except (ApiError, ApiUnreachableError) as error:
                log.warning("not-evicted", pod="/".join(victim.key), error=str(error))
                if isinstance(error, ApiError) and error.status < 500:
                    return False
            if left:
                await self._sleep(EVICTION_PAUSE_S)
        return False


def read_relevant_pod(item: Object) -> PodView | None:
    """Pods that use resources or wait for them, and succeeded ones that keep their rank; None for others."""
    phase = (item.get("status") or {}).get("phase")
    if phase == "Failed":
        return None
    if phase == "Succeeded" and names.RANK not in (item["metadata"].get("annotations") or {}):
        return None
    return read_pod(item)
