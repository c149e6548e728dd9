"""The best node for pods of one demand, by one of the core's placements, while rooms change."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from chakra_plugin.scheduling.cache import Cache, NodeInfo
from chakra_plugin.scheduling.demand import Demand
from chakra_plugin.scheduling.filters import admits
from starburst.kube.objects import MIB
from starburst.policy.placement import Amount, Score
from translator.manifests.amounts import GPUS


def triple(found: dict[str, int]) -> Amount:
    """GPUs of any maker, milli-CPUs, MiB: what placements score by."""
    gpus = 0
    for name in GPUS:
        gpus += found.get(name, 0)
    return gpus, found.get("cpu", 0), found.get("memory", 0) // MIB


class NodeRanking:
    """Nodes that fit a demand, the best first; ties go to the node that was known first.

    A heap of scores is kept between calls. Only nodes that changed since the last call are scored again, so
    a pod costs as much as there were changes, not as there are nodes. An entry of the heap is stale if the
    stamp of its node has grown since.
    """

    def __init__(self, demand: Demand, cache: Cache, score: Score) -> None:
        self._demand = demand
        self._amount = triple(dict(demand.requests))
        self._cache = cache
        self._score = score
        self._heap: list[tuple[Any, int, int, NodeInfo]] = []
        self._seen = len(cache.log)
        for node_info in cache.nodes():
            self._look(node_info)

    def best(self) -> NodeInfo | None:
        """The best node of now, or None."""
        log, heap = self._cache.log, self._heap
        for node_info in dict.fromkeys(log[self._seen :]):
            self._look(node_info)
        self._seen = len(log)
        while heap:
            _, _, stamp, node_info = heap[0]
            if node_info.stamp == stamp:
                return node_info
            heappop(heap)
        return None

    def _look(self, node_info: NodeInfo) -> None:
        if node_info.view is not None and admits(self._demand, node_info):
            score = self._score(triple(node_info.free), triple(node_info.view.allocatable), self._amount)
            heappush(self._heap, (score, node_info.order, node_info.stamp, node_info))
