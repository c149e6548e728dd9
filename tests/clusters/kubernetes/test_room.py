"""What nodes have for us: allocatable less what the pods of others ask for, whatever happened in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from starburst.clusters.kubernetes.node_capacity import NodeCapacity
from starburst.domain.constraints import Taint
from starburst.domain.node import Node
from starburst.domain.resources import HOST_PORT, MILLI, Resources
from starburst.kube.objects import NodeView, PodView, resources
from tests.clusters.kubernetes.views import a_node, a_pod, running, succeeded

MIB = 2**20


def counted(ours: Set[str]) -> Callable[[PodView], Resources | None]:
    """What the core counts for pods of these names: all that they ask for."""
    return lambda pod: resources(pod.requests, up=True) if pod.name in ours else None


def room(*nodes: NodeView, ours: frozenset[str] = frozenset()) -> NodeCapacity:
    made = NodeCapacity(counted(ours))
    for node in nodes:
        made.node_changed(None, node)
    return made


def cpus(room: NodeCapacity) -> dict[str, float]:
    return {node.name: node.capacity.cpu_milli / MILLI for node in room.nodes()}


def test_an_empty_node_has_what_is_allocatable() -> None:
    view = replace(
        a_node("n0", **{"nvidia.com/gpu": 4}), labels={"zone": "a", "nvidia.com/gpu.product": "T4"}
    )
    (node,) = room(replace(view, taints=(Taint("k", "v", "NoSchedule"),))).nodes()
    assert (node.capacity.gpus, node.capacity.cpu_milli, node.capacity.memory_mib) == (4, 8000, 8192)
    assert node.capacity.gpu_type
    assert ("zone", "a") in node.labels
    assert node.taints == (Taint("k", "v", "NoSchedule"),)
    assert node.schedulable


def test_pods_of_others_take_room_from_when_they_are_bound_until_they_are_over() -> None:
    r, pod = room(a_node()), a_pod()
    r.pod_changed(None, pod)
    assert cpus(r) == {"n0": 8}
    r.pod_changed(pod, running(pod))
    assert cpus(r) == {"n0": 7}
    r.pod_changed(running(pod), replace(running(pod), deleting=True))
    assert cpus(r) == {"n0": 7}, "it may still be alive"
    r.pod_changed(replace(running(pod), deleting=True), succeeded(running(pod)))
    assert cpus(r) == {"n0": 8}


def test_pods_of_ours_take_none_for_the_core_counts_them() -> None:
    r = room(a_node(), ours=frozenset({"p"}))
    r.pod_changed(None, running(a_pod()))
    assert cpus(r) == {"n0": 8}


def test_but_what_the_server_has_added_to_them_it_does_not() -> None:
    """A sidecar of a webhook, the overhead of a RuntimeClass, the defaults of a LimitRange."""
    gpu, disk = "nvidia.com/gpu", "ephemeral-storage"
    asked = {"cpu": 1500, "memory": 3 * MIB + 1, gpu: 1, disk: 7, "pods": 1}
    r = NodeCapacity(lambda _: Resources(1, 1000, 2, others=((disk, 7), (f"{HOST_PORT}TCP/80", 1))))
    r.node_changed(None, a_node(**{"memory": 100 * MIB, gpu: 4, disk: 100}))
    r.pod_changed(None, running(a_pod(requests=asked)))
    (node,) = r.nodes()
    assert node.capacity == Resources(4, 7500, 98, others=((disk, 100), ("pods", 10)))


def test_whose_a_pod_is_is_asked_again_when_told_to_look() -> None:
    ours: set[str] = set()
    r = NodeCapacity(counted(ours))
    r.node_changed(None, a_node())
    r.pod_changed(None, running(a_pod()))
    assert cpus(r) == {"n0": 7}
    ours.add("p")
    assert cpus(r) == {"n0": 7}, "nobody said that anything changed"
    r.look_again({"n0", "a machine of the cloud"})
    assert cpus(r) == {"n0": 8}


def test_nodes_take_no_more_when_they_are_cordoned_or_not_ready() -> None:
    fine = a_node()
    r = room(fine, replace(fine, name="n1", schedulable=False), replace(fine, name="n2", ready=False))
    assert [node.schedulable for node in r.nodes()] == [True, False, False]


def test_every_allocatable_is_capacity_by_its_name() -> None:
    r = room(a_node(**{"pods": 3, "ephemeral-storage": 100, "example.com/fpga": 2, "hugepages-2Mi": 0}))
    asked = {"pods": 1, "ephemeral-storage": 30, "example.com/fpga": 1}
    r.pod_changed(None, running(a_pod(requests=asked, host_ports=("TCP/80",))))
    (node,) = r.nodes()
    there = dict(node.capacity.others)
    assert (there["pods"], there["ephemeral-storage"], there["example.com/fpga"]) == (2, 70, 1)
    assert there[f"{HOST_PORT}TCP/80"] == 0, "taken by somebody else's pod"


def test_there_is_never_less_than_nothing() -> None:
    r = room(a_node())
    r.pod_changed(None, running(a_pod(requests={"cpu": 99_000, "memory": 2**40})))
    assert (cpus(r), r.nodes()[0].capacity.memory_mib) == ({"n0": 0}, 0)


NAMES = ("p0", "p1", "p2", "p3")
NODES = ("n0", "n1", "n2")
OURS = frozenset({"p0", "p1"})
events = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NODES), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("no node"), st.sampled_from(NODES), st.just(0), st.just(True)),
        st.tuples(st.just("pod"), st.sampled_from(NAMES), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("bound"), st.sampled_from(NAMES), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("over"), st.sampled_from(NAMES), st.just(0), st.booleans()),
        st.tuples(st.just("no pod"), st.sampled_from(NAMES), st.just(0), st.booleans()),
        st.tuples(st.just("look"), st.sampled_from(NAMES), st.just(0), st.booleans()),
    ),
    max_size=60,
)


class Model:
    """Nodes and pods as they are, and what follows from them directly."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.pods: dict[str, PodView] = {}

    def expected(self) -> list[tuple[str, int, bool]]:
        taken: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for pod in self.pods.values():
            if pod.node and not pod.over:
                count[pod.node] += 1
                taken[pod.node] += 0 if pod.name in OURS else pod.requests["cpu"]
        return [
            (name, max(0, view.allocatable["cpu"] - taken[name]), count[name] < view.allocatable["pods"])
            for name, view in sorted(self.nodes.items())
        ]


def apply(model: Model, r: NodeCapacity, kind: str, name: str, amount: int, *, look: bool) -> None:
    """One event of the watches, of those that can be."""
    if kind == "look":
        r.look_again(set(NODES))
    elif kind in ("node", "no node"):
        old = model.nodes.pop(name, None)
        if kind == "node":
            model.nodes[name] = a_node(name, cpu=1000 * amount, pods=2)
        if old is not None or kind == "node":
            r.node_changed(old, model.nodes.get(name))
    else:
        was = model.pods.pop(name, None)
        new = _next(kind, name, amount, was)
        if new is not None:
            model.pods[name] = new
        if was is not None or new is not None:
            r.pod_changed(was, new)
    if look:
        r.nodes()


def _next(kind: str, name: str, amount: int, was: PodView | None) -> PodView | None:
    if kind == "no pod":
        return None
    if kind == "bound" and was is not None and not was.node:
        return running(was, NODES[amount])
    if kind == "over" and was is not None:
        return succeeded(was)
    if was is not None:
        return replace(was, message=f"{amount}")
    return a_pod(name, requests={"cpu": 1000 * amount, "pods": 1})


@given(events)
def test_it_equals_a_direct_count_after_any_events(told: list[tuple[str, str, int, bool]]) -> None:
    model, r = Model(), room(ours=OURS)
    for kind, name, amount, look in told:
        apply(model, r, kind, name, amount, look=look)
    found: tuple[Node, ...] = r.nodes()
    assert [(n.name, n.capacity.cpu_milli, n.schedulable) for n in found] == model.expected()
    assert r.nodes() == found


@given(events)
def test_nothing_is_remembered_of_what_is_gone(told: list[tuple[str, str, int, bool]]) -> None:
    model, r = Model(), room(ours=OURS)
    for kind, name, amount, look in told:
        apply(model, r, kind, name, amount, look=look)
    for pod in model.pods.values():
        r.pod_changed(pod, None)
    for node in model.nodes.values():
        r.node_changed(node, None)
    assert r.nodes() == ()
    assert (r._views, r._pods, r._nodes, r._stale) == ({}, {}, {}, set())
