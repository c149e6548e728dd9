"""Jobs a second through the live scheduler, over SQLite and over PostgreSQL in one run.

The controller, core and store are the real ones, with durable commits; a cluster in memory starts and ends
runs in virtual time, so that nothing waits but for the database. A user submits 500 jobs a second of that
time; each is placed at once, runs for one to two seconds and ends; its reports come ten times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from bench.virtual import VirtualLoop
from starburst.app.daemon.controller import Controller, Surroundings
from starburst.core.model.events import Event, NodesChanged, RunEnd, RunEnded, RunStarted, SiteSynced
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.domain.clock import Pace
from starburst.domain.cloud import Instance, Offer
from starburst.domain.job import Job, Site, Submission, Workload
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.runs.ports import Report, Run
from starburst.store.store import Store
from tests.postgres import server

START = 1_767_571_200.0
#: What a job's CPU time over PostgreSQL may be of that over SQLite; 1.25 on a quiet machine.
LIMIT = 2.5
#: Jobs that are submitted at once, and seconds between two submissions and between two reports.
BULK, PACE_S, LOOK_S = 500, 1.0, 0.1
NODES = tuple(Node(f"node-{i}", Resources.of(8, 96, 768)) for i in range(160))


class QuickSite:
    """A site in memory on which runs start at once and end by themselves; does for cluster and cloud."""

    def __init__(self, site: Site) -> None:
        self.ended = 0
        self._site = site
        self._news: list[Event] = []
        self._started = 0

    async def start(self, run: Run) -> None:
        self._started += 1
        ends_s = 1.0 + self._started % 10 * LOOK_S
        self._news.append(RunStarted(run.job.id, run.attempt))
        asyncio.get_running_loop().call_later(ends_s, self._end, run.job.id, run.attempt)

    def _end(self, job_id: str, attempt: int) -> None:
        self.ended += 1
        self._news.append(RunEnded(job_id, attempt, RunEnd.EXITED, 0))

    async def watch(self, report: Report) -> None:
        if self._site is Site.CLUSTER:
            report(NodesChanged(NODES))
        report(SiteSynced(self._site, frozenset()))
        while True:
            await asyncio.sleep(LOOK_S)
            news, self._news = self._news, []
            for event in news:
                report(event)

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        raise NotImplementedError

    async def launch(self, instance_id: str, offer: Offer) -> None:
        raise NotImplementedError

    async def prepare(self, run: Run) -> None:
        raise NotImplementedError

    async def terminate(self, instance_id: str) -> None:
        raise NotImplementedError

    def newest(self, job_id: str) -> int:
        """The core starts nothing twice, and nothing was here before."""
        return 0

    def nudge(self) -> None:
        """Reports come soon enough."""

    def judged(self, submissions: Mapping[str, Submission]) -> Sequence[Event]:
        return ()

    def told(self, changes: Changes) -> None:
        """Nothing is counted here."""

    async def renew(self, instance_ids: list[str]) -> None:
        """There are no instances."""

    async def owned(self) -> list[Instance]:
        return []


async def live(where: str, jobs: int) -> None:
    """Submit so many jobs, and wait for the end of each in the store."""
    with Store.open(where) as store, Store.open(where) as users:
        cluster, cloud = QuickSite(Site.CLUSTER), QuickSite(Site.CLOUD)
        wall = asyncio.get_running_loop().time
        controller = Controller(
            store, Scheduler(Settings()), cluster, cloud, Pace(), wall=wall, around=Surroundings()
        )
        stop = asyncio.Event()
        living = asyncio.create_task(controller.run(stop))
        for first in range(0, jobs, BULK):
            users.submit([submission(i) for i in range(first, min(first + BULK, jobs))], wall())
            await asyncio.sleep(PACE_S)
        while controller.scheduler.state.arrivals < jobs or controller.scheduler.state.jobs:
            await asyncio.sleep(LOOK_S)
            if living.done():
                break
        stop.set()
        await living
        assert cluster.ended == jobs, f"{cluster.ended} of {jobs} runs ended"


def submission(number: int) -> Submission:
    """A job of one GPU, of one of 50 users."""
    job = Job(f"job-{number:07}", "train", (Resources.of(1, 4, 32),), f"user-{number % 50}", "default")
    return Submission(job, Workload(("python3", "train.py"), (("SEED", "1"),)))


def measure(where: str, jobs: int) -> dict[str, float]:
    """Figures for one database."""
    Store.open(where).close()  # its tables are made once
    loop = VirtualLoop(START)
    began, cpu = time.perf_counter(), time.process_time()
    try:
        loop.run_until_complete(live(where, jobs))
    finally:
        loop.close()
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return {
        "jobs a second": jobs / wall_s,
        "jobs a CPU second of Starburst": jobs / cpu_s,
        "CPU ms a job": 1e3 * cpu_s / jobs,
    }


def main() -> None:
    """Measure both databases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--small", action="store_true", help="2,000 jobs: only to see that it runs")
    args = parser.parse_args()
    jobs = 2_000 if args.small else args.jobs
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory() as home, server(durable=True) as other:
        file = measure(str(Path(home) / "starburst.db"), jobs)
        remote = measure(other.create(), jobs)
    print(f"\n{jobs:,} jobs{'':<24}{'SQLite':>12}{'PostgreSQL':>12}{'ratio':>9}")
    for name, value in file.items():
        print(f"{name:<36}{value:>12,.2f}{remote[name]:>12,.2f}{remote[name] / max(value, 1e-9):>9.2f}")
    if remote["CPU ms a job"] > LIMIT * file["CPU ms a job"]:
        sys.exit(f"a job costs more than {LIMIT:g} times as much CPU over PostgreSQL as over SQLite")


if __name__ == "__main__":
    main()
