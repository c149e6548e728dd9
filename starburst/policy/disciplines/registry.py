"""The disciplines that can order the cluster's queue (`policy.order`), by name."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.policy.disciplines.best_fit import BestFitBoth
from starburst.policy.disciplines.discipline import MakeLive
from starburst.policy.disciplines.vqs import VirtualQueues
from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit

#: J of the partition: sizes down to 1/128 of a node are distinguished. Types without jobs cost almost
#: nothing, and a job of exactly 2⁻ᵐ of a node is at the upper end of its type only if J > m.
LEVELS = 7


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """A discipline, and its effect on waiting jobs as shown in reasons."""

    title: str
    make: MakeLive
    #: Which waiting job goes first, as part of a reason.
    first: str
    #: Whether a job may wait although it fits some free room.
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
