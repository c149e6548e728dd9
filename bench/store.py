"""The store over SQLite and over PostgreSQL, beside each other in one run, both with durable commits.

Steps that submit, start and end jobs are committed: one job a step, as in a quiet hour, and 100 a step, as
under load. Then all jobs are rolled up. PostgreSQL is Debian's, on this machine, over a socket. Fails where
it is slower or larger, beside SQLite, than `MOST` allows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from bench.growth import beyond
from starburst.core.model.events import Event, JobSubmitted, NodesChanged, RunEnd, RunEnded, RunStarted
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.views.snapshot import facts
from starburst.domain.job import Job, Submission, Workload
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.store import Step, Store
from starburst.store.upkeep.rollup import roll_up
from tests.postgres import Server, database_of, server

TASKS = (Resources.of(1),)
#: What PostgreSQL's time may be of SQLite's, and its bytes.
MOST = {
    "time of a step": 10.0,
    "time of a job, 100 a step": 10.0,
    "bytes a job": 3.0,
    "bytes of history": 1.2,
}
#: Scheduler seconds between two steps.
PACE_S = 1.0


def main() -> None:
    """Measure both databases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--small", action="store_true", help="600 jobs: only to see that it runs")
    args = parser.parse_args()
    jobs = 600 if args.small else args.jobs
    with tempfile.TemporaryDirectory() as home, server(durable=True) as other:
        file = measure(str(Path(home) / "starburst.db"), jobs, None)
        remote = measure(other.create(), jobs, other)
    print(f"\n{'':<44}{'SQLite':>12}{'PostgreSQL':>12}{'ratio':>9}")
    ratio = {name: remote[name] / max(value, 1e-9) for name, value in file.items()}
    for name, value in file.items():
        print(f"{name:<44}{value:>12,.2f}{remote[name]:>12,.2f}{ratio[name]:>9.2f}")
    judged = {
        "time of a step": 1 / ratio["steps a second, 1 job each"],
        "time of a job, 100 a step": 1 / ratio["jobs a second, 100 a step"],
        "bytes a job": ratio["bytes a job"],
        "bytes of history": ratio["bytes a job after a roll-up"],
    }
    sys.exit(beyond(judged, MOST))


def measure(where: str, jobs: int, of: Server | None) -> dict[str, float]:
    """Figures for one database; `of` is None for SQLite."""
    figures: dict[str, float] = {}
    with Store.open(where) as store:
        empty = size(store, where, of)
        scheduler = Scheduler(Settings())
        commit(store, scheduler, [NodesChanged((Node("node", Resources.of(100, 1000, 10_000)),))], {})
        figures["steps a second, 1 job each"] = 3 / run(store, scheduler, jobs // 100, 1)
        figures["jobs a second, 100 a step"] = 1 / run(store, scheduler, jobs, 100)
        full = size(store, where, of)
        figures["bytes a job"] = (full - empty) / (jobs + jobs // 100)
        began = time.perf_counter()
        longest = 0.0
        for _ in roll_up(store, 1e12, 0.0):
            longest = max(longest, time.perf_counter() - began)
            began = time.perf_counter()
        figures["longest transaction of a roll-up, ms"] = 1000 * longest
        figures["bytes a job after a roll-up"] = history(store)
    return figures


def run(store: Store, scheduler: Scheduler, jobs: int, at_once: int) -> float:
    """Wall seconds for a job of those that are submitted, started and ended, `at_once` a step."""
    began = time.perf_counter()
    for first in range(0, jobs, at_once):
        ids = [f"train-{at_once}-{first + at:07}" for at in range(at_once)]
        new = {
            i: Submission(Job(i, "train", (Resources.of(1),), "ada", "default"), Workload(())) for i in ids
        }
        commit(store, scheduler, [JobSubmitted(it.job) for it in new.values()], new)
        commit(store, scheduler, [RunStarted(i, 1) for i in ids], {})
        commit(store, scheduler, [RunEnded(i, 1, RunEnd.EXITED, 0) for i in ids], {})
    return (time.perf_counter() - began) / jobs


def commit(store: Store, scheduler: Scheduler, events: list[Event], new: dict[str, Submission]) -> None:
    """One step, whole."""
    now = scheduler.state.now + PACE_S
    scheduler.handle(events, now)
    changes = scheduler.take_changes()
    nodes = scheduler.state.capacity.nodes
    store.commit(Step(now, changes, facts(scheduler.state), events, submissions=new, nodes=nodes))


def size(store: Store, where: str, of: Server | None) -> int:
    """Bytes of the database."""
    with store.read() as conn:
        if of is not None:
            return int(of.sql(f"SELECT pg_database_size('{database_of(where)}')")[0][0])
        pages = conn.execute(text("PRAGMA page_count")).scalar_one()
        return int(pages) * int(conn.execute(text("PRAGMA page_size")).scalar_one())


def history(store: Store) -> float:
    """Mean bytes of the values of a row of history."""
    with store.read() as conn:
        rows = conn.execute(text("SELECT * FROM history LIMIT 1000")).all()
    return sum(8 if isinstance(it, (int, float)) else len(it or "") for row in rows for it in row) / len(rows)


if __name__ == "__main__":
    main()
