"""Tells a bare Pod that its user deleted from one that the cluster took away.

From Kubernetes 1.26 on the server marks what it evicts (condition DisruptionTarget). Before that, and for
what is deleted without the mark, the events of the Pod and the state of its node decide: a Pod that goes from
a node which is cordoned, not Ready, gone or has a taint that the Pod does not tolerate was not cancelled.

Of a Pod that went while no Starburst watched, events tell (servers keep them for an hour): one that was ended
then, by whomever, goes back into the queue, since its deletion may have been an eviction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from starburst.clusters.kubernetes.runs.complaints import answered, events_about, events_named, last_at
from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.clusters.kubernetes.runs.taken_back import end_noted
from starburst.core.model.events import RunEnd, RunEnded
from starburst.kube.api import Api
from starburst.kube.objects import NodeView, PodView, read_node
from starburst.kube.recorder import reference_to
from starburst.kube.resources import NODES
from starburst.runs.ports import Report

#: Wall seconds between a deletion and the look at its cause: events are written after what they tell of.
SETTLE_S = 1.0
#: Pods that are asked about at a time, of those that went while no Starburst watched.
AT_ONCE = 16
#: Reasons of events by which schedulers and controllers tell of an eviction.
EVICTED = (
    *("Preempted", "TaintManagerEviction", "NodeControllerEviction"),
    *("Evicted", "Descheduled", "ScaleDown"),
)
#: Reasons of a node's events, of troubles in which its pods are taken away.
OUT = ("NodeNotReady", "NodeNotSchedulable", "RemovingNode", "DeletingNode", "Rebooted", "Shutdown")
#: The kubelet's, when a container begins, and when it ends one because its Pod is deleted.
STARTED, KILLING = "Started", "Killing"
UNKNOWN = "its Pod was deleted while no Starburst watched, and nothing says by whom"
#: Where events of nodes are.
NODE_NAMESPACE = "default"


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

    def __init__(self, api: Api, judged: Callable[[PodView, str], None], report: Report) -> None:
        self._api = api
        self._judged = judged
        self._report = report
        self._queue: asyncio.Queue[tuple[float, RunKey, PodView]] = asyncio.Queue()
        self._turns = asyncio.Semaphore(AT_ONCE)

    def judge(self, key: RunKey, pod: PodView) -> None:
        """A Pod that ran was deleted, or is being deleted, and not by Starburst."""
        self._queue.put_nowait((asyncio.get_running_loop().time() + SETTLE_S, key, pod))

    async def run(self) -> None:
        """Judge until cancelled."""
        while True:
            due, key, pod = await self._queue.get()
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            self._judged(pod, pod.disruption or await answered(key, partial(self._asked, pod), self._report))

    async def end_of_gone(
        self, key: RunKey, namespace: str, name: str, nodes: Iterable[str]
    ) -> RunEnded | None:
        """The end of a run whose Pod went while no Starburst watched, if its user did not delete that.

        None: no event tells of its end. `nodes`: where the run was.
        """

        async def ask() -> RunEnded | None:
            async with self._turns:
                return await self._told(key, namespace, name, nodes)

        return await answered(key, ask, self._report)

    async def _told(self, key: RunKey, namespace: str, name: str, nodes: Iterable[str]) -> RunEnded | None:
        events = await events_named(self._api, namespace, "Pod", name)
        noted = end_noted(key, events)
        if noted is not None:
            return noted
        began = max((last_at(event) for event in events if event.get("reason") == STARTED), default=0.0)
        for node in nodes:
            events += await events_named(self._api, NODE_NAMESPACE, "Node", node)
        since = [event for event in events if last_at(event) >= began]
        for event in since:
            if event.get("reason") in (*EVICTED, *OUT):
                why = f"{event['reason']}: {event.get('message', '')}"
                return RunEnded(*key, RunEnd.DISPLACED, message=why)
        if any(event.get("reason") == KILLING for event in since):
            return RunEnded(*key, RunEnd.DISPLACED, message=UNKNOWN)
        return None

    async def _asked(self, pod: PodView) -> str:
        for event in await events_about(self._api, reference_to(pod)):
            if event.get("reason") in EVICTED:
                return f"{event['reason']}: {event.get('message', '')}"
        # Listed and not watched: a drain cordons first, which an own watch of nodes may tell of later.
        listed = await self._api.list(NODES, fields=f"metadata.name={pod.node}")
        node = next((read_node(item) for item in listed), None)
        return why_out(pod.node, node, pod)
