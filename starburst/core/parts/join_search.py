"""The search for room on instances that are rented anyway, for many jobs one after the other.

Instances are judged once for all jobs of a shape, and again only if a job has joined them since, so ten
thousand jobs alike cost little more than one look at each instance.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping
from math import inf
from typing import TypeAlias

from starburst.core.model.actions import Slot
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.cloud import Offer
from starburst.domain.job import Job
from starburst.domain.resources import Resources
from starburst.domain.value import value
from starburst.policy.caps import HOUR_S
from starburst.policy.image_pulls import pull_cost
from starburst.policy.packing.gangs import seat

#: Seconds that a job would wait on an instance for the pull of its image.
PullTime: TypeAlias = Callable[[Job, InstanceRecord], float]
#: Cost of the pull, micro-dollars; the largest share that is free of a machine which takes a task; place in
#: the order of instances, which decides before the last: the machine of each task within the instance.
Rank: TypeAlias = tuple[int, float, int, tuple[int, ...]]


@value
class Leaver:
    """A job that leaves for the cloud, and its expected end if it starts now."""

    job: Job
    until: float
    #: Machines whose total throughput would fall if it joined them: instance, and the machine within it.
    shuns: frozenset[tuple[str, int]] = frozenset()

    @property
    def shape(self) -> Hashable:
        """All but its end that decides which instance it joins."""
        return self.job.tasks, self.job.offer_rules, self.job.image, self.shuns, self.scatters

    @property
    def scatters(self) -> bool:
        """Whether its tasks may not share a machine."""
        return self.job.spread and len(self.job.tasks) > 1


@value
class Bid:
    """What an instance may cost a job that needs it for longer than others do."""

    #: By what its bill has to grow by less than, micro-dollars.
    most: float
    #: What it may cost an hour at most, micro-dollars.
    rate: float = inf


#: The bid of a job that may join at no cost only.
NOTHING = Bid(0.0)


class JoinSearch:
    """Finds each job an instance that others need for longer anyway, the tightest fit.

    Else the one whose bill grows least by the time for which only that job needs it, if that is worth it.
    What changes meanwhile is only what those that were found a place take.
    """

    def __init__(
        self,
        instances: Iterable[InstanceRecord],
        busy_until: Mapping[str, float],
        pull_s: PullTime,
        joined: list[str] | None = None,
    ) -> None:
        """`busy_until`: expected end of the last job on each instance; whoever joins longer, extends it."""
        self._instances = {
            instance.id: (order, instance)
            for order, instance in enumerate(instances)
            if instance.is_sound and instance.room_is_known and not instance.lost
        }
        self._busy_until = busy_until
        self._pull_s = pull_s
        #: Ids of the instances that jobs were sent to, in this search and those that share its list.
        self._joined: list[str] = [] if joined is None else joined
        self._shapes: dict[Hashable, _Ranked] = {}

    def among(self, instances: Iterable[InstanceRecord]) -> JoinSearch:
        """A search of other instances, for jobs that come between those of this one."""
        return JoinSearch(instances, self._busy_until, self._pull_s, self._joined)

    def slots(self, leaver: Leaver, bid: Bid = NOTHING) -> tuple[Slot, ...]:
        """Slots for all tasks on one instance, of one machine or several; () if none has room.

        Whoever takes them does so before the next question.
        """
        if not self._instances:
            return ()
        ranked = self._shapes.get(leaver.shape)
        if ranked is None:
            ranked = self._shapes[leaver.shape] = _Ranked(self._joined)
            for name in self._instances:
                ranked.put(name, self._rank(leaver, name))
        for name in ranked.unseen():
            if name in self._instances:
                ranked.put(name, self._rank(leaver, name))
        found: tuple[str, tuple[int, ...]] | None = None
        most = bid.most
        for (pull, _, _, nodes), name in ranked.order:
            grows = self._grows(leaver, name)
            if grows <= 0:
                found = name, nodes
                break
            if pull + grows < most and self._instances[name][1].rate.micro_usd <= bid.rate:
                found, most = (name, nodes), pull + grows
        if found is None:
            return ()
        name, nodes = found
        self._joined.append(name)
        places = enumerate(zip(leaver.job.tasks, nodes, strict=True))
        return tuple(Slot(rank, name, demand, node) for rank, (demand, node) in places)

    def _grows(self, leaver: Leaver, name: str) -> float:
        """By what an instance's bill grows if it is needed until this job ends, micro-dollars."""
        longer_s = leaver.until - self._busy_until.get(name, 0.0)
        return self._instances[name][1].rate.micro_usd * longer_s / HOUR_S if longer_s > 0 else 0.0

    def _rank(self, leaver: Leaver, name: str) -> Rank | None:
        """The lowest is joined first; None if the job may not join it, or has no room there."""
        order, instance = self._instances[name]
        job, machine = leaver.job, instance.offer.resources
        if not job.offer_rules.admits(instance.offer):
            return None
        rooms = {
            node: instance.room(node)
            for node in range(instance.offer.nodes)
            if (instance.id, node) not in leaver.shuns
        }
        nodes = _seats(leaver, instance.offer, rooms)
        if nodes is None:
            return None
        cost = pull_cost(self._pull_s(job, instance), instance.rate, instance.share_of(job.resources))
        return cost.micro_usd, max(rooms[node].largest_share(machine) for node in set(nodes)), order, nodes


def _seats(leaver: Leaver, offer: Offer, rooms: Mapping[int, Resources]) -> tuple[int, ...] | None:
    """The machine of each task among those with this room; None if they do not fit."""
    tasks = leaver.job.tasks
    if offer.nodes > 1:
        return seat(tasks, rooms, offer.resources, spread=leaver.scatters)
    fits = bool(rooms) and not leaver.scatters and leaver.job.resources.fits(rooms[0])
    return (0,) * len(tasks) if fits else None


class _Ranked:
    """The instances that jobs of one shape may join, the best first."""

    def __init__(self, joined: list[str]) -> None:
        self.order: list[tuple[Rank, str]] = []
        self._rank_of: dict[str, Rank] = {}
        self._joined = joined
        self._seen = len(joined)

    def unseen(self) -> dict[str, None]:
        """The instances that were joined since the last call, each once."""
        names = dict.fromkeys(self._joined[self._seen :])
        self._seen = len(self._joined)
        return names

    def put(self, name: str, rank: Rank | None) -> None:
        """Rank an instance anew."""
        old = self._rank_of.pop(name, None)
        if old is not None:
            del self.order[bisect_left(self.order, (old, name))]
        if rank is not None:
            self._rank_of[name] = rank
            insort(self.order, (rank, name))
