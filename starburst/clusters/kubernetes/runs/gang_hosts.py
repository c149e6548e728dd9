"""Writes on the pods of a gang the addresses of all of them, by rank, once each has one.

The kubelet shows the annotation as a file in the pod (`manifest.HOSTS_FILE`), soon after it changes.
"""

from __future__ import annotations

import asyncio

import structlog

from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.run_object import RunObject
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import JobView, PodView
from starburst.kube.resources import PODS, Object

log = structlog.get_logger()

#: Wall seconds between tries when the server does not take it.
PAUSE_S = 2.0


class GangHosts:
    """The addresses of the gangs of one scheduler."""

    def __init__(self, api: Api, registry: RunRegistry) -> None:
        self._api = api
        self._registry = registry
        self._asked: dict[RunKey, None] = {}
        self._wake = asyncio.Event()

    def pod_changed(self, pod: PodView) -> None:
        """A pod is there or has changed; those of gangs are made with an empty list."""
        key = self._registry.run_of(pod) if names.HOSTS in pod.annotations and pod.address else None
        if key is not None:
            self._ask(key)

    def _ask(self, key: RunKey) -> None:
        self._asked[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked, self._asked = self._asked, {}
            for key in asked:
                run = self._registry.get(key)
                try:
                    if run is not None and not run.gone:
                        await self._write(run)
                except (ApiError, ApiUnreachableError) as error:
                    log.warning("hosts-not-written", job=key[0], error=str(error))
                    asyncio.get_running_loop().call_later(PAUSE_S, self._ask, key)

    async def _write(self, run: RunObject) -> None:
        found = {
            rank: pod
            for pod in run.pods.values()
            if pod.uid not in run.earlier and pod.phase != "Failed" and pod.address
            if (rank := pod.annotations.get(names.RANK, "")).isdecimal()
        }
        size = run.view.parallelism if isinstance(run.view, JobView) else 1
        ranks = [str(rank) for rank in range(size)]
        if not found.keys() >= set(ranks):
            return  # the pods that are missing bring us back
        hosts = "".join(f"{found[rank].address}\n" for rank in ranks)
        for pod in found.values():
            if not pod.over and pod.annotations.get(names.HOSTS) != hosts:
                body: Object = {"metadata": {"uid": pod.uid, "annotations": {names.HOSTS: hosts}}}
                await self._patch(pod, body)

    async def _patch(self, pod: PodView, body: Object) -> None:
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, body)
        except ApiError as error:
            if not error.absent and error.status != 409:  # else it is gone, or another one of its name
                raise
