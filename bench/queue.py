"""A long queue: submit jobs in bulk, take them in, then free one GPU after the other under a full queue.

A thousand queues share the cluster by their shares. Every step is measured whole, as the controller does it:
the core's transition and the commit to SQLite; then a restart, and what people ask. Times are CPU time, which
other work on the machine falsifies least. Prints one table; the column "× 1/10" is the ratio to a queue a
tenth as long, measured in the same run; it fails if a ratio is above what the figure may grow by.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from sqlalchemy import Connection

from bench.growth import of_a_tenth
from starburst.app.config import parse_config
from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.app.wiring.resuming import resume
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
from starburst.core.views.snapshot import facts
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.listings import dashboard_queries, pages, queries
from starburst.store.listings.job_list import JobChoice, listed
from starburst.store.store import Step, Store
from starburst.store.user_requests import UserRequest
from starburst.web import aggregates

#: What figures may be of those of a queue a tenth as long: what is done once for each job, and what is not.
EACH_JOB, LOOKED_UP = 20.0, 4.0
#: Seconds or milliseconds below which a ratio says nothing.
NOISE = 0.5
QUEUES = 1000
SHAPES = [Resources.of(g, 4 * g, 32 * g) for g in (1, 2, 4, 8)]
STEPS = 300
#: Jobs of one submission.
BATCH = 20_000


def limit(name: str, value: float) -> float:
    """What is done for each job grows with their number, a look at the queue does not; noise may."""
    if value <= NOISE or "p99" in name:  # of 300 steps that is chance
        return inf
    return EACH_JOB if name.endswith(", s") or name.startswith("memory") else LOOKED_UP


def main() -> None:
    """Measure a queue of --jobs and one of a tenth of it."""
    sys.exit(of_a_tenth(__doc__, measure, limit))


def measure(jobs: int) -> dict[str, float]:
    """Figures for one length of queue."""
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "starburst.db") as store:
        queues = [{"name": f"queue-{i}", "share": 1 + i % 5} for i in range(QUEUES)]
        config = parse_config({"policy": {"waiting": "infinite", "order": "fair"}, "queues": queues}, "bench")
        store.set_fact("config", config.model_dump(mode="json"))
        figures = {"bulk submit, s": submit(store, jobs), **lived(store, config.settings())}
        figures |= asked(store, jobs)
        figures["restart: load and rebuild, s"] = timed(lambda: resume(config.settings(), store))
        size = (Path(home) / "starburst.db").stat().st_size
        figures["database, bytes a job"] = size / jobs
    return figures


def lived(store: Store, settings: Settings) -> dict[str, float]:
    """Figures of a scheduler that takes in what was submitted, and works on under it."""
    scheduler = Scheduler(settings)
    step(store, scheduler, [NodesChanged(nodes()), OffersChanged(offers())], [], 0.0)
    took_s = timed(lambda: take_in(store, scheduler))
    core_ms, whole_ms = finish_some(store, scheduler)
    return {
        "taking them in, 500 a step, s": took_s,
        "step that frees GPUs, core, median ms": statistics.median(core_ms),
        "step that frees GPUs, with commit, median ms": statistics.median(whole_ms),
        "step that frees GPUs, with commit, p99 ms": statistics.quantiles(whole_ms, n=100)[98],
        "memory, MiB": resident_mib(),
    }


def asked(store: Store, jobs: int) -> dict[str, float]:
    """What pages ask of the store, in milliseconds: the median of a few times."""
    config = parse_config({}, "bench")
    (last,) = queries.jobs(store, ids=[f"job-{jobs * 9 // 10:07}"])
    questions: dict[str, Callable[[Connection], object]] = {
        "page of a listing near its end, ms": lambda _: pages.page(store, after=last, limit=100),
        "page of a queue, ms": lambda _: pages.page(store, queues=("queue-7",), limit=100),
        "page of the dashboard's list, ms": lambda conn: listed(conn, JobChoice(), 100),
        "who leaves next, ms": lambda conn: dashboard_queries.queued_jobs(conn, 50),
        "who is overdue, ms": lambda conn: aggregates.overdue(conn, config, 0.0),
        "counts by queue, s": dashboard_queries.job_counts,
        "one job, ms": lambda _: queries.job(store, last.id),
        "explanation of a queued job, ms": lambda _: SnapshotCache(store).explanation(last),
    }
    figures = {}
    with store.read() as conn:
        for name, ask in questions.items():
            took_s = statistics.median(_took_s(ask, conn) for _ in range(9))
            figures[name] = took_s if name.endswith(", s") else 1e3 * took_s
    return figures


def _took_s(ask: Callable[[Connection], object], conn: Connection) -> float:
    begin = time.process_time()
    ask(conn)
    return time.process_time() - begin


def submit(store: Store, jobs: int) -> float:
    """Seconds to submit so many jobs, BATCH at once; between, they are made and forgotten."""
    draw = random.Random(1)
    took_s = 0.0
    for first in range(0, jobs, BATCH):
        some = make(range(first, min(jobs, first + BATCH)), draw)
        took_s += timed(lambda some=some: store.submit(some, 0.0))  # type: ignore[misc]
    return took_s


def make(numbers: range, draw: random.Random) -> list[Submission]:
    """Jobs of four sizes, as Philly has them."""
    workload = Workload(("python3", "train.py"), (("SEED", "1"),))
    return [
        Submission(
            Job(
                f"job-{i:07}",
                "job",
                (draw.choices(SHAPES, (0.7, 0.15, 0.1, 0.05))[0],),
                user=f"user-{i % 50}",
                queue=f"queue-{i * 7919 % QUEUES}",
                runtime_estimate_s=draw.expovariate(1 / 3600),
            ),
            workload,
        )
        for i in numbers
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
        begin = time.process_time()
        core_s = step(store, scheduler, events, [], now)
        whole_ms.append(1e3 * (time.process_time() - begin))
        core_ms.append(1e3 * core_s)
    return core_ms, whole_ms


def step(
    store: Store, scheduler: Scheduler, events: Sequence[Event], requests: Sequence[UserRequest], now: float
) -> float:
    """One step as the controller makes it; the core's share of it in seconds."""
    begin = time.process_time()
    scheduler.handle(list(events), now)
    core_s = time.process_time() - begin
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


def resident_mib() -> float:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def timed(do: Callable[[], object]) -> float:
    """CPU seconds it takes."""
    begin = time.process_time()
    do()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
