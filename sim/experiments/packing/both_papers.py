"""What waiting and packing save together, in dollars, under the scheduler that ships."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

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
from sim.experiments.waiting.end_to_end import PHILLY
from sim.packing.burst import Both, counted, simulate_burst
from sim.packing.demands import Share, gpus_per_task, in_seconds, job_maker
from sim.packing.workloads import drawn
from sim.readers.columns import chosen
from sim.run import run
from sim.spec import Spec
from sim.sweep import no_wait
from sim.trace import Trace

COMMAND = "python -m sim.experiments.packing.both_papers"
#: Eva behind a queue that does not look at rented machines: who leaves is decided first, packing follows.
APART = "eva, afterwards"
PACKERS = ("none", APART, "eva", "optimal")
LABELS = {**NAMES, APART: "Eva, afterwards"}
POLICIES = ("No-Wait", "Compute-Wait", "calibrated, P = 10 %")
#: Jobs of the trace, of which so many at each end do not count.
WINDOW, WARMUP = 3_000, 200
SEED = 1
#: vCPUs and GiB that come with a GPU on p3; a job of several GPUs asks for no more for each.
WITH_GPU = (8.0, 61.0)


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """A load on its cluster, and what its jobs ask for in the cloud besides GPUs."""

    title: str
    base: Spec
    alpha: float
    #: As jobs of the Alibaba-shaped trace ask for; else half of what comes with a GPU.
    alibaba: bool
    #: The jobs of one GPU, which alone share machines, after the first `WINDOW`; else the first of all jobs.
    one_gpu: bool = False

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


BASE = replace(PHILLY, warmup=WARMUP, cpus_per_node=1e6)
SMALL = replace(BASE, nodes=8)
CASES = (
    Case("Philly, demands as Alibaba's jobs", BASE, 0.076, alibaba=True),
    Case("Philly's jobs of one GPU, demands as Alibaba's", SMALL, 0.076, alibaba=True, one_gpu=True),
    Case("Philly, half of what comes with a GPU", BASE, 0.076, alibaba=False),
)
Key = tuple[Case, str, str]


@cache
def load(one_gpu: bool) -> Trace | None:
    """The first jobs of Philly, or `WINDOW` of its jobs of one GPU."""
    trace = shared_trace("philly.csv")
    if trace is None:
        return None
    of_one = np.flatnonzero(trace.gpus == 1)[WINDOW : 2 * WINDOW]
    return chosen(trace, of_one if one_gpu else np.arange(min(WINDOW, len(trace))))


@cache
def at_once_h(case: Case) -> float:
    """The mean JCT under No-Wait in an undisturbed cloud, hours."""
    trace = load(case.one_gpu)
    assert trace is not None
    return run(trace, no_wait(case.base)).result.mean_jct_h


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


def simulated(key: Key) -> Both:
    """A load under a policy and a packer."""
    case, policy, name = key
    trace = load(case.one_gpu)
    assert trace is not None
    wants, runs = asking(trace, case)
    job_of = job_maker(wants, runs, min(cloud().most_gpus, case.base.gpus_per_node), Share())
    timed = replace(cloud(), kinds=in_seconds(cloud().kinds))
    apart = name == APART
    return simulate_burst(
        trace,
        job_of,
        case.spec(policy),
        timed,
        packer_name="eva" if apart else name,
        joint=not apart,
        no_wait_jct_h=at_once_h(case),
    )


def rows_of(case: Case, done: Mapping[Key, Both]) -> Iterator[tuple[str, ...]]:
    """A row for each policy and packer."""
    base = done[case, "No-Wait", "none"].packed.cost
    for policy in POLICIES:
        for name in PACKERS:
            both = done[case, policy, name]
            result = both.front.result
            yield (
                policy,
                LABELS[name],
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
        f"{cheapest[0]} and {LABELS[cheapest[1]]}: {beside(bill[cheapest], bill[first, 'none'])}, with jobs "
        f"{longer[cheapest]:.1f} % longer than under No-Wait in a cloud without start-up or interference "
        f"({longer[first, 'none']:.1f} % for No-Wait with a machine per task). Packing changes a bill behind "
        f"No-Wait by {100 * (bill[first, 'optimal'] / bill[first, 'none'] - 1):+.1f} %, behind "
        f"Compute-Wait by "
        f"{100 * (bill[wait, 'optimal'] / bill[wait, 'none'] - 1):+.1f} % (`optimal`). A queue that looks at "
        f"rented machines costs {beside(bill[wait, 'eva'], bill[wait, APART])} than one that does not "
        f"(Compute-Wait, jobs {longer[wait, 'eva']:.1f} % longer beside {longer[wait, APART]:.1f} %), and "
        f"{beside(bill[held, 'eva'], bill[held, APART])} (calibrated, {longer[held, 'eva']:.1f} % beside "
        f"{longer[held, APART]:.1f} %). {_of_all(case, done[case, held, 'none'])}"
    )


def _of_all(case: Case, both: Both) -> str:
    """What the budget is of: all jobs, also those that do not count."""
    trace = load(case.one_gpu)
    assert trace is not None
    lasted_h = trace.duration_h
    took_h = both.front.outcomes.end_h - trace.arrival_h
    longer = took_h.sum() / lasted_h.sum() - 1
    outside = 1 - lasted_h[counted(len(trace), WARMUP)].sum() / lasted_h.sum()
    return (
        f"The budget is one of all jobs: together they take {100 * longer:.1f} % "
        f"longer than they run. Those that do not count have {100 * outside:.0f} % of all run time, so those "
        "that do can have more than P."
    )


def main() -> None:
    """Run all, write the page."""
    if not at_hand():
        return
    if load(one_gpu=False) is None:
        return
    for case in CASES:
        at_once_h(case)
    keys = [(case, policy, name) for case in CASES for policy in POLICIES for name in PACKERS]
    done = dict(zip(keys, two_at_a_time(simulated, keys), strict=True))
    parts = [INTRODUCTION.replace("TIME", took(list(done.values())))]
    for case in CASES:
        parts += [f"## {case.title}", table(HEAD, rows_of(case, done)), of_case(case, done)]
    write_wrapped("both-papers", [*parts, READING])


HEAD = (
    *("policy", "packer", "bill", "of No-Wait, No-Packing", "mean JCT", "cloud jobs", "cloud GPU-h"),
    *("per GPU-h", "idle, min", "moves"),
)

INTRODUCTION = f"""# Waiting and packing together

`{COMMAND}` (TIME): no paper has this. The scheduler that ships decides who leaves the cluster and when, which
machines leavers share, which running jobs move, and who pays how much of a shared machine. Three waiting
policies times four packers: a machine per task; Eva behind a queue that decides by itself who leaves
("afterwards"); Eva and `optimal`, our own, with a queue whose jobs join room on rented machines that others
need for longer anyway, or whose bill grows by less than half of what they cost alone. The load is the first
{WINDOW:,} jobs of Philly on 64 × 8 GPUs, of which {WARMUP} at each end do not count. First-fit;
Compute-Wait and the
calibrated budget go out of order, without a cap on the queue. α is .076, as in the paper's scripts.
Nearly all of that bill is of jobs of several GPUs, which take whole machines; so the jobs of one GPU are
shown by themselves too, on 8 × 8 GPUs: the second {WINDOW:,} of them, as "half" was chosen on the first.

The cloud is Eva's: 21 EC2 types at its prices, its delays and its interference
(`sim/packing/shared_cloud.py`); running jobs are reconsidered every 300 s, and the scheduler learns which
jobs slow each other from what runs report.
Traces of clusters do not say what jobs ask for besides GPUs, and that decides what there is to pack. So it is
shown in two ways: with CPUs, memory and workload of jobs of one GPU **drawn** from the Alibaba-shaped trace
(many ask for more CPUs than come with a GPU, and alone rent four GPUs for one), and with half of what comes
with a GPU. Jobs of several GPUs never ask for more than what comes with theirs. The cluster's nodes have CPUs
and memory for all.
Bills are of the jobs that count, split by what each had of a machine. "Mean JCT" is against No-Wait in a
cloud where every job runs at once and undisturbed; "cloud GPU-h" is the bill in GPU-hours of machines that
start at once."""

READING = f"""## Reading it

- The scheduler moves far fewer running jobs than Eva's own simulator, which is shown every task in every
round: it packs whom it sends off together and joins running machines where that costs less than their own; it
asks the packer about machines only when all of their jobs have run for ten minutes; and it carries out a move
only if what that saves until the jobs end is more than what it costs. It takes workloads of which nothing was
seen to run as fast together as alone, where Eva takes .95.
- Before jobs joined machines whose bill grows by less than what they cost alone, the first {WINDOW:,} jobs of
one GPU, on which "half" was chosen, cost $2,257 (No-Wait), $1,163 (Compute-Wait) and $962 (calibrated) with
Eva, and $2,190, $1,082 and $900 since.
- Until this page was made with the real scheduler it was made with the replica of Eva's simulator
(`sim/eva_replica`) behind a cluster that was simulated before, over 10,000 jobs and a load like Helios. Its
figures were those of another fleet than the one that ships, and are not comparable.
- Completion times have a price for the cloud itself in them (start-up and, if packed, interference), which
`starburst simulate` without `--packer` leaves out."""


if __name__ == "__main__":
    main()
