"""One rented machine, or several as one: the journal entry, how to reach them, and what was last heard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import structlog

from starburst.aio import Wake
from starburst.clouds.sky.access.answers import MachineState, parse_exchange
from starburst.clouds.sky.access.ports import (
    Access,
    ClusterStatus,
    InstanceRef,
    LocalError,
    Observation,
    Presence,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.agent.protocol import ExchangeRequest
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.end_note import is_noted
from starburst.clouds.sky.machines.entry import MachineEntry, save_machine
from starburst.clouds.sky.machines.fitness import Fitness
from starburst.core.model.events import (
    ImagesReported,
    InstanceStalled,
    InstanceUnreachable,
    JobsNotKeptApart,
)

log = structlog.get_logger()

#: Images of a machine, each with the seconds that its pull took there, None if it was not pulled.
Images: TypeAlias = tuple[tuple[str, float | None], ...]
#: Wall seconds from the time at which SkyPilot should have ended a machine until its own switch does; from
#: then until it is certainly down; and by how much `ends_by` is too late, so that it is seldom written.
SWITCH_S, DOWN_S, COARSE_S = 300.0, 300.0, 600.0


@dataclass(eq=False, slots=True)
class RentedMachine:
    """A machine and its state in this process; what must survive a crash is in `entry`.

    Every change of `entry` is followed by `save` before the effect that it announces. `lifecycle.py` takes
    the machine through its phases; `turn` wakes that loop, `wake` the exchanges with the machine.
    """

    context: SkyContext
    entry: MachineEntry
    turn: Wake = field(default_factory=Wake, init=False)
    wake: Wake = field(default_factory=Wake, init=False)
    #: Set after the first attempt at an exchange in this process.
    greeted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    #: The next exchange renews its lease.
    renewal_due: bool = field(default=False, init=False)
    #: Whether it answers, as last reported; None: not reported by this process.
    answers: bool | None = field(default=None, init=False)
    #: Its cloud is to be asked for it now.
    is_suspect: bool = field(default=False, init=False)
    #: When its cloud was last asked and did not say that it is gone; scheduler seconds.
    checked_at: float = field(default=0.0, init=False)
    #: Whether anybody said then that it lives: its cloud, SkyPilot's refreshed listing, or itself.
    surely_lives: bool = field(default=True, init=False)
    #: When it last answered, wall seconds; None: not in this process.
    heard_at: float | None = field(default=None, init=False)
    #: Whether SkyPilot has said in this process what it costs, or that it does not know.
    priced: bool = field(default=False, init=False)
    #: When a keepalive was last put into its queue, wall seconds.
    kept_at: float = field(default=0.0, init=False)
    #: That its cloud does not describe it is in the log.
    unnamed: bool = field(default=False, init=False)
    end_is_noted: bool = field(default=True, init=False)
    #: Host name and address in its network of each node that has answered.
    hosts: dict[int, tuple[str, str]] = field(default_factory=dict, init=False)
    #: What holds up its launch, as last reported, "" if nothing; None: not reported by this process.
    held_up_by: str | None = field(default=None, init=False)
    fitness: Fitness = field(default_factory=Fitness, init=False)
    #: Its images, as last reported; None: not reported by this process.
    images: Images | None = field(default=None, init=False)
    #: Why each node that has answered does not keep jobs apart; "" if it does.
    not_apart: dict[int, str] = field(default_factory=dict, init=False)
    #: The same of the whole, as last reported; None: not reported by this process.
    together: str | None = field(default=None, init=False)
    #: Instances that its cloud is still to be told to terminate when they shut down.
    to_arm: list[InstanceRef] = field(default_factory=list, init=False)

    @property
    def id(self) -> str:
        """The id of the intent to rent it."""
        return self.entry.id

    @property
    def cluster(self) -> str:
        """The name of its SkyPilot cluster."""
        return self.context.naming.cluster(self.entry.id)

    @property
    def takes_runs(self) -> bool:
        """Whether it is up and not about to end."""
        return self.entry.takes_runs

    @property
    def is_coming_up(self) -> bool:
        """Whether it is neither ready nor about to end."""
        return not (self.entry.ready or self.entry.ending or self.entry.is_over)

    @property
    def nodes(self) -> list[int]:
        """Its machines, without those that it lost; 0 is SkyPilot's head."""
        return [node for node in range(self.entry.nodes) if node not in self.entry.lost]

    def access(self, node: int = 0) -> Access:
        """How to log in to a node.

        Raises:
            SkyUnreachableError: SkyPilot never said.
        """
        access = next(iter([self.entry.access, *self.entry.workers][node:]), None)
        if access is None:
            raise SkyUnreachableError(f"{self.id}: SkyPilot does not say how to log in")
        return access

    def node_name(self, node: int) -> str:
        """The name of a node for the transport."""
        return f"{self.cluster}-node{node}" if node else self.cluster

    def save(self) -> None:
        """Write its entry to the journal."""
        save_machine(self.context.journal, self.entry)

    async def call(self, verb: str, payload: Mapping[str, Any], node: int = 0) -> Any:
        """What the agent of a node answers; not validated.

        Raises:
            SkyError: it does not answer, or its agent failed.
        """
        return await self.context.transport.call(self.node_name(node), self.access(node), verb, payload)

    def hello(self) -> ExchangeRequest:
        """The request that sets or renews the lease, journaled first, and arms the shutdown switch."""
        self.expect_renewal()
        return {"lease_s": self.context.settings.lease_s, "switch": {"after_s": self.switch_s}}

    async def greet(self) -> MachineState:
        """The first exchange with each node: sets the lease and arms the shutdown switch; the head's answer.

        It counts as armed if all of them are.

        Raises:
            SkyError: as of `call`; also if the answer is not valid.
        """
        hello = self.hello()
        answers = [parse_exchange(await self.call("exchange", hello, node)) for node in self.nodes]
        return replace(answers[0], armed=all(answer.armed for answer in answers))

    async def responds(self, nodes: Sequence[int] = ()) -> bool:
        """Whether it, or any node of it, lets us log in now; `nodes`: whether any of these does.

        Raises:
            LocalError: that cannot be found out from here now.
        """
        for node in nodes or self.nodes:
            try:
                await self.call("exchange", {}, node)
            except LocalError:
                raise
            except SkyError:
                continue
            self.heard()
            return True
        return False

    async def retire(self) -> None:
        """Have every node shut itself down.

        Raises:
            SkyError: a node does not answer; the others were told.
        """
        calls = (self.call("retire", {}, node) for node in self.nodes)
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    async def listed(self) -> ClusterStatus | None:
        """Its cluster as SkyPilot lists it.

        Raises:
            SkyError: SkyPilot does not answer.
        """
        return await self.context.listing.status(self.cluster)

    @property
    def switch_s(self) -> float:
        """Seconds after the end of its lease at which the machine shuts itself down."""
        return 60 * self.context.settings.idle_minutes + SWITCH_S

    @property
    def survival_s(self) -> float:
        """Wall seconds after the last renewal of its lease at which its armed switch has surely ended it."""
        return self.context.settings.lease_s + self.switch_s + DOWN_S

    def expect_renewal(self, *, heard: bool = False) -> None:
        """Journal until when its switch lets it live, before its lease is renewed: the answer may be lost."""
        clock, entry = self.context.clock, self.entry
        if not heard and entry.has_lapsed(clock.now(), self.switch_s + DOWN_S):
            return  # which no renewal changes
        ends_by = clock.wall() + self.survival_s
        if entry.ends_by is None or entry.ends_by < clock.pace.scheduler_time(ends_by):
            entry.ends_by = clock.pace.scheduler_time(ends_by + COARSE_S)
            with suppress(OSError):  # a full disk lets no lease pass; the next save brings it
                self.save()

    def expect_end(self) -> None:
        """Its lease has passed: its switch ends it soon."""
        soon = self.context.clock.now() + self.switch_s + DOWN_S
        self.entry.ends_by = min(self.entry.ends_by or soon, soon)

    def note_together(self, why: str, node: int = 0) -> None:
        """Journal why jobs are not kept apart, "" if they are: on a node, and so on the whole."""
        self.not_apart[node] = why
        found = next((self.not_apart[n] for n in self.nodes if self.not_apart.get(n)), "")
        if found != self.together and (found or self.not_apart.keys() >= set(self.nodes)):
            self.entry.together = found
            self.save()
            self.together = found
            self.context.report(JobsNotKeptApart(self.id, found))
            if found:
                log.warning("jobs-not-kept-apart", instance=self.id, why=found)

    def note_trouble(self, why: str, node: int = 0) -> None:
        """Note why a node starts no task or cannot be kept, "" if neither: whatever tasks are for it."""
        if why:
            self.fitness.refused(self.node_name(node), why, self.context.clock.wall())
        else:
            self.fitness.took(self.node_name(node))

    def launch_held_up(self, why: str) -> None:
        """Report what holds up its launch, "" if nothing does, if that has changed."""
        if why != self.held_up_by:
            self.held_up_by = why
            self.context.report(InstanceStalled(self.id, why))

    def note_images(self, images: Images) -> None:
        """Report which images it has, if that has changed; of several machines those of the first."""
        if images != self.images:
            self.images = images
            self.context.report(ImagesReported(self.id, images))

    def heard(self) -> None:
        """Record that it has answered."""
        self.heard_at = self.context.clock.wall()

    def suspect(self) -> None:
        """Have its cloud asked for it now."""
        self.is_suspect = True
        self.context.suspicion.ring()

    def since_asked(self, epoch_s: float) -> float:
        """A time of another clock in scheduler seconds, not before the intent and not in the future."""
        return self.context.clock.since(self.entry.asked_at, epoch_s)

    def first_listed(self, status: ClusterStatus) -> None:
        """Begin the bill: a machine that SkyPilot lists is billed, whether anyone can log in or not."""
        entry = self.entry
        if entry.launched_at is None:
            began_at = status.launched_at and self.since_asked(status.launched_at)
            entry.launched_at = began_at or entry.asked_at
        entry.note_logins(status)
        self.save()

    def book(self, seen: Sequence[Observation], earlier: Sequence[Observation] = ()) -> None:
        """Set the times of the bill to those of the cloud, which count before all others.

        `earlier` are instances that were given up in its launch: their seconds are added. Of several, each
        is billed until its own end; `seen` is without those that it lost (`lose`).
        """
        entry, absent = self.entry, bool(seen) and all(one.presence is Presence.ABSENT for one in seen)
        if earlier:
            entry.earlier_s = sum(map(self._billed_s, earlier)) / entry.nodes
        begun = [one.launched_at for one in seen if one.launched_at is not None]
        ended = [one.ended_at for one in seen if one.ended_at is not None]
        if begun and (not entry.lost or entry.cloud_began_at is None):
            if entry.cloud_began_at != min(begun):
                entry.cloud_began_at, entry.began_at = min(begun), self.since_asked(min(begun))
            entry.launched_at = entry.began_at - entry.earlier_s
        if any(one.presence is Presence.RUNNING for one in seen):
            entry.halted_at, entry.ends = None, []
        elif absent and entry.armed and entry.has_lapsed(self.context.clock.now(), 0.0):
            entry.halted_at = entry.halted_at or entry.ends_by  # forgotten, since its switch has ended it
        elif ended and len(ended) == len(seen):
            by_one_clock = len(begun) == len(seen)  # for ours may be off
            ends = [entry.began_at + self._billed_s(one) for one in seen if by_one_clock]
            entry.halt(ends or [self.since_asked(max(ended))])

    def _billed_s(self, seen: Observation) -> float:
        """Scheduler seconds for which an instance was billed: until now if its cloud tells no end."""
        until = self.context.clock.wall() if seen.ended_at is None else seen.ended_at
        return 0.0 if seen.launched_at is None else max(0.0, self._lasted_s(seen.launched_at, until))

    def _lasted_s(self, begun: float, ended: float) -> float:
        """Scheduler seconds between two times of one other clock."""
        pace = self.context.clock.pace
        return pace.scheduler_time(ended) - pace.scheduler_time(begun)

    def lose(self, ended: Mapping[int, Observation]) -> None:
        """Some of its machines have ended while others run: journal until when each is billed, and report it.

        The seconds of each count from the begin of the bill of all, as they do in `book`.
        """
        entry, now = self.entry, self.context.clock.now()
        log.warning("machine-of-gang-lost", instance=self.id, machines=sorted(ended), of=entry.nodes)
        entry.lost_at = entry.lost_at or [None] * entry.nodes
        for node, one in ended.items():
            at = now if one.ended_at is None else self.since_asked(one.ended_at)
            known = entry.cloud_began_at is not None and one.launched_at is not None
            entry.lost_at[node] = entry.began_at + self._billed_s(one) if known else at
            self.hosts.pop(node, None)
            self.context.transport.forget(self.node_name(node))
        self.save()
        self.context.report(entry.lost_event())
        self.wake.ring()

    def request_end(self) -> None:
        """Journal that it is to end, and wake its loops."""
        self.entry.ending = True
        self.save()
        self.turn.ring()
        self.wake.ring()

    def end_unasked(self, why: str) -> None:
        """As `request_end`, of a machine that the core does not give back: no job is to join it any more."""
        self.request_end()
        self.context.report(InstanceUnreachable(self.id, why))

    def gone(self) -> None:
        """Its cloud has it no more. A spot machine whose end was not requested was preempted."""
        entry = self.entry
        entry.ended_at = self._over_at()
        entry.preempted = entry.preempted or (entry.spot and (entry.node_lost or not entry.ending))
        entry.launched_at = entry.ended_at if entry.launched_at is None else entry.launched_at
        self._close()

    def lost_node(self) -> None:
        """One of its machines is gone, and its cloud does not say that others run: all are ended.

        SkyPilot 0.14 counts a cluster with a part of its nodes as INIT and sets its autostop off
        (`_update_cluster_status` of sky/backends/backend_utils.py); `down` ends what is left by its tags.
        """
        log.warning("gang-lost", instance=self.id, machines=self.entry.nodes)
        self.entry.node_lost = True
        self.end_unasked("one of its machines is gone, and the others are ended")

    def failed(self, message: str, *, sold_out: bool) -> None:
        """Its launch failed and has left nothing in the cloud."""
        self.entry.failed, self.entry.sold_out, self.entry.ended_at = message, sold_out, self._over_at()
        self._close()

    def report_state(self) -> None:
        """Report that it takes runs, ends or is over, and what it lost; nothing while it comes up."""
        if self.entry.lost:
            self.context.report(self.entry.lost_event())
        if self.entry.is_over:
            if not is_noted(self):
                return
            for node in self.nodes:
                self.context.transport.forget(self.node_name(node))
            self.context.report(self.entry.end_event())
        elif self.takes_runs and self.entry.launched_at is not None:
            self.context.report(self.entry.ready_event())
        elif self.entry.ready:  # perhaps unasked, and not told before a crash
            self.context.report(InstanceUnreachable(self.id, "it is being ended"))

    def _close(self) -> None:
        self.answers, self.renewal_due, self.end_is_noted = None, False, False
        self.report_state()
        self.turn.ring()
        self.wake.ring()

    def _over_at(self) -> float:
        """End of the bill of a machine that is over: by its cloud, by SkyPilot, else not after its switch."""
        entry, now = self.entry, self.context.clock.now()
        by_switch = min(now, entry.ends_by) if entry.armed and entry.ends_by is not None else now
        known = next((at for at in (entry.halted_at, entry.down_at) if at is not None), by_switch)
        return max(known, entry.launched_at or 0.0)
