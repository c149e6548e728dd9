"""Simulation of the real core with its packer over a trace: a cluster, and a cloud of shared instances."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sim.engines.artifact_backfill import ArtifactBackfill
from sim.outcomes import Outcomes, measure, measure_queues
from sim.packing.cloud import CloudModel
from sim.packing.demands import JobOf
from sim.packing.inputs import PackedJob
from sim.packing.results import JobOutcome, PackedResult
from sim.packing.shared_cloud import SharedCloud
from sim.run import SimulationRun, estimates, max_rss_mb
from sim.slowdowns import slowdowns
from sim.spec import HOUR_S, Spec
from sim.trace import Floats, Trace
from sim.world import SimJob
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.spare_room import SpareRoom
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.domain.job import Job, Site
from starburst.domain.money import MICRO
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.packers.none import NoPacking
from starburst.policy.packing.plan import Packer, Plan, Situation
from starburst.policy.packing.registry import packer


def counted(jobs: int, warmup: int) -> slice:
    """The counted rows, as in `sim.outcomes.measure`."""
    return slice(warmup, jobs - warmup + 1)


@dataclass(frozen=True, slots=True)
class Both:
    """Statistics of a cluster and the shared instances of its cloud, over the counted jobs."""

    #: All jobs; its bill is in GPU-hours, as if each job had its own instances.
    front: SimulationRun
    packed: PackedResult
    #: Completion time of each counted job.
    jct_h: Floats
    #: Mean completion time if each job ran in the cloud at once and undisturbed.
    no_wait_jct_h: float

    @property
    def cost(self) -> float:
        """The cloud's bill for the counted jobs, dollars."""
        return self.packed.cost

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the simulation, including the packer."""
        return self.front.cpu_seconds + self.packed.cpu_seconds

    @property
    def mean_jct_h(self) -> float:
        """Mean completion time of the counted jobs."""
        return float(np.mean(self.jct_h))

    @property
    def jct_increase_percent(self) -> float:
        """Increase of the mean completion time over `no_wait_jct_h`: waits, startups and slow-downs."""
        return 100 * (self.mean_jct_h / self.no_wait_jct_h - 1) if self.no_wait_jct_h else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Stable keys, as in `-o json`."""
        figures, result = self.packed.as_dict(), self.front.result
        parameters = {
            "cloud_cost_usd": figures.pop("cost"),
            "mean_jct_h": self.mean_jct_h,
            "no_wait_jct_h": self.no_wait_jct_h,
            "jct_increase_percent": self.jct_increase_percent,
            "mean_wait_h": result.mean_wait_h,
            "cloud_jct_h": figures.pop("mean_jct_h"),
            "cluster_utilization": result.cluster_utilization,
            "cloud_jobs": result.cloud_jobs,
            "jobs_counted": result.jobs_counted,
            "passed_jobs": result.passed_jobs,
            "engine": self.front.engine,
            "waiting_cpu_seconds": self.front.cpu_seconds,
        }
        del figures["jobs_counted"]
        return parameters | figures


@dataclass(slots=True)
class CountedPacker:
    """A packer that counts its plans and measures its CPU time."""

    packer: Packer
    plans: int = 0
    full: int = 0
    cpu_seconds: float = 0.0

    def plan(self, situation: Situation) -> Plan:
        """The wrapped packer's plan."""
        before = time.process_time()
        plan = self.packer.plan(situation)
        self.cpu_seconds += time.process_time() - before
        self.plans += 1
        self.full += plan.reason.lower().startswith("full")
        return plan


class _OneAfterTheOther(SpareRoom):
    """Waiting knows nothing of the fleet: packing is asked when a wait is over."""

    def queued(self, record: JobRecord) -> None:
        """No job looks at machines."""

    def changed(self, machine: str) -> None:
        """No machine is looked at."""


@dataclass(slots=True)
class JobJournal:
    """Outcome of each job, by its row in the trace; scheduler seconds."""

    ended: dict[int, JobRecord] = field(default_factory=dict)
    left_at: dict[int, float] = field(default_factory=dict)
    micro_usd: dict[int, int] = field(default_factory=dict)

    def on_step(self, now: float, changes: Changes) -> None:
        """Record the effects of one step."""
        for decision in changes.decisions:
            if decision.kind == "offloaded":
                self.left_at[int(decision.subject)] = decision.at
        for record in changes.jobs.values():
            self.micro_usd[int(record.id)] = record.cloud_micro_usd
            if record.phase.is_end:
                self.ended[int(record.id)] = record


def simulate_burst(
    trace: Trace,
    job_of: JobOf,
    spec: Spec,
    cloud: CloudModel,
    packer_name: str,
    *,
    period_s: float = 300.0,
    knows_colocation: bool = False,
    joint: bool = True,
    no_wait_jct_h: float,
) -> Both:
    """Run the trace to its end: `policy.packer` is `packer_name`, `policy.pack_period` is `period_s`.

    `job_of`: demands and workload of the job of a row; every job checkpoints. `knows_colocation`: the
    scheduler starts with the true throughput table and does not learn. `joint`: whether queued jobs look at
    rented machines. `no_wait_jct_h`: the baseline of mean completion time.
    """
    began = time.process_time()
    counting = CountedPacker(packer(packer_name))
    settings = replace(spec.settings(unit_s=1.0), packer=packer_name, pack_period_s=period_s)
    scheduler = Scheduler(settings, counting)
    scheduler.state.fleet.shares = not isinstance(counting.packer, NoPacking)
    if not joint:
        scheduler.state.fleet.spare = _OneAfterTheOther()
    if knows_colocation:
        scheduler.state.fleet.speeds.table = Colocation.known(cloud.truth.values, cloud.truth.default)
    if spec.backfill and spec.backfill_rule == "artifact":
        scheduler.state.walk = ArtifactBackfill(scheduler.state)
    journal = JobJournal()
    world = SharedCloud(scheduler, spec.cluster(), cloud, journal.on_step)
    estimate_h = estimates(trace, spec)
    jobs = [job_of(row) for row in range(len(trace))]
    world.submit(_sim_job(trace, row, jobs[row], estimate_h, cloud) for row in range(len(trace)))
    world.run()
    outcomes = _outcomes(trace, journal)
    seconds = time.process_time() - began - counting.cpu_seconds
    front = SimulationRun(
        outcomes,
        measure(trace, outcomes, spec),
        measure_queues(trace, outcomes, spec),
        slowdowns(trace, outcomes, spec),
        "core",
        seconds,
        max_rss_mb(),
    )
    rows = counted(len(trace), spec.warmup)
    packed = _packed(trace, journal, world, counting, range(len(trace))[rows])
    return Both(front, packed, (outcomes.end_h - trace.arrival_h)[rows], no_wait_jct_h)


def _sim_job(trace: Trace, row: int, packed: PackedJob, estimate_h: Floats, cloud: CloudModel) -> SimJob:
    kind = cloud.kinds[packed.workload]
    job = Job(
        str(row),
        trace.ids[row],
        tuple(task.resources for task in packed.tasks),
        queue="" if trace.queues is None else trace.queues[row],
        runtime_estimate_s=None if np.isnan(estimate_h[row]) else float(estimate_h[row]) * HOUR_S,
        checkpoint=True,
        priority=0 if trace.priority is None else int(trace.priority[row]),
        grace_s=max(30.0, kind.save_s),
        workload=packed.workload,
        alone_per_s=kind.pace,
    )
    return SimJob(job, float(trace.arrival_h[row]) * HOUR_S, float(trace.duration_h[row]) * HOUR_S)


def _outcomes(trace: Trace, journal: JobJournal) -> Outcomes:
    """In hours; a cloud job's start is the time of its offload."""
    n = len(trace)
    records = [journal.ended[row] for row in range(n)]
    in_cloud = np.array([record.site is Site.CLOUD for record in records])
    started = [record.started_at or 0.0 for record in records]
    start_h = np.array([journal.left_at[i] if in_cloud[i] else started[i] for i in range(n)]) / HOUR_S
    return Outcomes(
        start_h=start_h,
        end_h=np.array([record.ended_at or 0.0 for record in records]) / HOUR_S,
        wait_h=start_h - trace.arrival_h,
        in_cloud=in_cloud,
        charged=np.where(in_cloud, trace.cost, 0.0),
        returned=np.zeros(n, bool),
        passed=np.array([record.passed for record in records]),
        node=np.array(
            [-1 if record.site is Site.CLOUD else int(record.slots[0].where) for record in records]
        ),
    )


def _packed(
    trace: Trace, journal: JobJournal, world: SharedCloud, packer: CountedPacker, rows: range
) -> PackedResult:
    """Bill and jobs are those counted; instances, tasks on them and plans are those of all jobs."""
    use = world.use
    jobs = []
    for row in rows:
        record = journal.ended[row]
        if record.site is Site.CLOUD:
            account, left_at, end = world.accounts[record.id], journal.left_at[row], record.ended_at or 0.0
            pace = account.work_s / account.progress_s if account.progress_s else 1.0
            idle_s = end - left_at - account.active_s
            jobs.append(JobOutcome(trace.ids[row], left_at, end, idle_s, pace, account.moves))
    gpu, cpu, ram = (taken / paid if paid else 0.0 for taken, paid in zip(use.taken, use.paid, strict=True))
    return PackedResult(
        cost=sum(journal.micro_usd.get(row, 0) for row in rows) / MICRO,
        mean_jct_h=_mean([job.end_s - job.arrival_s for job in jobs]) / HOUR_S,
        instances=use.instances,
        migrations=sum(account.moves for account in world.accounts.values()),
        tasks_per_instance=use.task_s / use.paid_s if use.paid_s else 0.0,
        gpu_allocation=gpu,
        cpu_allocation=cpu,
        ram_allocation=ram,
        full_share=packer.full / packer.plans if packer.plans else 0.0,
        plans=packer.plans,
        mean_idle_h=_mean([job.idle_s for job in jobs]) / HOUR_S,
        mean_throughput=_mean([job.throughput for job in jobs]),
        bound=None,
        cpu_seconds=packer.cpu_seconds,
        packer_cpu_seconds=packer.cpu_seconds,
        jobs=tuple(jobs),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
