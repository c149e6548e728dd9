"""Stratus (SoCC'18) against a fleet that packs onto what runs and rents the cheapest machine for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np

from sim.eva_replica.run import simulate_packed
from sim.experiments.packing.eva_files import (
    at_hand,
    beside,
    cloud,
    spread,
    took,
    two_at_a_time,
    write_wrapped,
)
from sim.experiments.shared import table
from sim.packing.cloud import CloudModel
from sim.packing.inputs import Kind, PackedJob, PairThroughput
from sim.packing.results import PackedResult
from starburst.domain.job import Task
from starburst.domain.resources import Resources
from starburst.policy.packing.machines import Machines
from starburst.policy.packing.packers.stratus import assumed_remaining_s
from starburst.policy.packing.plan import Packer, Plan, Situation
from starburst.policy.packing.registry import packer

COMMAND = "python -m sim.experiments.packing.stratus"
TRACES = 5
JOBS = 600
#: Seconds from job to job.
GAP_S = 60.0
#: Tasks of a job → share.
SIZES = {1: 0.7, 2: 0.1, 4: 0.1, 8: 0.1}
#: CPUs and GiB of memory of a task: log-normal, independent; median, spread, and between which they are cut.
CPUS, MEMORY = (1.5, 1.0, 0.1, 32.0), (4.0, 1.2, 0.1, 128.0)
#: Log-normal run times: median, spread, and the longest that are kept (slide 40: jobs of up to a day).
MEDIAN_H, SIGMA, LONGEST_H = 0.5, 1.5, 24.0
#: Seconds from plan to plan: batch jobs cannot wait for five minutes, and the slides place them on arrival.
PERIOD_S = 60.0
BATCH = Kind("batch", pace=1.0, fetch_s=1.0, kill_s=1.0, upload_s=2.0, init_s=2.0)
#: What the slides show as published: saving against the fleet, percent.
PUBLISHED = {"Google": 17, "TwoSigma": 22}
#: Name → packer, and by how much its estimates are off at most; None: it is told nothing.
CASES: Mapping[str, tuple[str, float | None]] = {
    "No-Packing": ("none", None),
    "Fleet": ("fleet", None),
    "Stratus": ("stratus", 0.0),
    "Stratus, estimates ± 50 %": ("stratus", 0.5),
    "Stratus, no estimates": ("stratus", None),
    "Eva": ("eva", None),
}


class SpotFleet:
    """Spot Fleet's LowestPrice with ECS's BinPack (slide 41): each new task goes onto the machine that it
    fills best; if none has room, onto a new one of the cheapest type that holds it. Nothing moves.
    """

    def plan(self, situation: Situation) -> Plan:
        """New tasks in the order in which they are given."""
        machines = Machines(situation)
        for task in machines.pending:
            rows = machines.room(task)
            if len(rows):
                m = int(rows[np.argmin(machines.left_over(rows, task))])
            else:
                m = machines.rent(int(machines.classes.home[machines.classes.of[task.key]]))
            machines.put(m, task)
        return machines.plan("fleet")


@dataclass(frozen=True, slots=True)
class Misjudging:
    """A packer whose users misjudge how long their jobs run."""

    inner: Packer
    #: Job → run time, and what it is said to be, seconds.
    run_s: Mapping[str, float]
    said_s: Mapping[str, float]

    def plan(self, situation: Situation) -> Plan:
        """With what the estimates leave; one that was outlived counts as half of the run time."""
        tasks = []
        for task in situation.tasks:
            assert task.remaining_s is not None
            elapsed_s = self.run_s[task.job_id] - task.remaining_s
            left_s = assumed_remaining_s(self.said_s[task.job_id], elapsed_s)
            tasks.append(replace(task, remaining_s=left_s))
        return self.inner.plan(replace(situation, tasks=tuple(tasks)))


def batch_jobs(seed: int, jobs: int = JOBS) -> list[PackedJob]:
    """Batch jobs of less than a day, without GPUs."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(GAP_S, jobs)).tolist()
    hours = rng.lognormal(np.log(MEDIAN_H), SIGMA, 4 * jobs)
    duration_s = np.round(3600 * hours[hours < LONGEST_H][:jobs]).tolist()
    sizes = rng.choice(list(SIZES), jobs, p=list(SIZES.values())).tolist()
    cpus, memory_gib = (_amounts(rng, jobs, shape) for shape in (CPUS, MEMORY))
    made = []
    for row in range(jobs):
        wants = Resources.of(0, cpus[row], memory_gib[row])
        gang = tuple(Task(str(row), rank, wants, workload=BATCH.name) for rank in range(sizes[row]))
        made.append(PackedJob(str(row), arrival_s[row], duration_s[row], gang))
    return made


def _amounts(rng: np.random.Generator, jobs: int, shape: tuple[float, float, float, float]) -> list[float]:
    median, sigma, least, most = shape
    drawn: list[float] = rng.lognormal(np.log(median), sigma, jobs).clip(least, most).round(1).tolist()
    return drawn


def one(case: tuple[str, int], jobs: int = JOBS) -> PackedResult:
    """Simulate a case on the trace of this seed; nothing slows anything."""
    name, off = CASES[case[0]]
    trace = batch_jobs(case[1], jobs)
    used: Packer = SpotFleet() if name == "fleet" else packer(name)
    if off:
        luck = np.random.default_rng(1000 + case[1]).uniform(1 - off, 1 + off, len(trace)).tolist()
        run_s = {job.id: job.duration_s for job in trace}
        said_s = {job.id: job.duration_s * factor for job, factor in zip(trace, luck, strict=True)}
        used = Misjudging(used, run_s, said_s)
    still = PairThroughput(default=1.0)
    machines = [machine for machine in cloud().catalog if not machine.offer.resources.gpus]
    return simulate_packed(
        trace,
        CloudModel(machines, {BATCH.name: BATCH}, still),
        used,
        period_s=PERIOD_S,
        sees=still,
        estimates=off is not None,
    )


def rows_of(done: Mapping[str, Sequence[PackedResult]]) -> list[tuple[str, ...]]:
    """A row for each case."""
    rows: list[tuple[str, ...]] = []
    for name, results in done.items():
        saved = saving(results, done["Fleet"])
        rows.append(
            (
                name,
                "$" + spread([result.cost for result in results], ".0f"),
                "–" if name == "Fleet" else f"**{spread(saved, '.1f', ' %')}**",
                f"{mean(result.cpu_allocation for result in results):.0%}",
                f"{mean(result.mean_jct_h for result in results):.2f}",
                f"{mean(result.instances for result in results):.0f}",
                f"{mean(result.migrations for result in results):.0f}",
            )
        )
    return rows


def saving(results: Sequence[PackedResult], base: Sequence[PackedResult]) -> list[float]:
    """Percent less than another packer, trace by trace."""
    return [100 * (1 - ours.cost / theirs.cost) for ours, theirs in zip(results, base, strict=True)]


def reading(done: Mapping[str, Sequence[PackedResult]]) -> str:
    """What to make of it, told by the figures."""
    saved = {name: mean(saving(results, done["Fleet"])) for name, results in done.items()}
    fleet, alone = (mean(result.cost for result in done[name]) for name in ("Fleet", "No-Packing"))
    against = beside(fleet, alone)
    return f"""## Reading it

- Against the fleet, Stratus saves {saved["Stratus"]:.1f} % of cost with exact estimates and
{saved["Stratus, estimates ± 50 %"]:.1f} % with wrong ones; published are {PUBLISHED["Google"]} % (Google) and
{PUBLISHED["TwoSigma"]} % (TwoSigma). Told nothing it saves {saved["Stratus, no estimates"]:.1f} %: then every
task is in the same bin, and what is left is that it rents for several tasks at once and clears machines.
- The fleet costs {against} than a machine for each task: it rents small machines, onto which little else
fits, and keeps them for their last task.
- Eva knows nothing of run times and moves tasks, and saves {saved["Eva"]:.1f} %. A move takes seconds here;
tasks that cannot be moved need Stratus.
- What packing saves hangs on the demands. In a first setting CPUs were powers of two, which fill machines of
this catalog without rest, and Stratus saved nothing. The published figures are of other jobs and of prices
that change. So agreement is in kind."""


def main() -> None:
    """Run all, write the page."""
    if not at_hand():
        return
    cases = [(name, seed) for name in CASES for seed in range(TRACES)]
    results = list(two_at_a_time(one, cases))
    done = {
        name: [result for (case, _), result in zip(cases, results, strict=True) if case == name]
        for name in CASES
    }
    head = ("packer", "cost", "saved against Fleet", "CPUs in use", "mean JCT, h", "machines", "moves")
    said = INTRODUCTION.replace("TIME", took(results))
    write_wrapped("packing-stratus", [said, table(head, rows_of(done)), reading(done)])


INTRODUCTION = f"""# Stratus against a fleet

`{COMMAND}` (TIME): Stratus (SoCC'18, by its slides) against what they compare it with: Amazon's Spot
Fleet with LowestPrice, ECS with BinPack (`SpotFleet` in `sim/experiments/packing/stratus.py`: best fit onto
what runs, else the cheapest type that holds the task). The Google and TwoSigma traces are not at hand, so the
jobs are **generated**: {TRACES} traces (seeds from 0; "±" is over them) of {JOBS} batch jobs without GPUs,
Poisson arrivals a minute apart; 1, 2, 4 or 8 tasks (p .7/.1/.1/.1); log-normal CPUs (median 1.5, σ 1, .1 to
32) and memory (median 4 GiB, σ 1.2, .1 to 128) that know nothing of each other, as requests in Google's
traces are any share of a machine; log-normal run times with a median of half an hour and σ 1.5, all less than
a day as on the slides. C7i and R7i at fixed prices, a plan every minute, no interference. "± 50 %":
each job's
estimate is its run time times a factor drawn evenly between .5 and 1.5."""


if __name__ == "__main__":
    main()
