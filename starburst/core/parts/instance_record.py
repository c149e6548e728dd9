"""The record of one rented instance: its machines, the jobs that hold it, and its bill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from starburst.core.model.actions import Slot
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources, total
from starburst.policy.cost_allocation import Use, divide

OPEN_PHASES = (InstancePhase.LAUNCHING, InstancePhase.READY)


@dataclass(slots=True)
class InstanceRecord:
    """State of one instance, of one machine or several. Its id is its launch intent.

    Times are scheduler seconds.
    """

    id: str
    offer: Offer
    #: Dollars per hour used for its bill; an unknown price is replaced by the highest known one.
    rate: Money
    requested_at: float
    phase: InstancePhase = InstancePhase.LAUNCHING
    launched_at: float | None = None
    ended_at: float | None = None
    preempted: bool = False
    micro_usd: int = 0
    #: Since when it does not answer although the cloud reports it as running.
    unreachable_since: float | None = None
    #: Since when it answers and starts no work; this is permanent.
    unfit_since: float | None = None
    #: Jobs that hold it, in order of assignment.
    job_ids: list[str] = field(default_factory=list)
    #: All jobs that share its bill, including those that have left it.
    billed_to: list[str] = field(default_factory=list)
    #: Resources that each of its jobs holds.
    held: dict[str, Resources] = field(default_factory=dict)
    #: Of several machines: what each job holds of which, as (machine, resources), by machine.
    held_on: dict[str, tuple[tuple[int, Resources], ...]] = field(default_factory=dict)
    #: Share and time interval of each use, by which the bill is divided (policy/cost_allocation.py).
    uses: list[Use] = field(default_factory=list)
    #: Of several machines: those that have ended while others run on, and when the bill of each ended.
    lost: dict[int, float] = field(default_factory=dict)
    #: Images that it has; None if it never told.
    images: tuple[str, ...] | None = None
    #: Why its jobs are not kept apart; "" if they are, as far as is known.
    together: str = ""

    def lacks(self, image: str) -> bool:
        """Whether a job with this image would wait there for a pull, as far as that is known."""
        return bool(image) and self.images is not None and image not in self.images

    def cost(self, now: float) -> Money:
        """Its cost up to `now`."""
        if self.launched_at is None:
            return Money()
        until = self.ended_at if self.ended_at is not None else now
        return self.rate.for_seconds(self.billed_s(self.launched_at, until))

    def billed_s(self, since: float, until: float) -> float:
        """Seconds from `since` to `until` that are paid for at its rate, which is that of all its machines.

        A lost machine is paid for until its own end.
        """
        saved_s = sum(max(0.0, until - max(since, at)) for at in self.lost.values())
        return max(0.0, until - since) - saved_s / self.offer.nodes

    @property
    def is_free(self) -> bool:
        """Whether it is known to cost nothing."""
        return not self.rate.micro_usd and self.offer.price_per_hour is not None

    @property
    def present_rate(self) -> Money:
        """Dollars per hour of the machines that it has not lost."""
        nodes = self.offer.nodes
        return Money(self.rate.micro_usd * (nodes - len(self.lost)) // nodes)

    @property
    def is_sound(self) -> bool:
        """Whether it is launching or ready, and neither unreachable nor unfit."""
        heard_of = self.unreachable_since is None and self.unfit_since is None
        return self.phase in OPEN_PHASES and heard_of

    @property
    def present(self) -> list[Use]:
        """The uses that have not ended."""
        return [use for use in self.uses if use.until == inf]

    def share_of(self, demand: Resources) -> float:
        """The demand's largest fraction of the instance over GPUs, CPUs and memory."""
        return demand.largest_share(self.offer.capacity)

    @property
    def free(self) -> Resources:
        """Resources that no job holds."""
        return self.offer.capacity - total(self.held.values())

    @property
    def room_is_known(self) -> bool:
        """Whether it is recorded what each of its jobs holds, of each machine; older versions did not."""
        several = self.offer.nodes > 1
        names = set(self.job_ids)
        return self.held.keys() == names and (not several or self.held_on.keys() == names)

    def held_of(self, node: int) -> dict[str, Resources]:
        """What jobs hold of one of its machines."""
        if self.offer.nodes == 1:
            return self.held
        return {job_id: demand for job_id, on in self.held_on.items() for at, demand in on if at == node}

    def room(self, node: int) -> Resources:
        """Resources of one of its machines that no job holds."""
        return self.offer.resources - total(self.held_of(node).values())

    def shares(self, now: float) -> dict[str, int]:
        """Its cost up to `now`, divided among the jobs it is billed to, micro-dollars."""
        micro_usd = self.cost(now).micro_usd
        if len(self.billed_to) == 1:
            return {self.billed_to[0]: micro_usd}
        since = 0.0 if self.launched_at is None else self.launched_at
        until = now if self.ended_at is None else self.ended_at
        return _split(micro_usd, dict.fromkeys(self.billed_to, 0.0) | self.seconds(since, until))

    def seconds(self, since: float, until: float, uses: Sequence[Use] | None = None) -> dict[str, float]:
        """The billed seconds of a time, divided among the jobs; `uses` replaces the recorded uses."""
        if len(self.billed_to) == 1:
            return {self.billed_to[0]: self.billed_s(since, until)}
        if not self.uses and until > since:  # stored by a version that recorded no uses
            return dict.fromkeys(self.billed_to, self.billed_s(since, until) / len(self.billed_to or (1,)))
        uses = self.uses if uses is None else uses
        cuts = sorted({since, until, *(at for at in self.lost.values() if since < at < until)})
        found: dict[str, float] = {}
        for begun, ended in pairwise(cuts) if until > since else ():
            left = self.billed_s(begun, ended) / (ended - begun)
            for job_id, part in divide(uses, begun, ended).items():
                found[job_id] = found.get(job_id, 0.0) + part * left
        return found

    def hold(self, job_id: str, slots: Sequence[Slot], now: float) -> bool:
        """Give a job exactly these slots here; returns whether the bill is new to the job."""
        if job_id in self.job_ids:
            self.leave(job_id, now)
        self.job_ids.append(job_id)
        held = self.held[job_id] = _sum(slots)
        if self.offer.nodes > 1:
            nodes = sorted({slot.node for slot in slots})
            self.held_on[job_id] = tuple((node, _sum(slots, node)) for node in nodes)
        self.uses.append(Use(job_id, self.share_of(held), now))
        if job_id in self.billed_to:
            return False
        self.billed_to.append(job_id)
        return True

    def leave(self, job_id: str, now: float) -> None:
        """Remove a job from the instance."""
        self.job_ids.remove(job_id)
        self.held.pop(job_id, None)
        self.held_on.pop(job_id, None)
        for n, use in enumerate(self.uses):
            if use.until == inf and use.job_id == job_id:
                self.uses[n] = Use(job_id, use.share, use.since, max(use.since, now))


def _sum(slots: Sequence[Slot], node: int | None = None) -> Resources:
    """What these slots have together; those on one machine, if `node` names it."""
    found = [slot.resources for slot in slots if node in (None, slot.node)]
    return found[0] if len(found) == 1 else total(found)


def _split(amount: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Divide an integer in proportion to the weights, with an exact sum; equally if all weights are 0."""
    whole = sum(weights.values())
    if whole <= 0:
        weights, whole = dict.fromkeys(weights, 1.0), float(len(weights))
    parts = {name: int(amount * weight / whole) for name, weight in weights.items()}
    rest = amount - sum(parts.values())
    for name in sorted(parts, key=lambda name: parts[name] - amount * weights[name] / whole)[: abs(rest)]:
        parts[name] += 1 if rest > 0 else -1
    return parts
