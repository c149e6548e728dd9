"""Simulated cloud with instances shared by jobs: launch and fetch delays, interference and moves.

The scheduler under test is the real core: it offloads jobs, adds them to running instances, packs them,
consolidates instances and divides bills. This world carries out its actions, with the delays and throughputs
of its input files:

- An instance is billed from `acquire_s` after its request and accepts tasks after the offer's `ready_s`;
  billing ends `terminate_s` after its termination is requested.
- A task fetches its input at each start (`fetch_s`); the first task of a workload on an instance also builds
  the image (`build_s`). The run then counts as started, interferes with others, and makes progress after
  `init_s`. A run that is told to stop leaves after `save_s` and keeps its progress.
- A task runs at the throughput that the cloud's `truth` gives for the active tasks of its instance; a job
  runs at the rate of its slowest task. Once a run's rate has been constant for `SETTLED_S`, the run reports
  it, and from these reports the scheduler learns interference.

All times are seconds; the scheduler's clock has a unit of one second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sim.packing.cloud import CloudModel
from sim.packing.inputs import Kind, MachineType
from sim.world import Later, World
from starburst.core.model.actions import Action, LaunchInstance, Slot, StartRun, StopRun, TerminateInstance
from starburst.core.model.events import (
    Event,
    InstanceGone,
    InstanceReady,
    Progress,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.steps.interference import SETTLED_S
from starburst.domain.job import Site
from starburst.domain.node import Node
from starburst.policy.packing.throughput import Company, throughputs


@dataclass(slots=True)
class JobAccount:
    """Cloud usage of a job, over all its cloud runs."""

    work_s: float
    #: Seconds in which all its tasks were active, and in which it made progress.
    active_s: float = 0.0
    progress_s: float = 0.0
    #: Tasks started on a different instance than in the previous run.
    moves: int = 0
    slots: tuple[Slot, ...] = ()


@dataclass(slots=True, eq=False)
class SharedRun:
    """One run of a job on rented instances."""

    start: StartRun
    kind: Kind
    account: JobAccount
    left_s: float
    active_since: float | None = None
    ready: bool = False
    #: Rate (work per second), the time of the last settlement, and a version that grows when the rate
    #: changes.
    rate: float = 0.0
    since: float = 0.0
    version: int = 0

    @property
    def machines(self) -> list[str]:
        """Ids of the instances with its tasks, without duplicates."""
        return list(dict.fromkeys(slot.where for slot in self.start.slots))

    def settle(self, now: float) -> None:
        """Account for the work done until now."""
        if self.rate:
            self.left_s = max(0.0, self.left_s - self.rate * (now - self.since))
            self.account.progress_s += now - self.since
        self.since = now


@dataclass(slots=True)
class SharedMachine:
    """An instance, of one machine or several, from its request on."""

    type: MachineType
    billed_from: float
    nodes: int = 1
    #: Workload → time at which its image is built.
    image_at: dict[str, float] = field(default_factory=dict)
    active: dict[str, SharedRun] = field(default_factory=dict)


@dataclass(slots=True)
class CloudUse:
    """Rented and used resources, over all instances."""

    instances: int = 0
    #: Instance-seconds paid for, and task-seconds on instances.
    paid_s: float = 0.0
    task_s: float = 0.0
    #: GPUs, milli-CPUs and MiB × seconds: paid for, and held by tasks.
    paid: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    taken: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


class SharedCloud(World):
    """A cluster without delays, and a cloud with the delays and throughputs of its input files."""

    def __init__(
        self,
        scheduler: Scheduler,
        nodes: Iterable[Node],
        cloud: CloudModel,
        on_step: Callable[[float, Changes], None],
    ) -> None:
        """`on_step` is called after each step."""
        self._types = {machine.offer.name: machine for machine in cloud.catalog}
        offers = [machine.offer for machine in self._types.values()]
        super().__init__(scheduler, nodes, offers, on_step=on_step)
        self._cloud = cloud
        self._rates: dict[Company, dict[str, float]] = {}
        self._runs: dict[tuple[str, int], SharedRun] = {}
        self._machines: dict[str, SharedMachine] = {}
        #: Accounts of the jobs that have run in the cloud, by job id.
        self.accounts: dict[str, JobAccount] = {}
        self.use = CloudUse()

    def _perform(self, action: Action, now: float) -> None:
        match action:
            case LaunchInstance(instance_id, offer_name, nodes):
                self._launch(instance_id, self._types[offer_name], nodes, now)
            case TerminateInstance(instance_id):
                self._terminate(instance_id, now)
            case StartRun(site=Site.CLOUD):
                self._start(action, now)
            case StopRun(job_id, attempt, Site.CLOUD, _):
                self._stop(self._runs.pop((job_id, attempt)), now)
            case _:
                super()._perform(action, now)

    # Machines

    def _launch(self, name: str, kind: MachineType, nodes: int, now: float) -> None:
        self.use.instances += nodes
        billed_from = now + kind.acquire_s
        self._machines[name] = SharedMachine(kind, billed_from, nodes)
        self.at(now + kind.offer.ready_s, Later(lambda _: self._ready(name)))

    def _ready(self, name: str) -> Event | None:
        machine = self._machines.get(name)
        return None if machine is None else InstanceReady(name, machine.billed_from)

    def _terminate(self, name: str, now: float) -> None:
        machine = self._machines.pop(name)
        ends = max(machine.billed_from, now + machine.type.terminate_s)
        begins = min(machine.billed_from, ends) if now >= machine.billed_from else ends
        self.at(ends, InstanceGone(name, begins, ends))
        paid_s = (ends - begins) * machine.nodes
        self.use.paid_s += paid_s
        resources = machine.type.offer.resources
        for k, amount in enumerate((resources.gpus, resources.cpu_milli, resources.memory_mib)):
            self.use.paid[k] += amount * paid_s

    # Runs

    def _start(self, start: StartRun, now: float) -> None:
        job = self.scheduler.state.jobs[start.job_id].job
        account = self.accounts.setdefault(job.id, JobAccount(self._work_s[job.id]))
        before = {slot.rank: slot.where for slot in account.slots}
        account.moves += sum(before.get(slot.rank, slot.where) != slot.where for slot in start.slots)
        account.slots = start.slots
        run = SharedRun(start, self._cloud.kinds[job.workload], account, self._work_s[job.id], since=now)
        self._runs[job.id, start.attempt] = run
        self._book(run, -now)
        self._then(run, now + run.kind.fetch_s, self._fetched)

    def _then(self, run: SharedRun, when: float, then: Callable[[SharedRun, float], Event | None]) -> None:
        """Continue a run at `when`, unless it has ended or been stopped by then."""
        key = run.start.job_id, run.start.attempt
        self.at(when, Later(lambda now: then(run, now) if self._runs.get(key) is run else None))

    def _fetched(self, run: SharedRun, now: float) -> Event | None:
        """The first task of a workload on an instance starts the build of the image there."""
        built = [
            self._machines[name].image_at.setdefault(run.kind.name, now + run.kind.build_s)
            for name in run.machines
        ]
        self._then(run, max(now, *built), self._begin)
        return None

    def _begin(self, run: SharedRun, now: float) -> Event:
        run.active_since = now
        for name in run.machines:
            self._machines[name].active[run.start.job_id] = run
        self._company_changed(run, now)
        self._then(run, now + run.kind.init_s, self._initialised)
        return RunStarted(run.start.job_id, run.start.attempt)

    def _initialised(self, run: SharedRun, now: float) -> None:
        run.ready = True
        self._pace(run, now)

    def _stop(self, run: SharedRun, now: float) -> None:
        was_up = run.active_since is not None
        self._leave(run, now)
        self._work_s[run.start.job_id] = run.left_s
        ends = now + (run.kind.save_s if was_up else 0.0)
        self._book(run, ends)
        self.at(ends, Later(lambda _: RunEnded(run.start.job_id, run.start.attempt, RunEnd.STOPPED)))

    def _done(self, run: SharedRun, now: float) -> Event:
        del self._runs[run.start.job_id, run.start.attempt]
        self._leave(run, now)
        self._book(run, now)
        return RunEnded(run.start.job_id, run.start.attempt, RunEnd.EXITED, 0)

    def _leave(self, run: SharedRun, now: float) -> None:
        """The run stops making progress and interfering with others."""
        run.settle(now)
        run.rate = 0.0
        if run.active_since is None:
            return
        run.account.active_s += now - run.active_since
        for name in run.machines:
            del self._machines[name].active[run.start.job_id]
        self._company_changed(run, now)

    def _book(self, run: SharedRun, signed_at: float) -> None:
        """Add the time tasks hold instances: called with minus the start time, later with the end time."""
        for slot in run.start.slots:
            self.use.task_s += signed_at
            has = slot.resources
            for k, amount in enumerate((has.gpus, has.cpu_milli, has.memory_mib)):
                self.use.taken[k] += amount * signed_at

    # Progress

    def _company_changed(self, run: SharedRun, now: float) -> None:
        """Update the rates of all runs on this run's instances after it became active or left."""
        there = [other for name in run.machines for other in self._machines[name].active.values()]
        for other in dict.fromkeys(there):
            self._pace(other, now)

    def _pace(self, run: SharedRun, now: float) -> None:
        rate = min(self._throughput(run, name) for name in run.machines) if run.ready else 0.0
        if rate == run.rate:
            return
        run.settle(now)
        run.rate = rate
        run.version += 1
        version = run.version

        def end(run: SharedRun, at: float) -> Event | None:
            return self._done(run, at) if run.version == version else None

        def report(run: SharedRun, _: float) -> Event | None:
            return self._report(run) if run.version == version else None

        self._then(run, now + run.left_s / rate, end)
        if self.scheduler.state.fleet.shares:
            self._then(run, now + SETTLED_S, report)

    def _throughput(self, run: SharedRun, name: str) -> float:
        """Throughput of a run's tasks on an instance; all tasks of a run have the same workload."""
        active = self._machines[name].active.values()
        there = [(slot.node, r.kind.name) for r in active for slot in r.start.slots if slot.where == name]
        nodes = {slot.node for slot in run.start.slots if slot.where == name}
        companies = (tuple(sorted(kind for at, kind in there if at == node)) for node in nodes)
        return min(self._rate(company, run.kind.name) for company in companies)

    def _rate(self, company: Company, kind: str) -> float:
        """Throughput of a task of this workload among those on its machine."""
        if company not in self._rates:
            self._rates[company] = dict(zip(company, throughputs(self._cloud.truth, company), strict=True))
        return self._rates[company][kind]

    def _report(self, run: SharedRun) -> Event:
        """The rate of a run in iterations per second, as a live run reports it."""
        return Progress(run.start.job_id, run.start.attempt, 0.0, None, run.rate * run.kind.pace)
