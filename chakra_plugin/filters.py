"""Which nodes can take a pod, and what is in the way on the others, in kube-scheduler's words.

Source of the words: Kubernetes 1.20, pkg/scheduler/framework/plugins, and for node affinity 1.22.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chakra_plugin.cache import NodeInfo
from chakra_plugin.demand import Demand
from starburst.domain.constraints import Taint
from starburst.kube.objects import NodeView

#: The taint that stands for a cordon; who tolerates it is let in.
CORDON = Taint("node.kubernetes.io/unschedulable")


def barred(demand: Demand, node: NodeView) -> str:
    """Why a node takes no pod of this demand however empty it is; "" if it does."""
    if demand.unsupported:
        return f"unsupported demand {', '.join(demand.unsupported)}"
    if not node.schedulable and not any(each.tolerates(CORDON) for each in demand.rules.tolerations):
        return "node(s) were unschedulable"
    if not node.ready:
        return "node(s) were not ready"
    labels = node.labels
    for key, value in demand.selector:
        if labels.get(key) != value:
            return "node(s) didn't match Pod's node affinity/selector"
    if demand.rules.affinity and not demand.rules.admits(node.name, labels, ()):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node.taints:
        if taint.repels and not any(each.tolerates(taint) for each in demand.rules.tolerations):
            return f"node(s) had taint {{{taint.key}: {taint.value}}}, that the pod didn't tolerate"
    return ""


def fits(demand: Demand, room: NodeInfo, uid: str = "", *, kept: bool = True) -> bool:
    """Whether there is room; `kept` says whether what is kept for pods other than `uid` is taken for used."""
    free = room.free_for(demand.priority, uid) if kept and room.kept else room.free
    for name, amount in demand.requests:
        if free.get(name, 0) < amount:
            return False
    return not demand.ports or not any(port in room.ports for port in demand.ports)


def admits(demand: Demand, room: NodeInfo, uid: str = "", *, kept: bool = True) -> bool:
    """Whether a node takes a pod of this demand now."""
    return room.view is not None and fits(demand, room, uid, kept=kept) and not barred(demand, room.view)


def lacking(demand: Demand, room: NodeInfo) -> list[str]:
    """What there is too little of; nothing if it fits."""
    free = room.free_for(demand.priority)
    found = [
        "Too many pods" if name == "pods" else f"Insufficient {name}"
        for name, amount in demand.requests
        if free.get(name, 0) < amount
    ]
    if any(port in room.ports for port in demand.ports):
        found.append("node(s) didn't have free ports for the requested pod ports")
    return found


def rejections(demand: Demand, room: NodeInfo) -> list[str]:
    """All that is in the way on a node, as kube-scheduler counts it; nothing if nothing is."""
    assert room.view is not None
    bar = barred(demand, room.view)
    return [bar] if bar else lacking(demand, room)


def unavailable(found: Iterable[list[str]]) -> str:
    """The message of a FailedScheduling event from what each node has against the pod."""
    nodes, counted = 0, Counter[str]()
    for reasons in found:
        nodes += 1
        counted.update(reasons)
    why = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return f"0/{nodes} nodes are available: {why or 'there are none'}."
