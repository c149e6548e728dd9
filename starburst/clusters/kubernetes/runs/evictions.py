"""Tells a bare Pod that its user deleted from one that the cluster took away.

From Kubernetes 1.26 on the server marks what it evicts (condition DisruptionTarget). Before that, and for
what is deleted without the mark, the events of the Pod and the state of its node decide: a Pod that goes from
a node which is cordoned, not Ready, gone or has a taint that the Pod does not tolerate was not cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from starburst.clusters.kubernetes.runs.complaints import events_about
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import NodeView, PodView, read_node
from starburst.kube.recorder import reference_to
from starburst.kube.resources import NODES

log = structlog.get_logger()

#: Wall seconds between a deletion and the look at its cause: events are written after what they tell of.
SETTLE_S = 1.0
#: Wall seconds between tries when the server does not answer.
PAUSE_S = 2.0
#: Reasons of events by which schedulers and controllers tell of an eviction.
EVICTED = ("Preempted", "TaintManagerEviction", "NodeControllerEviction", "Evicted")


def why_out(name: str, node: NodeView | None, pod: PodView | None = None) -> str:
    """Why a node keeps no pods, or not this `pod`; "" if it does."""
    if node is None:
        return f"the node {name} is gone"
    if not node.ready:
        return f"the node {name} does not answer"
    if not node.schedulable:
        return f"the node {name} is cordoned"
    if pod is None:
        return ""
    answers = pod.rules.tolerations
    evicting = (taint for taint in node.taints if taint.effect == "NoExecute")
    untolerated = (taint.key for taint in evicting if not any(each.tolerates(taint) for each in answers))
    return next((f"the node {name} has the taint {key}" for key in untolerated), "")


class Evictions:
    """Judges deletions one after the other; `judged` is called with each Pod and why it was taken, or ""."""

    def __init__(self, api: Api, judged: Callable[[PodView, str], None]) -> None:
        self._api = api
        self._judged = judged
        self._queue: asyncio.Queue[tuple[float, PodView]] = asyncio.Queue()

    def judge(self, pod: PodView) -> None:
        """A Pod that ran was deleted, or is being deleted, and not by Starburst."""
        self._queue.put_nowait((asyncio.get_running_loop().time() + SETTLE_S, pod))

    async def run(self) -> None:
        """Judge until cancelled."""
        while True:
            due, pod = await self._queue.get()
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            self._judged(pod, await self._why_taken(pod))

    async def _why_taken(self, pod: PodView) -> str:
        """As `_asked`, repeated until the server answers: without an answer nothing is decided."""
        while True:
            try:
                return pod.disruption or await self._asked(pod)
            except (ApiError, ApiUnreachableError) as error:
                log.warning("eviction-unknown", pod="/".join(pod.key), error=str(error))
            await asyncio.sleep(PAUSE_S)

    async def _asked(self, pod: PodView) -> str:
        for event in await events_about(self._api, reference_to(pod)):
            if event.get("reason") in EVICTED:
                return f"{event['reason']}: {event.get('message', '')}"
        # Listed and not watched: a drain cordons first, which an own watch of nodes may tell of later.
        listed = await self._api.list(NODES, fields=f"metadata.name={pod.node}")
        node = next((read_node(item) for item in listed), None)
        return why_out(pod.node, node, pod)
