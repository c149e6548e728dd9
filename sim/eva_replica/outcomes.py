"""Cost of a packed cloud and outcomes of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.eva_replica.state import JobProgress, Machine, SimulatedTask, amounts
from sim.packing.results import JobOutcome, PackedResult
from starburst.policy.packing.plan import Plan

_HOUR = 3600.0
_MICRO = 1e6


@dataclass(slots=True)
class UsageMeter:
    """Accumulates costs, usage and outcomes during the simulation."""

    #: Micro-dollars per hour × seconds.
    bill: float = 0.0
    instances: int = 0
    migrations: int = 0
    #: Instance-seconds paid for; task-seconds on instances.
    paid_s: float = 0.0
    task_s: float = 0.0
    #: GPUs, milli-CPUs and MiB × seconds: paid for and taken.
    paid: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    taken: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    plans: int = 0
    full: int = 0
    #: Current lower bound, since when, and its integral over time (micro-dollars per hour × seconds).
    bound: float | None = 0.0
    _bound_rate: int = 0
    _bound_since: float = 0.0
    jobs: list[JobOutcome] = field(default_factory=list)

    def gone(self, machine: Machine, now: float) -> None:
        """An instance was terminated."""
        if now < machine.billed_from:
            return
        lasted = now + machine.type.terminate_s - machine.billed_from
        price = machine.type.offer.price_per_hour
        assert price is not None
        self.bill += price.micro_usd * lasted
        self.paid_s += lasted
        for k, amount in enumerate(amounts(machine.type.offer.resources)):
            self.paid[k] += amount * lasted

    def left(self, member: SimulatedTask, machine: Machine, now: float) -> None:
        """A task left an instance."""
        lasted = now - member.since
        self.task_s += lasted
        for k, amount in enumerate(amounts(member.demand(machine))):
            self.taken[k] += amount * lasted

    def planned(self, plan: Plan, now: float) -> None:
        """A plan takes effect."""
        self.plans += 1
        self.full += plan.reason.lower().startswith("full")
        self.bound_is(None if plan.lower_bound is None else plan.lower_bound.micro_usd, now)

    def bound_is(self, rate: int | None, now: float) -> None:
        """Set the lower bound on cost from now on, micro-dollars per hour."""
        if self.bound is not None:
            self.bound += self._bound_rate * (now - self._bound_since)
        if rate is None:
            self.bound = None
        self._bound_rate, self._bound_since = rate or 0, now

    def ended(self, run: JobProgress, now: float) -> None:
        """A job has ended."""
        arrival = run.job.arrival_s
        moves = sum(member.task.moves for member in run.members)
        idle_s = now - arrival - run.active_s
        throughput = run.work_s / run.running_s if run.running_s else 1.0
        self.jobs.append(JobOutcome(run.job.id, arrival, now, idle_s, throughput, moves))

    def result(self, order: Sequence[str], cpu_seconds: float, packer_cpu_seconds: float) -> PackedResult:
        """The statistics, with the jobs in this order."""
        place = {job: n for n, job in enumerate(order)}
        jobs = sorted(self.jobs, key=lambda job: place[job.id])
        gpu, cpu, ram = (t / p if p else 0.0 for t, p in zip(self.taken, self.paid, strict=True))
        return PackedResult(
            cost=self.bill / _HOUR / _MICRO,
            mean_jct_h=_mean([job.end_s - job.arrival_s for job in jobs]) / _HOUR,
            instances=self.instances,
            migrations=self.migrations,
            tasks_per_instance=self.task_s / self.paid_s if self.paid_s else 0.0,
            gpu_allocation=gpu,
            cpu_allocation=cpu,
            ram_allocation=ram,
            full_share=self.full / self.plans if self.plans else 0.0,
            plans=self.plans,
            mean_idle_h=_mean([job.idle_s for job in jobs]) / _HOUR,
            mean_throughput=_mean([job.throughput for job in jobs]),
            bound=None if self.bound is None else self.bound / _HOUR / _MICRO,
            cpu_seconds=cpu_seconds,
            packer_cpu_seconds=packer_cpu_seconds,
            jobs=tuple(jobs),
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
