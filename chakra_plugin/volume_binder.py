"""Has volumes bound to the claims of pods that have a node, as kube-scheduler's VolumeBinding does (PreBind).

A free volume is kept for its claim (`claimRef`); where one is to be made, the claim names the node
(`volume.kubernetes.io/selected-node`). The pod is bound once all its claims are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from typing import Protocol

import structlog

from chakra_plugin.scheduling.cycle import Bind
from starburst.aio import TaskSet
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import CLAIMS, VOLUMES, Object, Resource
from starburst.kube.volumes.cache import VolumeCache
from starburst.kube.volumes.demand import VolumeChoice
from starburst.kube.volumes.views import SELECTED_NODE

log = structlog.get_logger()

#: Seconds until a claim that is not bound gives the pod's place back (kube-scheduler's bindTimeoutSeconds).
LIMIT_S = 600.0
#: Seconds between looks at what the watches brought, and between tries while the server does not answer.
LOOK_S, PAUSE_S = 0.2, 2.0
#: The annotation of a volume whose claim a controller chose, not a user.
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class VolumeListener(Protocol):
    """Callbacks of the volume binder."""

    def leading(self) -> bool:
        """Whether this process may write at all."""

    def stands(self, bind: Bind) -> bool:
        """Whether the pod still waits for this binding."""

    def volumes_bound(self, bind: Bind) -> None:
        """All claims are bound: the pod can be."""

    def volumes_failed(self, bind: Bind, why: str) -> float | None:
        """They were not bound; returns the epoch second of the next try, None if it is given up."""


class VolumeBinder:
    """One task per pod whose claims are being bound."""

    def __init__(
        self,
        api: Api,
        cache: VolumeCache,
        listener: VolumeListener,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api = api
        self._cache = cache
        self._listener = listener
        self._clock = clock
        self._sleep = sleep
        self._tasks = TaskSet()
        self._count = count()

    def send(self, bind: Bind, choice: VolumeChoice) -> None:
        """Begin to have the claims of a pod bound."""
        self._tasks.ensure(next(self._count), partial(self._bind, bind, choice))

    async def close(self) -> None:
        """Stop waiting; what was written stays."""
        await self._tasks.cancel()

    async def until_failure(self) -> None:
        """Until one of the tasks fails with a bug."""
        await self._tasks.until_failure()

    async def _bind(self, bind: Bind, choice: VolumeChoice) -> None:
        while self._listener.leading():
            why = await self._once(bind, choice)
            if why is None:
                self._listener.volumes_bound(bind)
                return
            log.warning("volumes-not-bound", pod="/".join(bind.pod.key), node=bind.node, why=why)
            again_at = self._listener.volumes_failed(bind, why)
            if again_at is None:
                return
            await self._sleep(max(0.0, again_at - self._clock()))

    async def _once(self, bind: Bind, choice: VolumeChoice) -> str | None:
        """Write and wait. Returns why the claims were not bound; None if they are."""
        until = self._clock() + LIMIT_S
        for resource, namespace, name, body in self._writes(choice):
            why = await self._write(resource, namespace, name, body, until)
            if why:
                return why
        while self._clock() < until:
            stand = self._cache.why_unbound(choice)
            if stand != "":
                return stand
            if not (self._listener.leading() and self._listener.stands(bind)):
                return "the pod is not to go there any more"
            await self._sleep(LOOK_S)
        names = ", ".join(name for _, name in choice.claims)
        return f"claims were not bound within {LIMIT_S:g} s: {names}"

    def _writes(self, choice: VolumeChoice) -> Iterator[tuple[Resource, str, str, Object]]:
        for volume_name, key in choice.kept:
            claim, volume = self._cache.claims.get(key), self._cache.volume(volume_name)
            if claim is None or volume is None or volume.claim_uid == claim.uid:
                continue  # gone, which the wait finds out, or kept for it already
            reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": claim.uid}
            reference |= {"namespace": claim.namespace, "name": claim.name}
            metadata = {"resourceVersion": volume.version, "annotations": {BY_CONTROLLER: "yes"}}
            yield VOLUMES, "", volume_name, {"metadata": metadata, "spec": {"claimRef": reference}}
        for key in choice.made:
            found = self._cache.claims.get(key)
            if found is not None and found.selected_node != choice.node:
                annotations = {SELECTED_NODE: choice.node}
                yield CLAIMS, *key, {"metadata": {"uid": found.uid, "annotations": annotations}}

    async def _write(self, resource: Resource, namespace: str, name: str, body: Object, until: float) -> str:
        """Patch an object, again while the server does not answer. Returns why it was refused, or ""."""
        while self._listener.leading():
            try:
                await self._api.patch(resource, namespace, name, body)
                return ""
            except (ApiError, ApiUnreachableError) as error:
                log.warning("not-written", of=resource.plural, name=name, error=str(error))
                passing = isinstance(error, ApiUnreachableError) or error.status == 429 or error.status >= 500
                if not passing or self._clock() >= until:
                    return f"{resource.plural} {name} could not be written: {error}"
            await self._sleep(PAUSE_S)
        return "another replica leads now"
