"""Starburst in front, Eva behind: what waiting and packing save together, in dollars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from sim.eva_replica.outcomes import PackedResult
from sim.eva_replica.run import simulate_packed
from sim.experiments.packing.eva_files import (
    NAMES,
    at_hand,
    beside,
    cloud,
    eva_trace,
    took,
    two_at_a_time,
    write_wrapped,
)
from sim.experiments.shared import shared_trace, table
from sim.experiments.waiting.end_to_end import HELIOS, PHILLY
from sim.experiments.workloads import helios_like
from sim.packing.behind import Both, Share, gpus_per_task, in_seconds, job_maker, leaving, together
from sim.packing.workloads import drawn
from sim.readers.columns import chosen
from sim.run import Run, run
from sim.spec import Spec
from sim.sweep import no_wait
from sim.trace import Trace
from starburst.policy.packing.registry import packer

COMMAND = "python -m sim.experiments.packing.both_papers"
PACKERS = ("none", "eva", "optimal")
POLICIES = ("No-Wait", "Compute-Wait", "calibrated, P = 10 %")
WINDOW, HELIOS_JOBS = 10_000, 80_000
SEED = 1
#: vCPUs and GiB that come with a GPU on p3; a job of several GPUs asks for no more for each.
WITH_GPU = (8.0, 61.0)


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """A load on its cluster, and what its jobs ask for in the cloud besides GPUs."""

    title: str
    load: str
    base: Spec
    alpha: float
    #: As jobs of the Alibaba-shaped trace ask for; else half of what comes with a GPU.
    alibaba: bool

    def __repr__(self) -> str:
        return self.title

    def spec(self, policy: str) -> Spec:
        """A policy on this cluster."""
        if policy == "No-Wait":
            return no_wait(self.base)
        ours = replace(self.base, out_of_order=True)
        if policy == "Compute-Wait":
            return replace(ours, waiting="compute", factor=self.alpha)
        return replace(ours, waiting="compute", budget_percent=10.0, budget_mode="calibrated")


CASES = (
    Case("Philly, demands as Alibaba's jobs", "philly", replace(PHILLY, warmup=500), 0.076, True),
    Case("Philly, half of what comes with a GPU", "philly", replace(PHILLY, warmup=500), 0.076, False),
    Case("Like Helios, demands as Alibaba's jobs", "helios", HELIOS, 0.04, True),
    Case("Like Helios, half of what comes with a GPU", "helios", HELIOS, 0.04, False),
)
Key = tuple[Case, str, str]


@cache
def load(name: str) -> Trace | None:
    """The first jobs of Philly, or jobs like Helios'."""
    if name == "helios":
        return helios_like(HELIOS_JOBS, cv=8.0, seed=SEED)
    trace = shared_trace("philly.csv")
    return None if trace is None else chosen(trace, np.arange(min(WINDOW, len(trace))))


@cache
def front(case: Case, policy: str) -> tuple[Run, float]:
    """The cluster under a policy; the mean JCT under No-Wait in an undisturbed cloud."""
    trace = load(case.load)
    assert trace is not None
    at_once = run(trace, no_wait(case.base)).result.mean_jct_h
    return run(trace, case.spec(policy)), at_once


def asking(trace: Trace, case: Case) -> tuple[Trace, list[str]]:
    """The jobs with what they ask for in the cloud, and what each runs.

    As Alibaba's: CPUs, memory and workload of a job of one GPU drawn from that trace, times the GPUs.
    """
    if not case.alibaba:
        sizes = gpus_per_task(trace, cloud().most_gpus)
        usual = {name: 0 if name in ("gcn", "a3c", "seq", "openfoam") else 1 for name in cloud().measured}
        return trace, drawn(cloud().measured, usual, np.minimum(sizes, 1), SEED)
    models = [job.tasks[0] for job in eva_trace("full_gavel") if job.tasks[0].resources.gpus == 1]
    picks = np.random.default_rng(SEED).integers(0, len(models), len(trace))
    asked = [(models[pick].resources.cpus, models[pick].resources.memory_gib) for pick in picks.tolist()]
    each = np.array(asked)
    each = np.where(trace.gpus[:, None] > 1, np.minimum(each, WITH_GPU), each)
    total = each * np.maximum(trace.gpus, 1)[:, None]
    wants = replace(trace, cpus=total[:, 0], memory_gib=total[:, 1])
    return wants, [models[pick].workload for pick in picks.tolist()]


def packed(key: Key) -> PackedResult:
    """Who leaves the cluster, in the cloud."""
    case, policy, name = key
    trace, (ahead, _) = load(case.load), front(case, policy)
    assert trace is not None
    job_of = job_maker(*asking(trace, case), cloud().most_gpus, Share())
    gone = leaving(trace, ahead.outcomes, case.base.warmup, job_of)
    kinds = in_seconds(cloud().kinds)
    return simulate_packed(gone, cloud().catalog, kinds, cloud().truth, packer(name))


def rows_of(case: Case, done: Mapping[Key, Both]) -> Iterator[tuple[str, ...]]:
    """A row for each policy and packer."""
    base = done[case, "No-Wait", "none"].packed.cost
    for policy in POLICIES:
        for name in PACKERS:
            both = done[case, policy, name]
            result = both.front.result
            yield (
                policy,
                NAMES[name],
                f"**${both.packed.cost:,.0f}**",
                f"{100 * both.packed.cost / base:.1f} %",
                f"{both.jct_increase_percent:+.1f} %",
                f"{result.cloud_jobs:,}",
                f"{result.cloud_cost:,.0f}",
                f"${both.packed.cost / result.cloud_cost:.2f}",
                f"{both.packed.mean_idle_h * 60:.0f}",
                f"{both.packed.migrations:,}",
            )


def of_case(case: Case, done: Mapping[Key, Both]) -> str:
    """What a case says, told by its figures."""
    bill = {(p, n): done[case, p, n].packed.cost for p in POLICIES for n in PACKERS}
    longer = {(p, n): done[case, p, n].jct_increase_percent for p, n in bill}
    cheapest = min(bill, key=lambda key: bill[key])
    first, wait, held = POLICIES
    return (
        f"Packing alone costs {beside(bill[first, 'eva'], bill[first, 'none'])} (Eva) and "
        f"{beside(bill[first, 'optimal'], bill[first, 'none'])} (`optimal`) than No-Wait with a machine per "
        f"task; waiting alone costs {beside(bill[wait, 'none'], bill[first, 'none'])} (Compute-Wait) and "
        f"{beside(bill[held, 'none'], bill[first, 'none'])} (calibrated). The least is paid with "
        f"{cheapest[0]} and {NAMES[cheapest[1]]}: {beside(bill[cheapest], bill[first, 'none'])}, with jobs "
        f"{longer[cheapest]:.1f} % longer than under No-Wait in a cloud without start-up or interference "
        f"({longer[first, 'none']:.1f} % for No-Wait with a machine per task). Packing changes a bill behind "
        f"No-Wait by {100 * (bill[first, 'optimal'] / bill[first, 'none'] - 1):+.1f} %, behind "
        f"Compute-Wait by "
        f"{100 * (bill[wait, 'optimal'] / bill[wait, 'none'] - 1):+.1f} % (`optimal`)."
    )


def joined(key: Key, result: PackedResult) -> Both:
    """Cluster and cloud together."""
    case, policy, _ = key
    trace, (ahead, at_once) = load(case.load), front(case, policy)
    assert trace is not None
    return together(trace, ahead, result, warmup=case.base.warmup, no_wait_jct_h=at_once)


def main() -> None:
    """Run all, write the page."""
    if not at_hand():
        return
    cases = [case for case in CASES if load(case.load) is not None]
    for case in cases:
        for policy in POLICIES:
            front(case, policy)
    keys = [(case, policy, name) for case in cases for policy in POLICIES for name in PACKERS]
    results = list(two_at_a_time(packed, keys))
    done = {key: joined(key, result) for key, result in zip(keys, results, strict=True)}
    parts = [INTRODUCTION.replace("TIME", took(results))]
    for case in cases:
        parts += [f"## {case.title}", table(HEAD, rows_of(case, done)), of_case(case, done)]
    write_wrapped("both-papers", [*parts, READING])


HEAD = (
    *("policy", "packer", "bill", "of No-Wait, No-Packing", "mean JCT", "cloud jobs", "cloud GPU-h"),
    *("per GPU-h", "idle, min", "moves"),
)

INTRODUCTION = f"""# Starburst × Eva: waiting and packing together

`{COMMAND}` (TIME for the clouds): no paper has this. Starburst decides who leaves the cluster and when; those
who leave are packed onto rented machines. Three waiting policies times three packers: a machine per task,
Eva, and `optimal`, our own. Philly is the first {WINDOW:,} jobs on 64 × 8 GPUs, warm-up 500 (the other
experiments have all 82,247 and 5,000); the load like Helios is the {HELIOS_JOBS:,} generated jobs with bursts
of `end-to-end.md` on 80 × 8, warm-up 5,000. First-fit; Compute-Wait and the calibrated budget go out
of order,
without a cap on the queue. α is .076 and .04, as in the paper's scripts.

The cloud is Eva's: 21 EC2 types at its prices, a plan every 300 s, its delays and its interference. Traces of
clusters do not say what jobs ask for besides GPUs, and that decides what there is to pack. So it is told
twice: with CPUs, memory and workload of jobs of one GPU **drawn** from the Alibaba-shaped trace (many ask for
more CPUs than come with a GPU, and alone rent four GPUs for one), and with half of what comes with a
GPU. Jobs
of several GPUs never ask for more than what comes with theirs. Bills are of the jobs that count; those of the
warm-up rent nothing. "Mean JCT" is against No-Wait in a cloud where every job runs at once and undisturbed;
"cloud GPU-h" is what Starburst's own simulator bills."""

READING = """## Reading it

- The two save on different things: waiting keeps work out of the cloud, packing makes what goes there
cheaper. What packing saves hangs on what jobs ask for: where their demands fill machines there is nothing to
pack, and only 2-GPU jobs (no machine has two) and machines kept for the next job are left.
- A GPU-hour in the cloud is dearer behind a policy that waits. It sends more jobs out than No-Wait, and short
ones, and each pays for a machine that starts; and they are mostly of one GPU, the ones that may ask for more
than what comes with it. Starburst's own bill in GPU-hours shows neither. Both are what packing takes back, so
packing saves a greater share behind such a policy than behind No-Wait.
- Completion times have a price for the cloud itself in them (start-up, plans every five minutes and, if
packed, interference), which Starburst's simulator leaves out. That of the waiting policies on Philly is more
than in `end-to-end.md`: there is no cap on the queue, and the first jobs come to a fuller cluster."""


if __name__ == "__main__":
    main()
