"""Discrete-event simulation of a packed cloud: the packer plans in rounds, events occur between them.

The rules are those of Eva's simulator (EuroSys'25, section 5), inferred from its results for one instance per
task, which are reproduced to the cent. A task keeps running until its target instance is ready. Time is in
seconds. At one instant, arrivals precede the round, and the round precedes all else; jobs end on whole
seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import ceil
from time import process_time

from sim.eva_replica.check import check_plan
from sim.eva_replica.moves import movable
from sim.eva_replica.outcomes import UsageMeter
from sim.eva_replica.state import ACTIVE, JobProgress, Machine, SimulatedTask, Stage
from sim.packing.inputs import Kind, MachineType, PackedJob
from starburst.domain.job import Task
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.plan import Memory, Packer, Plan, Rented, Situation, TaskKey
from starburst.policy.packing.throughput import Company, Throughput, throughputs

_ARRIVAL, _ROUND, _LATER = range(3)
#: Tolerance for floating-point rounding, seconds; a job's end is rounded up to a whole second.
_SLACK_S = 1e-6


class PackedWorld:
    """Runs jobs to their ends on instances chosen by a packer."""

    def __init__(
        self,
        jobs: Iterable[PackedJob],
        machine_types: Sequence[MachineType],
        kinds: Mapping[str, Kind],
        truth: Throughput,
        packer: Packer,
        *,
        period_s: float = 300.0,
        sees: Throughput | None = None,
        estimates: bool = False,
    ) -> None:
        """`sees`: the throughputs given to the packer; None uses a table learnt during the simulation.

        `estimates`: give the packer the remaining time of tasks.
        """
        self.meter = UsageMeter()
        self.packer_cpu_seconds = 0.0
        self._types = {machine.offer.name: machine for machine in machine_types}
        self._offers = tuple(machine.offer for machine in machine_types)
        self._truth = truth
        self._packer = packer
        self._period_s = period_s
        self._learnt = Colocation()
        self._sees: Throughput = self._learnt if sees is None else sees
        self._estimates = estimates
        self._memory = Memory()
        self._heap: list[tuple[float, int, int, Callable[[float], None]]] = []
        self._seq = count()
        self._members: dict[TaskKey, SimulatedTask] = {}
        self._machines: dict[str, Machine] = {}
        #: Tasks that occupy an instance other than their target.
        self._movers: dict[SimulatedTask, None] = {}
        self._rates: dict[Company, dict[str, float]] = {}
        #: Jobs whose neighbours have changed since they were last observed.
        self._fresh: dict[JobProgress, None] = {}
        self._version = 0
        self._changed = False
        self._next_round = 0
        self._to_come = 0
        for job in jobs:
            self._to_come += 1
            self._at(job.arrival_s, _run_of(job, kinds[job.workload], self._arrive), _ARRIVAL)

    def run(self) -> None:
        """Process events until all jobs have ended and all instances are gone."""
        self._call_round(self._heap[0][0] if self._heap else 0.0)
        while self._heap:
            now, _, _, happen = heappop(self._heap)
            happen(now)

    def _at(self, when: float, happen: Callable[[float], None], order: int = _LATER) -> None:
        heappush(self._heap, (when, order, next(self._seq), happen))

    # Rounds

    def _call_round(self, earliest: float) -> None:
        """Schedule the next round at or after `earliest`."""
        self._next_round = max(self._next_round, ceil(earliest / self._period_s - _SLACK_S))
        self._at(self._next_round * self._period_s, self._round, _ROUND)

    def _round(self, now: float) -> None:
        self._observe(now)
        if self._changed or self._movers:
            self._changed = False
            self._plan(now)
        self._end_machines(now)
        self._next_round += 1
        if self._members or self._machines:
            self._call_round(now)
        elif self._to_come:
            self._call_round(self._heap[0][0])

    def _plan(self, now: float) -> None:
        if not self._members:
            self.meter.bound_is(0, now)
            return
        situation = Situation(
            tasks=tuple(self._task(member, now) for member in self._members.values()),
            offers=self._offers,
            instances=tuple(Rented(m.id, m.type.offer, tuple(m.held)) for m in self._machines.values()),
            throughput=self._sees,
            now=now,
            memory=self._memory,
        )
        before = process_time()
        plan = self._packer.plan(situation)
        self.packer_cpu_seconds += process_time() - before
        check_plan(plan, situation)
        self._memory = plan.memory
        self.meter.planned(plan, now)
        self._carry_out(plan, now)

    def _task(self, member: SimulatedTask, now: float) -> Task:
        if not self._estimates:
            return member.task
        left_s = member.run.left_s - member.run.rate * (now - member.run.since)
        return replace(member.task, remaining_s=max(left_s, 0.0))

    def _carry_out(self, plan: Plan, now: float) -> None:
        for machine in self._machines.values():
            self._hold(machine, plan.assignments.get(machine.id, ()))
        for launch in plan.launches:
            self._hold(self._launch(self._types[launch.offer.name], now), launch.tasks)
        self._movers = {member: None for member in self._members.values() if member.moving}
        self._move(now)
        for member in self._members.values():
            if member.stage is Stage.DOWN:
                self._start(member, now)

    def _hold(self, machine: Machine, tasks: Iterable[Task]) -> None:
        machine.held = {task.key: self._members[task.key] for task in tasks}
        for member in machine.held.values():
            member.target = machine

    # Machines

    def _launch(self, kind: MachineType, now: float) -> Machine:
        self.meter.instances += 1
        machine = Machine(f"m{self.meter.instances}", kind, billed_from=now + kind.acquire_s)
        self._machines[machine.id] = machine
        self._at(now + kind.offer.ready_s, lambda then: self._is_ready(machine, then))
        return machine

    def _is_ready(self, machine: Machine, now: float) -> None:
        machine.ready = True
        self._move(now)
        self._fill(machine, now)

    def _fill(self, machine: Machine, now: float) -> None:
        """Start the tasks that wait for room on this instance."""
        for member in machine.held.values():
            if member.stage is Stage.DOWN:
                self._start(member, now)

    def _end_machines(self, now: float) -> None:
        """Terminate instances without tasks and without assigned tasks."""
        for machine in [m for m in self._machines.values() if not m.held and not m.on]:
            del self._machines[machine.id]
            self.meter.gone(machine, now)

    # Tasks

    def _arrive(self, run: JobProgress, now: float) -> None:
        self._to_come -= 1
        self._changed = True
        for member in run.members:
            self._members[member.task.key] = member

    def _step(
        self, member: SimulatedTask, stage: Stage, seconds: float, now: float, then: Callable[..., None]
    ) -> None:
        """Enter a stage, and call `then` after `seconds` unless the stage is interrupted."""
        member.stage = stage
        member.step += 1
        step = member.step

        def happen(when: float) -> None:
            if member.step == step:
                then(member, when)

        self._at(now + seconds, happen)

    def _start(self, member: SimulatedTask, now: float) -> None:
        """Start a task on its target instance, if that is ready and has room."""
        machine = member.target
        if machine is None or not machine.ready or not machine.has_room(member.demand(machine)):
            return
        machine.on[member.task.key] = member
        machine.take(member.demand(machine), 1)
        member.machine, member.since = machine, now
        self._step(member, Stage.LAUNCHING, member.run.kind.fetch_s, now, self._fetched)

    def _fetched(self, member: SimulatedTask, now: float) -> None:
        """The first task to get here starts the build of the instance's image."""
        machine = member.machine
        assert machine is not None
        if machine.image_at is None:
            machine.image_at = now + member.run.kind.build_s
        self._step(member, Stage.LAUNCHING, max(machine.image_at - now, 0.0), now, self._built)

    def _built(self, member: SimulatedTask, now: float) -> None:
        self._step(member, Stage.STARTING, member.run.kind.init_s, now, self._up)
        assert member.machine is not None
        self._company_changed(member.machine, now)

    def _up(self, member: SimulatedTask, now: float) -> None:
        member.stage = Stage.RUNNING
        self._fresh[member.run] = None
        self._pace(member.run, now)

    def _move(self, now: float) -> None:
        """Stop the jobs that can move: all tasks of the job, as a gang stops and starts together."""
        for run in movable(self._movers) if self._movers else ():
            for member in run.members:
                if member.moving:
                    member.task = replace(member.task, moves=member.task.moves + 1)
                    self.meter.migrations += 1
                    del self._movers[member]
                if member.machine is not None and member.stage is not Stage.LEAVING:
                    was_active = member.stage in ACTIVE
                    self._step(member, Stage.LEAVING, run.kind.save_s, now, self._left)
                    if was_active:
                        self._company_changed(member.machine, now)
            self._pace(run, now)

    def _left(self, member: SimulatedTask, now: float) -> None:
        """A task that was told to leave has left its instance."""
        machine = self._take_off(member, now)
        self._start(member, now)
        self._fill(machine, now)

    def _take_off(self, member: SimulatedTask, now: float) -> Machine:
        machine = member.machine
        assert machine is not None
        del machine.on[member.task.key]
        machine.take(member.demand(machine), -1)
        self.meter.left(member, machine, now)
        member.machine, member.stage = None, Stage.DOWN
        return machine

    # Progress

    def _company_changed(self, machine: Machine, now: float) -> None:
        """Update the rates of the active tasks on an instance after one became active or inactive."""
        active = [member for member in machine.on.values() if member.stage in ACTIVE]
        rates = self._true_rates(active)
        for member in active:
            member.throughput = rates[member.task.workload]
            self._fresh[member.run] = None
            self._pace(member.run, now)

    def _true_rates(self, active: Sequence[SimulatedTask]) -> Mapping[str, float]:
        company = tuple(sorted(member.task.workload for member in active))
        if company not in self._rates:
            self._rates[company] = dict(zip(company, throughputs(self._truth, company), strict=True))
        return self._rates[company]

    def _pace(self, run: JobProgress, now: float) -> None:
        """A job progresses when all its tasks run, at the rate of the slowest."""
        run.watch_active(now)
        running = all(member.stage is Stage.RUNNING for member in run.members)
        rate = min(member.throughput for member in run.members) if running else 0.0
        if rate == run.rate:
            return
        run.settle(now)
        run.rate = rate
        run.version += 1
        if rate:
            version = run.version

            def happen(when: float) -> None:
                if run.version == version:
                    self._end(run, when)

            self._at(max(now, ceil(now + run.left_s / rate - _SLACK_S)), happen)

    def _end(self, run: JobProgress, now: float) -> None:
        run.settle(now)
        self._changed = True
        homes = []
        for member in run.members:
            key = member.task.key
            del self._members[key]
            self._movers.pop(member, None)
            assert member.target is not None
            member.target.held.pop(key, None)
            homes.append(self._take_off(member, now))
        run.watch_active(now)
        run.rate = 0.0
        self._fresh.pop(run, None)
        self.meter.ended(run, now)
        for machine in homes:
            self._company_changed(machine, now)
        self._move(now)
        for machine in homes:
            self._fill(machine, now)

    # Learning

    def _observe(self, now: float) -> None:
        """Record in the learnt table the throughputs of jobs and the workloads beside their tasks."""
        if self._sees is not self._learnt:
            return
        table, runs = self._learnt, dict(self._fresh)
        if table.version != self._version:
            # After a change of the table, the attribution of gangs may differ; single tasks would only
            # repeat.
            gangs = (m.run for m in self._members.values() if m.task.rank == 0 and len(m.run.members) > 1)
            runs.update(dict.fromkeys(gangs))
        self._version = table.version
        for run in runs:
            beside = [(m.task.workload, _beside(m)) for m in run.members] if run.rate else []
            if any(company for _, company in beside):
                table.observe(beside, run.rate, now=now)
        self._fresh.clear()
        self._changed |= table.version != self._version


def _beside(member: SimulatedTask) -> list[str]:
    """The workloads active beside a task."""
    assert member.machine is not None
    return [m.task.workload for m in member.machine.on.values() if m.stage in ACTIVE and m is not member]


def _run_of(
    job: PackedJob, kind: Kind, arrive: Callable[[JobProgress, float], None]
) -> Callable[[float], None]:
    """The arrival event of a job, whose work is a whole number of iterations."""
    iterations = int(job.duration_s * kind.pace) if job.iterations is None else job.iterations
    run = JobProgress(job, kind, iterations / kind.pace, iterations / kind.pace)
    run.members = [SimulatedTask(replace(task, move_s=kind.move_s), run) for task in job.tasks]
    return lambda now: arrive(run, now)
