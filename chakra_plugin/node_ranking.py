"""The best node for pods of one demand, by one of the core's placements, while rooms change."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from chakra_plugin.cache import Cache, NodeInfo
from chakra_plugin.demand import Demand
from chakra_plugin.filters import admits
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

    Rooms that changed since the last question are looked at again, all others are not: a pod costs as much as
    there were changes, not as there are nodes. Entries of rooms that changed are told by their stamp.
    """

    def __init__(self, demand: Demand, cache: Cache, score: Score) -> None:
        self._demand = demand
        self._amount = triple(dict(demand.requests))
        self._cache = cache
        self._score = score
        self._heap: list[tuple[Any, int, int, NodeInfo]] = []
        self._seen = len(cache.log)
        for room in cache.nodes():
            self._look(room)

    def best(self) -> NodeInfo | None:
        """The best node of now, or None."""
        log, heap = self._cache.log, self._heap
        for room in dict.fromkeys(log[self._seen :]):
            self._look(room)
        self._seen = len(log)
        while heap:
            _, _, stamp, room = heap[0]
            if room.stamp == stamp:
                return room
            heappop(heap)
        return None

    def _look(self, room: NodeInfo) -> None:
        if room.view is not None and admits(self._demand, room):
            score = self._score(triple(room.free), triple(room.view.allocatable), self._amount)
            heappush(self._heap, (score, room.order, room.stamp, room))
