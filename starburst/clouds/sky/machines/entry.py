"""The journal entry of one rented machine, from the intent to rent it to the end of its bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from starburst.clouds.sky.access.ports import Access, ClusterStatus, InstanceRef
from starburst.clouds.sky.journal import Journal, body_of, fields_of
from starburst.core.model.events import InstanceFailed, InstanceGone, InstanceReady, MachinesLost
from starburst.domain.cloud import Offer
from starburst.domain.money import Money


@dataclass(slots=True)
class MachineEntry:
    """One machine, or several that SkyPilot rents as one cluster. Times are scheduler seconds.

    Field names are stored.
    """

    id: str
    offer: str
    spot: bool
    asked_at: float
    gpu_type: str = ""
    #: Id of the launch request.
    request: str | None = None
    #: A launch was requested, even if the id of that request was lost in a crash.
    asked: bool = False
    #: The labels of its instance say when it was asked for; those of older versions did not.
    dated: bool = False
    #: How to log in, as SkyPilot last said; used also while SkyPilot does not answer.
    access: Access | None = None
    #: The instance, once its cloud has described a machine that answered.
    at: InstanceRef | None = None
    #: Begin of the bill: by the cloud, else by the machine's boot, and before the first login by SkyPilot.
    launched_at: float | None = None
    #: Begin of the first of its instances by the clock of its cloud, epoch seconds, and in scheduler seconds:
    #: converted once, as the scheduler's clock may jump.
    cloud_began_at: float | None = None
    began_at: float = 0.0
    #: Seconds for which instances of this intent were billed that were given up in its launch.
    earlier_s: float = 0.0
    #: The real price of an hour, micro-dollars; None if SkyPilot does not know it.
    micro_usd: int | None = None
    ready: bool = False
    #: The keepalive is in SkyPilot's queue; the machine's own shutdown switch is armed.
    kept: bool = False
    armed: bool = False
    #: When its switch has surely shut it down, by the last renewal of its lease that was sent, or somewhat
    #: later; None: no lease of it was set.
    ends_by: float | None = None
    #: Why jobs on it are not kept apart; "" if they are, as far as is known.
    together: str = ""
    #: Until when its cloud, which was asked often enough, has had nothing of this intent; None: never asked.
    blank_until: float | None = None
    #: It runs, and SkyPilot does not list it.
    forgotten: bool = False
    #: Its end was requested.
    ending: bool = False
    #: Id of the request that takes it down; whether SkyPilot has done that, and when.
    down: str | None = None
    taken_down: bool = False
    down_at: float | None = None
    #: End of the bill by the cloud: the instance was stopped or terminated.
    halted_at: float | None = None
    #: Ends of the bills of several, without those that ended before (`lost_at`), in order; [] if unknown.
    ends: list[float] = field(default_factory=list)
    #: Why the launch failed.
    failed: str | None = None
    sold_out: bool = False
    #: When the machine was found gone.
    ended_at: float | None = None
    #: It is, or is going to be, a spot machine that its cloud took.
    preempted: bool = False
    #: Number of its machines (*nodes*), the head first. How to log in to the others, their instances, and
    #: the addresses of all in their network.
    nodes: int = 1
    workers: list[Access] = field(default_factory=list)
    workers_at: list[InstanceRef] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    #: One of them is gone, and its cloud does not say that others run: all are ended.
    node_lost: bool = False
    #: By machine, the end of the bill of those that ended while others ran on; [] while all are there.
    lost_at: list[float | None] = field(default_factory=list)

    @classmethod
    def intent(cls, instance_id: str, offer: Offer, now: float) -> MachineEntry:
        """The entry to write before anything is requested from the cloud."""
        gpu = offer.resources.gpu_type
        return cls(instance_id, offer.name, offer.spot, now, gpu, dated=True, nodes=offer.nodes)

    def has_lapsed(self, now: float, after_s: float) -> bool:
        """Whether its lease has surely passed, `after_s` seconds after which its switch has ended it."""
        return self.ends_by is not None and now > self.ends_by - after_s

    @property
    def is_over(self) -> bool:
        """Whether nothing can change any more."""
        return self.ended_at is not None or self.failed is not None

    @property
    def is_mere_intent(self) -> bool:
        """Whether nothing was ever asked for: what bears its name, in SkyPilot or a cloud, is another's."""
        return self.dated and not (self.asked or self.is_over)

    @property
    def instances(self) -> list[InstanceRef]:
        """The instances that its cloud has described, of the head and of all others; [] if not of all."""
        found = [] if self.at is None else [self.at, *self.workers_at]
        return found if len(found) == self.nodes else []

    @property
    def lost(self) -> dict[int, float]:
        """The machines that ended while others ran on, and when the bill of each ended."""
        return {node: at for node, at in enumerate(self.lost_at) if at is not None}

    @property
    def takes_runs(self) -> bool:
        """Whether the machine is up and not about to end."""
        return self.ready and not self.ending and not self.is_over

    def note_logins(self, status: ClusterStatus) -> None:
        """Take over how SkyPilot says to log in; of a cluster of which a part is gone it may list fewer.

        Number n of its logins, its addresses and its instances are one machine.
        """
        if self.lost:
            return
        self.access = status.access or self.access
        if len(status.workers) == self.nodes - 1:
            self.workers = list(status.workers)
        if len(status.addresses) == self.nodes:
            self.addresses = list(status.addresses)
        known = {one.instance: one for one in self.workers_at}
        listed = [one.instance for one in status.workers_at]
        if known.keys() == set(listed):
            self.workers_at = [known[id_] for id_ in listed]

    def halt(self, ends: Sequence[float]) -> None:
        """Note when the bills of its machines ended by the cloud; what was noted before and is earlier stays.

        A machine may be stopped first and terminated later: it is not billed in between.
        """
        ends = sorted(ends)
        self.ends = list(map(min, ends, self.ends)) if len(ends) == len(self.ends) else ends
        self.halted_at = min(self.ends[-1], self.ends[-1] if self.halted_at is None else self.halted_at)

    def over_since(self) -> float:
        """When it was over."""
        return self.asked_at if self.ended_at is None else self.ended_at

    def ready_event(self) -> InstanceReady:
        """The event of a machine that takes runs."""
        assert self.launched_at is not None
        rate = None if self.micro_usd is None else Money(self.micro_usd)
        return InstanceReady(self.id, self.launched_at, rate)

    def lost_event(self) -> MachinesLost:
        """The event of a machine of several that lost some of them; nobody asked for that."""
        return MachinesLost(self.id, tuple(self.lost.items()), self.spot)

    def end_event(self) -> InstanceGone | InstanceFailed:
        """The event of a machine that is over."""
        ended_at = self.over_since()
        launched_at = ended_at if self.launched_at is None else self.launched_at
        left = [node for node in range(self.nodes) if node not in self.lost]
        ends = {node: at for node, at in zip(left, self.ends[:-1], strict=False) if at < ended_at}
        lost = tuple(sorted((self.lost | ends).items()))
        if self.failed is not None:
            return InstanceFailed(self.id, self.failed, self.sold_out, launched_at, ended_at, lost)
        return InstanceGone(self.id, launched_at, ended_at, self.preempted, lost=lost)


def save_machine(journal: Journal, entry: MachineEntry) -> None:
    """Write the entry of a machine."""
    journal.put(_key(entry), {"key": _key(entry), **fields_of(entry)})


def load_machines(journal: Journal) -> dict[str, MachineEntry]:
    """The entries of all machines, by id."""
    found = [MachineEntry(**body_of(journal, key)) for key in journal.all_keys("machine/")]
    for entry in found:
        entry.access = None if entry.access is None else Access(**cast("dict[str, Any]", entry.access))
        entry.at = None if entry.at is None else InstanceRef(**cast("dict[str, Any]", entry.at))
        entry.workers = [Access(**cast("dict[str, Any]", one)) for one in entry.workers]
        entry.workers_at = [InstanceRef(**cast("dict[str, Any]", one)) for one in entry.workers_at]
    return {entry.id: entry for entry in found}


def drop_machine(journal: Journal, entry: MachineEntry) -> None:
    """Remove the entry of a machine."""
    journal.drop(_key(entry))


def _key(entry: MachineEntry) -> str:
    return f"machine/{entry.id}"
