"""A long queue: submit jobs in bulk, take them in, then free one GPU after the other under a full queue.

Every step is measured whole, as the controller does it: the core's transition and the commit to SQLite.
Prints one table; the column "× 1/10" is the ratio to a queue a tenth as long, measured in the same run.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from starburst.core.model.events import (
    Event,
    JobSubmitted,
    NodesChanged,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.views.snapshot import facts, restore
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.store import Step, Store
from starburst.store.user_requests import UserRequest

SHAPES = [Resources.of(g, 4 * g, 32 * g) for g in (1, 2, 4, 8)]
STEPS = 300


def main() -> None:
    """Measure a queue of --jobs and one of a tenth of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--small", action="store_true", help="10,000 jobs: only to see that it runs")
    args = parser.parse_args()
    jobs = 10_000 if args.small else args.jobs
    tenth, whole = measure(jobs // 10), measure(jobs)
    print(f"\n{'':<44}{jobs // 10:>12,}{jobs:>12,}{'× 1/10':>9}")
    for name, value in whole.items():
        print(f"{name:<44}{tenth[name]:>12.3f}{value:>12.3f}{value / max(tenth[name], 1e-9):>9.1f}")


def measure(jobs: int) -> dict[str, float]:
    """Figures for one length of queue."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "starburst.db") as store:
        figures["bulk submit, s"] = submit(store, jobs)
        scheduler = Scheduler(Settings(waiting="infinite"))
        step(store, scheduler, [NodesChanged(nodes()), OffersChanged(offers())], [], 0.0)
        figures["taking them in, 500 a step, s"] = timed(lambda: take_in(store, scheduler))
        core_ms, whole_ms = finish_some(store, scheduler)
        figures["step that frees GPUs, core, median ms"] = statistics.median(core_ms)
        figures["step that frees GPUs, with commit, median ms"] = statistics.median(whole_ms)
        figures["step that frees GPUs, with commit, p99 ms"] = statistics.quantiles(whole_ms, n=100)[98]
        figures["peak memory so far, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures["restart: load and rebuild, s"] = timed(
            lambda: restore(scheduler.state.settings, store.snapshot())
        )
    return figures


def submit(store: Store, jobs: int) -> float:
    """Seconds to submit so many jobs at once."""
    submissions = make(jobs)
    return timed(lambda: store.submit(submissions, 0.0))


def make(jobs: int) -> list[Submission]:
    """Jobs of four sizes, as Philly has them."""
    draw = random.Random(1)
    workload = Workload(("python3", "train.py"), (("SEED", "1"),))
    return [
        Submission(
            Job(
                f"job-{i:06d}",
                "job",
                (draw.choices(SHAPES, (0.7, 0.15, 0.1, 0.05))[0],),
                user=f"user-{i % 50}",
                runtime_estimate_s=draw.expovariate(1 / 3600),
            ),
            workload,
        )
        for i in range(jobs)
    ]


def nodes() -> tuple[Node, ...]:
    """64 nodes of 8 GPUs."""
    return tuple(Node(f"node-{i}", Resources.of(8, 96, 768)) for i in range(64))


def offers() -> tuple[Offer, ...]:
    """One that holds every job."""
    return (Offer("p3.16xlarge", Resources.of(8, 64, 488, "V100"), Money.of("24.48")),)


def take_in(store: Store, scheduler: Scheduler) -> None:
    """All requests, 500 a step, as the controller takes them."""
    while requests := store.requests(500):
        events = [JobSubmitted(r.submission.job) for r in requests if r.submission is not None]
        step(store, scheduler, events, requests, 1.0)


def finish_some(store: Store, scheduler: Scheduler) -> tuple[list[float], list[float]]:
    """End one running job per step; every end frees GPUs and starts others. Milliseconds: core, whole."""
    core_ms, whole_ms = [], []
    draw = random.Random(2)
    now = 1.0
    for _ in range(STEPS):
        record = draw.choice([r for r in scheduler.state.jobs.values() if r.alive])
        now += 1.0
        started = [RunStarted(record.id, record.attempt)] if record.started_at is None else []
        events: list[Event] = [*started, RunEnded(record.id, record.attempt, RunEnd.EXITED, 0)]
        begin = time.perf_counter()
        core_s = step(store, scheduler, events, [], now)
        whole_ms.append(1e3 * (time.perf_counter() - begin))
        core_ms.append(1e3 * core_s)
    return core_ms, whole_ms


def step(
    store: Store, scheduler: Scheduler, events: Sequence[Event], requests: Sequence[UserRequest], now: float
) -> float:
    """One step as the controller makes it; the core's share of it in seconds."""
    begin = time.perf_counter()
    scheduler.handle(events, now)
    core_s = time.perf_counter() - begin
    changes = scheduler.take_changes()
    store.commit(
        Step(
            now=now,
            events=events,
            request_seqs=[r.seq for r in requests],
            submissions={r.job_id: r.submission for r in requests if r.submission is not None},
            changes=changes,
            facts=facts(scheduler.state),
            nodes=scheduler.state.capacity.nodes,
            offers=list(scheduler.state.fleet.offers.values()),
        )
    )
    return core_s


def timed(do: Callable[[], object]) -> float:
    """Seconds it takes."""
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
