"""How fast traces are simulated: jobs per CPU second of each engine, by length of the trace, and on Philly.

The compiled core takes part if it has been made (`starburst simulate --engine compiled`).

Synthetic jobs arrive at random (Poisson) at a load of about .9 of 64 nodes of 8 GPUs; Compute-Wait α .076,
out of order, at most 30 waiting. Every figure comes from a process of its own, so peak memory is its own too;
the array engine is called twice, and what the first call takes longer is shown: to compile or load its code.
The column "× CPU" is the ratio of CPU time to the size before, measured in the same run; it fails where ten
times the jobs take more than `GROWS` times as long.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench.growth import beyond
from sim.compiled import build
from sim.outcomes import measure
from sim.run import cpu_s, max_rss_mb
from sim.spec import Spec
from sim.trace import Trace

#: What the CPU time for ten times the jobs may be, if it is longer than NOISE_S.
GROWS, NOISE_S = 20.0, 0.5
SIZES = (1_000, 10_000, 100_000, 1_000_000)
#: The core takes about 0.1 ms a job; a million of them is measured by hand now and then.
CORE_MOST = 300_000
COMPUTE = Spec(waiting="compute", factor=0.076, out_of_order=True, queue_cap=30)
SPECS = {
    "synthetic": COMPUTE,
    "philly compute": Spec(waiting="compute", factor=0.076, out_of_order=True, queue_cap=30, warmup=5000),
    "philly no-wait": Spec(waiting="no-wait", warmup=5000),
}
#: CPU seconds and jobs of the simulator published with Starburst, as noted of it: on another day, and for the
#: synthetic jobs on a trace of its own (980 jobs per CPU second).
PUBLISHED = {
    "philly compute": (38.0, 82_247),
    "philly no-wait": (12.0, 82_247),
    "synthetic": (306.0, 300_000),
}
#: The compiled core if it is here.
ENGINES = ("core", "array", *(["compiled"] if build.ready() is not None else []))
SHARED = Path(os.environ.get("STARBURST_SHARED") or Path(__file__).parents[2] / "shared")
PHILLY = SHARED / "cases" / "philly.csv"


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="up to 10,000 jobs: only to see that it runs")
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "ENGINE", "JOBS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one[0], args.one[1], int(args.one[2]))))
        return
    sizes = SIZES[:2] if args.small else SIZES
    growth: dict[str, float] = {}
    for engine in ENGINES:
        header(f"{engine}, synthetic")
        before: dict[str, Any] | None = None
        for jobs in (n for n in sizes if engine == "array" or n <= CORE_MOST):
            figures = measured("synthetic", engine, jobs)
            show(f"{jobs:,} jobs", figures, before)
            if before and figures["cpu_s"] > NOISE_S:
                tens = jobs / before["jobs"] / 10  # the core's largest trace is three times the one before
                growth[f"{engine}, {jobs:,} jobs"] = figures["cpu_s"] / before["cpu_s"] / tens
            before = figures
    if not args.small:
        compare()
    sys.exit(beyond(growth, dict.fromkeys(growth, GROWS)))


def compare() -> None:
    """The traces that the published simulator was measured on."""
    for what, (published_s, jobs) in PUBLISHED.items():
        if what != "synthetic" and not PHILLY.is_file():
            print(f"\n{what}: no trace; set STARBURST_SHARED to the folder that has cases/philly.csv")
            continue
        header(f"{what}, {jobs:,} jobs")
        print(f"{'published simulator':<30}{published_s:>10.3f}{jobs / published_s:>14,.0f}")
        for engine in ENGINES:
            figures = measured(what, engine, jobs)
            show(engine, figures, None)
            print(f"{'':<30}× {published_s / figures['cpu_s']:,.0f} the published simulator's speed", end="")
            print(f"; cloud {figures['cloud_cost']:,.3f} GPU-h, mean JCT {figures['mean_jct_h']:.5f} h")


def header(title: str) -> None:
    """Column titles."""
    titles = ("CPU s", "jobs per CPU s", "× CPU", "first call, + s", "peak MiB")
    print(f"\n{title:<30}{titles[0]:>10}{titles[1]:>16}{titles[2]:>8}{titles[3]:>17}{titles[4]:>10}")


def show(name: str, figures: dict[str, Any], before: dict[str, Any] | None) -> None:
    """One row."""
    ratio = f"{figures['cpu_s'] / before['cpu_s']:.1f}" if before else ""
    speed = figures["jobs"] / figures["cpu_s"]
    print(f"{name:<30}{figures['cpu_s']:>10.3f}{speed:>16,.0f}{ratio:>8}", end="")
    print(f"{figures['first_s']:>17.2f}{figures['peak_mib']:>10,.0f}", flush=True)


def measured(what: str, engine: str, jobs: int) -> dict[str, Any]:
    """One simulation in its own process."""
    command = [sys.executable, "-m", "bench.simulate", "--one", what, engine, str(jobs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def one(what: str, engine: str, jobs: int) -> dict[str, Any]:
    """Simulate; the array engine a second time, for the first call compiles or loads what it has compiled."""
    trace = synthetic(jobs) if what == "synthetic" else philly()
    spec = SPECS[what]
    simulate = import_module(f"sim.engines.{engine}_engine").simulate
    seconds = []
    for _ in range(2 if engine == "array" else 1):
        begin = cpu_s()
        outcomes = simulate(trace, trace.duration_h, spec)
        seconds.append(cpu_s() - begin)
    result = measure(trace, outcomes, spec)
    return {
        "jobs": len(trace),
        "cpu_s": seconds[-1],
        "first_s": seconds[0] - seconds[-1],
        "peak_mib": max_rss_mb(),
        "cloud_cost": result.cloud_cost,
        "mean_jct_h": result.mean_jct_h,
    }


def synthetic(jobs: int) -> Trace:
    """Poisson arrivals, exponential durations of 2 h on average, 1 to 8 GPUs."""
    draw = np.random.default_rng(1)
    gpus = draw.choice([1, 2, 4, 8], jobs, p=[0.7, 0.15, 0.1, 0.05])
    duration_h = draw.exponential(2.0, jobs)
    gap_h = 1.8 * 2.0 / (0.9 * COMPUTE.nodes * COMPUTE.gpus_per_node)  # 1.8 GPUs on average
    return trace_of(np.cumsum(draw.exponential(gap_h, jobs)), duration_h, gpus)


def philly() -> Trace:
    """The public trace; its seconds become hours."""
    with PHILLY.open(encoding="utf-8", newline="") as lines:
        table = list(csv.DictReader(lines))
    seconds = np.array([[float(row["arrival_s"]), float(row["duration_s"])] for row in table]).T
    return trace_of(seconds[0] / 3600, seconds[1] / 3600, np.array([int(row["gpus"]) for row in table]))


def trace_of(arrival_h: Any, duration_h: Any, gpus: Any) -> Trace:
    """Jobs that need GPUs only."""
    n, nothing = len(gpus), np.zeros(len(gpus))
    ids = [str(i) for i in range(n)]
    return Trace(ids, arrival_h, duration_h, gpus, nothing, nothing, np.ones(n, np.int64), gpus * duration_h)


if __name__ == "__main__":
    main()
