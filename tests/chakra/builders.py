"""Nodes, pods and Jobs as the watches tell of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from chakra_plugin.scheduling.cache import Cache
from chakra_plugin.scheduling.cycle import Bind, SchedulerOptions
from chakra_plugin.scheduling.planner import Planner
from starburst.domain.constraints import Taint
from starburst.kube import names
from starburst.kube.objects import JobView, NodeView, Owner, PodView, read_job, read_node, read_pod

GPU = "nvidia.com/gpu"
GIB = 1024**3


def node(name: str = "n0", gpus: int = 8, **other: Any) -> NodeView:
    """A node; `cpus` and `pods` are what else it has."""
    amounts = {
        "cpu": 1000 * other.pop("cpus", 96),
        "memory": 768 * GIB,
        "pods": other.pop("pods", 110),
        **({GPU: gpus} if gpus else {}),
    }
    view = read_node({"metadata": {"name": name, "uid": f"uid-{name}"}})
    other = {"allocatable": amounts, "ready": True, **other}
    return dataclasses.replace(view, **other)


def pod(name: str = "p", gpus: int = 0, **other: Any) -> PodView:
    """A pod for Chakra; `cpus`, `gang` and `nodes` (the directive) are short for what they stand for."""
    amounts = {"cpu": 1000 * other.pop("cpus", 1), "memory": GIB, "pods": 1}
    annotations = dict(other.pop("annotations", {}))
    for key, value in ((names.GANG, other.pop("gang", None)), (names.NODES, other.pop("nodes", None))):
        if value is not None:
            annotations[key] = value
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "annotations": annotations}
    view = read_pod({"metadata": metadata, "spec": {"schedulerName": "chakra"}})
    other = {"requests": {**amounts, **({GPU: gpus} if gpus else {})}, **other}
    return dataclasses.replace(view, **other)


def job(name: str = "j", **other: Any) -> JobView:
    """A Job; `nodes` is the directive."""
    nodes = other.pop("nodes", None)
    annotations = {} if nodes is None else {names.NODES: nodes}
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "annotations": annotations}
    view = read_job({"metadata": metadata, "spec": {"template": {"spec": {}}}})
    return dataclasses.replace(view, **other)


def owned(by: JobView, name: str, **other: Any) -> PodView:
    """A pod that a Job made."""
    return pod(name, owner=Owner("Job", by.name, by.uid), **other)


def taint(key: str, value: str = "") -> Taint:
    """One that repels."""
    return Taint(key, value)


def bound(view: PodView, name: str, rank: int | None = None) -> PodView:
    """The pod once it is bound."""
    annotations = {**view.annotations, **({} if rank is None else {names.RANK: str(rank)})}
    return dataclasses.replace(view, node=name, annotations=annotations, phase="Running")


class World:
    """A planner, and an API server that agrees with all it does."""

    def __init__(self, *nodes: NodeView, **options: Any) -> None:
        self.planner = Planner(SchedulerOptions(**options))
        self.now = 1000.0
        self.pods: dict[str, PodView] = {}
        for view in nodes:
            self.planner.state.node_changed(None, view)

    @property
    def cache(self) -> Cache:
        """What is free."""
        return self.planner.state.cache

    def add(self, *pods: PodView) -> None:
        """Pods are new, or changed."""
        for view in pods:
            self.planner.state.pod_changed(self.pods.get(view.uid), view, self.now)
            self.pods[view.uid] = view

    def remove(self, *pods: PodView) -> None:
        """Pods are deleted."""
        for view in pods:
            self.planner.state.pod_changed(self.pods.pop(view.uid), None, self.now)

    def binds(self) -> list[Bind]:
        """What a round decides, nothing of it being sent."""
        return self.planner.plan(self.now).binds

    def round(self) -> dict[str, str]:
        """Nodes by pod of one round, all of it bound and seen bound."""
        binds = self.binds()
        for bind in binds:
            self.planner.state.bound(bind)
            self.add(bound(self.pods[bind.pod.uid], bind.node, bind.rank))
        return placed(binds)

    def reasons(self) -> dict[str, str]:
        """What is said of the pods that wait."""
        return {entry.pod.name: why for entry, why in self.planner.state.queue.reasons()}


def placed(binds: Iterable[Bind]) -> dict[str, str]:
    """Nodes by pod."""
    return {bind.pod.name: bind.node for bind in binds}
