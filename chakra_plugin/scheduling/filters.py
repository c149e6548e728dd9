"""Which nodes a pod fits on, and why it does not fit on the others, in kube-scheduler's messages.

Source of the messages: Kubernetes 1.20, pkg/scheduler/framework/plugins, and for node affinity 1.22.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chakra_plugin.scheduling.cache import NodeInfo
from chakra_plugin.scheduling.demand import Demand
from starburst.domain.constraints import Taint
from starburst.kube.objects import NodeView
from translator.declared_features import undeclared

#: The taint of a cordoned node; pods that tolerate it may go there.
CORDON = Taint("node.kubernetes.io/unschedulable")


def barred(demand: Demand, node: NodeView) -> str:
    """Why a pod of this demand fits on the node not even if it is empty; "" if it does."""
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
        features = undeclared(demand.rules.affinity, labels)
        if features:
            return f"node(s) didn't declare the features {', '.join(features)}"
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node.taints:
        if taint.repels and not any(each.tolerates(taint) for each in demand.rules.tolerations):
            return f"node(s) had taint {{{taint.key}: {taint.value}}}, that the pod didn't tolerate"
    return demand.volumes.conflict(node.name, labels) if demand.volumes.rules else ""


def fits(demand: Demand, node_info: NodeInfo, uid: str = "", *, nominated: bool = True) -> bool:
    """Whether enough is free; `nominated`: nominations of pods other than `uid` count as used."""
    free = node_info.free_for(demand.priority, uid) if nominated and node_info.nominations else node_info.free
    for name, amount in demand.requests:
        if free.get(name, 0) < amount:
            return False
    return not demand.ports or not any(port in node_info.ports for port in demand.ports)


def admits(demand: Demand, node_info: NodeInfo, uid: str = "", *, nominated: bool = True) -> bool:
    """Whether a pod of this demand fits on the node now."""
    return (
        node_info.view is not None
        and fits(demand, node_info, uid, nominated=nominated)
        and not barred(demand, node_info.view)
    )


def lacking(demand: Demand, node_info: NodeInfo) -> list[str]:
    """The resources that are too scarce; empty if the pod fits."""
    free = node_info.free_for(demand.priority)
    found = [
        "Too many pods" if name == "pods" else f"Insufficient {name}"
        for name, amount in demand.requests
        if free.get(name, 0) < amount
    ]
    if any(port in node_info.ports for port in demand.ports):
        found.append("node(s) didn't have free ports for the requested pod ports")
    return found


def rejections(demand: Demand, node_info: NodeInfo) -> list[str]:
    """Every reason why a pod does not fit on a node, as kube-scheduler counts them; empty if it fits."""
    assert node_info.view is not None
    bar = barred(demand, node_info.view)
    return [bar] if bar else lacking(demand, node_info)


def unavailable(found: Iterable[list[str]]) -> str:
    """The message of a FailedScheduling event, from the reasons of each node."""
    nodes, counted = 0, Counter[str]()
    for reasons in found:
        nodes += 1
        counted.update(reasons)
    why = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return f"0/{nodes} nodes are available: {why or 'there are none'}."
