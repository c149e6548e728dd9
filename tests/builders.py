"""Short words to build jobs, nodes and offers with, and a scheduler to drive by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from sim.world import SimJob, World
from starburst.core.model.actions import Action, LaunchInstance, Slot, StartRun, StopRun, TerminateInstance
from starburst.core.model.decisions import Decision
from starburst.core.model.events import (
    CancelRequested,
    EditRequested,
    Event,
    HoldRequested,
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnreachable,
    JobSubmitted,
    NodesChanged,
    OffersChanged,
    ReleaseRequested,
    RequeueRequested,
    RunEnd,
    RunEnded,
    RunStarted,
    Tick,
)
from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler, is_settled, schedule
from starburst.core.state import Changes
from starburst.core.views.snapshot import Snapshot, facts
from starburst.core.views.validate import validate
from starburst.domain.cloud import Offer
from starburst.domain.job import CloudChoice, Job, JobEdit
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources

MINUTE, HOUR = 60.0, 3600.0


def job(
    name: str = "a",
    gpus: int = 1,
    *,
    cpus: float = 0,
    gib: float = 0,
    gpu_type: str = "",
    gang: Sequence[int] = (),
    hours: float | None = None,
    cloud: str = "auto",
    **more: Any,
) -> Job:
    """A job whose id is its name; `gang` gives the GPUs of each task, `hours` the user's estimate."""
    tasks = tuple(Resources.of(g, cpus, gib, gpu_type) for g in gang or (gpus,))
    estimate = None if hours is None else hours * HOUR
    return Job(name, name, tasks, runtime_estimate_s=estimate, cloud=CloudChoice(cloud), **more)


def node(name: str = "n0", gpus: int = 4, *, cpus: float = 64, gib: float = 256, **more: Any) -> Node:
    """A node with enough CPUs and memory that GPUs decide."""
    return Node(name, Resources.of(gpus, cpus, gib, more.pop("gpu_type", "")), **more)


def nodes(*gpus: int) -> tuple[Node, ...]:
    """Nodes n0, n1, … with these many GPUs."""
    return tuple(node(f"n{rank}", g) for rank, g in enumerate(gpus))


def offer(
    name: str = "small", gpus: int = 4, dollars: float | None = 1.0, *, cpus: float = 64, **more: Any
) -> Offer:
    """An instance type; `dollars` per hour, None for an unknown price."""
    price = None if dollars is None else Money.of(dollars)
    return Offer(name, Resources.of(gpus, cpus, 256, more.pop("gpu_type", "")), price, **more)


class Watched(Scheduler):
    """A scheduler that is checked after every step, with a book of which attempts may be alive."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        #: Job → its live attempt and where that may still have processes.
        self.live: dict[str, tuple[int, set[str]]] = {}
        self.log: list[Decision] = []

    def handle(self, events: Event | Sequence[Event], now: float) -> list[Action]:
        """One step: at no time may two attempts of a job be alive."""
        for event in events if isinstance(events, Sequence) else (events,):
            self._witness(event)
        actions = super().handle(events, now)
        for action in actions:
            if isinstance(action, StartRun):
                assert action.job_id not in self.live, f"{action.job_id} has two live attempts"
                self.live[action.job_id] = action.attempt, {slot.where for slot in action.slots}
        validate(self.state)
        if is_settled(self.state):
            before = self.state.decided, len(self.state.changes.actions)
            schedule(self.state)
            left_out = self.state.decided, len(self.state.changes.actions)
            assert left_out == before, "a step that leaves the passes out had something to decide"
        return actions

    def take_changes(self) -> Any:
        """Keep every decision."""
        changes = super().take_changes()
        self.log += changes.decisions
        return changes

    def _witness(self, event: Event) -> None:
        if isinstance(event, RunEnded) and self.live.get(event.job_id, (0,))[0] == event.attempt:
            del self.live[event.job_id]
        if isinstance(event, InstanceGone):
            for job_id, (_, places) in list(self.live.items()):
                if event.instance_id in places:
                    places.discard(event.instance_id)
                    if not places:
                        del self.live[job_id]


class Desk:
    """A watched scheduler driven by hand, one event a call, at the time its clock shows."""

    def __init__(self, *gpus: int, offers: Iterable[Offer] = (offer(),), **settings: Any) -> None:
        """`gpus`: a node for each number. Without other settings jobs wait an hour and never come home."""
        told = {"waiting": "constant", "factor": HOUR, "returns": "never", **settings}
        self.scheduler = Watched(Settings(**told))
        self.now = 0.0
        self.actions: list[Action] = []
        self._records: dict[str, JobRecord] = {}
        self.tell(NodesChanged(nodes(*gpus)), OffersChanged(tuple(offers)))

    def tell(self, *events: Event) -> list[Action]:
        """All that happens at one instant; returns what is to be done."""
        self.actions = self.scheduler.handle(events or (Tick(),), self.now)
        self._records.update(self.scheduler.take_changes().jobs)
        return self.actions

    def wait(self, seconds: float) -> list[Action]:
        """Time passes; whatever it wakes up happens on the way."""
        until, done = self.now + seconds, []
        while (at := self.scheduler.next_wakeup()) <= until:
            self.now = max(self.now, at)
            done += self.tell()
        self.now = until
        self.actions = done
        return done

    def submit(self, *jobs: Job) -> list[Action]:
        """Jobs arrive together."""
        return self.tell(*(JobSubmitted(item) for item in jobs))

    def started(self, *names: str) -> list[Action]:
        """The present attempts of these jobs run."""
        return self.tell(*(RunStarted(name, self[name].attempt) for name in names))

    def ended(self, name: str, end: RunEnd = RunEnd.EXITED, code: int | None = 0) -> list[Action]:
        """The present attempt of a job is over."""
        return self.tell(self.end_of(name, end, code))

    def end_of(self, name: str, end: RunEnd = RunEnd.EXITED, code: int | None = 0) -> RunEnded:
        """The event that the present attempt of a job is over."""
        return RunEnded(name, self[name].attempt, end, code if end is RunEnd.EXITED else None)

    def lost(self, name: str) -> list[Action]:
        """The present attempt of a job is known dead."""
        return self.ended(name, RunEnd.LOST)

    def stopped(self, name: str) -> list[Action]:
        """The present attempt of a job has ended because it was told to."""
        return self.ended(name, RunEnd.STOPPED)

    def cancel(self, name: str) -> list[Action]:
        """The user no longer wants a job."""
        return self.tell(CancelRequested(name))

    def hold(self, *names: str) -> list[Action]:
        """The user wants jobs kept out of the queue."""
        return self.tell(*map(HoldRequested, names))

    def release(self, *names: str) -> list[Action]:
        """The user lets jobs wait again."""
        return self.tell(*map(ReleaseRequested, names))

    def requeue(self, name: str) -> list[Action]:
        """The user wants the run of a job stopped, and the job queued again."""
        return self.tell(RequeueRequested(name))

    def edit(self, name: str, **changes: Any) -> list[Action]:
        """The user changes a job that waits."""
        return self.tell(EditRequested(name, JobEdit(**changes)))

    def ready(self, *instances: str) -> list[Action]:
        """Machines are up; their bill begins now."""
        return self.tell(*(InstanceReady(name, self.now) for name in instances))

    def no_launch(self, instance: str) -> list[Action]:
        """A machine could not be had."""
        return self.tell(InstanceFailed(instance, "no capacity", sold_out=True))

    def cut_off(self, instance: str) -> list[Action]:
        """Nobody gets through to a machine."""
        return self.tell(InstanceUnreachable(instance))

    def heard_of(self, instance: str) -> list[Action]:
        """A machine answers again."""
        return self.tell(InstanceReachable(instance))

    def gone(self, instance: str, *, preempted: bool = False) -> list[Action]:
        """A machine is no more."""
        record = self.scheduler.state.fleet.instances[instance]
        launched_at = self.now if record.launched_at is None else record.launched_at
        return self.tell(InstanceGone(instance, launched_at, self.now, preempted))

    def offload(self, name: str) -> None:
        """A job that was sent off gets its machines and runs there."""
        self.ready(*dict.fromkeys(slot.where for slot in self[name].slots))
        self.started(name)

    def __getitem__(self, name: str) -> JobRecord:
        """The record of a job, also of one that is over."""
        return self._records[name]

    def phase(self, name: str) -> str:
        """The state of a job."""
        return self[name].phase.value

    def nodes_of(self, name: str) -> list[str]:
        """Where the tasks of a job are, by rank."""
        return [slot.where for slot in self[name].slots]

    def free(self, name: str = "n0") -> int:
        """Free GPUs of a node."""
        return self.scheduler.state.capacity.free(name).gpus

    @property
    def instances(self) -> list[str]:
        """Machines that have not ended."""
        return list(self.scheduler.state.fleet.instances)

    def log(self, subject: str, kind: str = "") -> list[Decision]:
        """The decisions on a job or machine."""
        return [d for d in self.scheduler.log if d.subject == subject and kind in ("", d.kind)]

    def why(self, subject: str, kind: str) -> str:
        """The reason of the last decision of a kind."""
        return self.log(subject, kind)[-1].reason


def split_gang(desk: Desk, name: str) -> None:
    """Put a running gang onto an instance per machine, as it was stored before several were rented as one."""
    state, record = desk.scheduler.state, desk[name]
    whole = state.fleet.instances.pop(record.slots[0].where)
    count = whole.offer.nodes
    single = replace(whole.offer, nodes=1, price_per_hour=Money(whole.rate.micro_usd // count))
    for node in range(count):
        one = state.fleet.launch(single, desk.now) if node else replace(whole, offer=single)
        one = replace(one, rate=state.fleet.rate(single), phase=whole.phase, launched_at=whole.launched_at)
        state.fleet.instances[one.id] = replace(one, job_ids=[], billed_to=[], held={}, uses=[])
    names = list(state.fleet.instances)[-count:]
    record.slots = tuple(Slot(slot.rank, names[slot.node], slot.resources) for slot in record.slots)
    record.open_bills = state.fleet.hold(name, record.slots, desk.now)
    desk.scheduler.live[name] = record.attempt, set(names)


def starts(actions: Iterable[Action]) -> list[str]:
    """Jobs to start, in order."""
    return [action.job_id for action in actions if isinstance(action, StartRun)]


def stops(actions: Iterable[Action]) -> list[str]:
    """Jobs to stop, in order."""
    return [action.job_id for action in actions if isinstance(action, StopRun)]


def launches(actions: Iterable[Action]) -> list[str]:
    """Offers to rent, in order."""
    return [action.offer_name for action in actions if isinstance(action, LaunchInstance)]


def returns(actions: Iterable[Action]) -> list[str]:
    """Machines to give back, in order."""
    return [action.instance_id for action in actions if isinstance(action, TerminateInstance)]


def world(
    *gpus: int,
    offers: Iterable[Offer] = (offer(),),
    on_step: Callable[[float, Changes], None] | None = None,
    **settings: Any,
) -> World:
    """A virtual world with a watched scheduler in it."""
    return World(Watched(Settings(**settings)), nodes(*gpus), offers, on_step=on_step)


def arrival(item: Job, *, at: float = 0.0, takes: float = HOUR) -> SimJob:
    """A job of a virtual world; times in seconds."""
    return SimJob(item, at, takes)


def snapshot(scheduler: Scheduler) -> Snapshot:
    """All of a scheduler's state, cut off from it."""
    return deepcopy(
        Snapshot(
            facts(scheduler.state),
            list(scheduler.state.jobs.values()),
            list(scheduler.state.fleet.instances.values()),
            scheduler.state.capacity.nodes,
            list(scheduler.state.fleet.offers.values()),
            scheduler.state.fleet.speeds.snapshot(),
            scheduler.state.run_times.accuracies,
        )
    )
