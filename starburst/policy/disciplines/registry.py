"""The disciplines that can order the cluster's queue (`policy.order`), by name."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.policy.disciplines.best_fit import BestFitBoth
from starburst.policy.disciplines.discipline import MakeLive
from starburst.policy.disciplines.vqs import VirtualQueues
from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit

#: J of the partition: shares of a node down to 1/128 are told apart. Types that nothing is of cost next to
#: nothing, and a job that is exactly 2⁻ᵐ of a node is counted as that only if J > m.
LEVELS = 7


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """A discipline, and what it means for who waits."""

    title: str
    make: MakeLive
    #: Who of those waiting goes first, as part of a reason.
    first: str
    #: Whether a job may wait beside room that it fits.
    keeps_room: bool = False


DISCIPLINES: dict[str, LiveOrder] = {
    "bf-js": LiveOrder("BF-J/S", BestFitBoth, "the largest job that fits a node goes first"),
    "vqs": LiveOrder(
        "VQS",
        lambda servers, capacity: VirtualQueues(servers, capacity, levels=LEVELS),
        "an empty node is kept for the sizes that most jobs wait with",
        keeps_room=True,
    ),
    "vqs-bf": LiveOrder(
        "VQS-BF",
        lambda servers, capacity: VirtualQueuesBestFit(servers, capacity, levels=LEVELS),
        "the sizes that most jobs wait with go first, then the largest job that fits",
    ),
}
