"""A long array: submit its manifest as a user does, list and find its jobs, take them up.

Times are CPU time. Prints one table; the column "× 1/10" is the ratio to an array a tenth as long, measured
in the same run; it fails if a ratio is above what the figure may grow by: what is done once for an array does
not grow with it, what names each of its jobs does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from sqlalchemy import func, select

from bench.growth import of_a_tenth
from starburst.app.config import parse_config
from starburst.app.daemon.request_intake import Intake, RequestIntake
from starburst.app.jobs import submitting
from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.app.reading.sources import ManifestText
from starburst.core.model.events import NodesChanged
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.views.snapshot import facts
from starburst.domain.clock import Pace
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store import schema
from starburst.store.listings import pages, queries
from starburst.store.store import Step, Store

#: What figures may be of those of an array a tenth as long: what names each job, and what does not.
EACH_JOB, ONCE = 25.0, 4.0
#: Milliseconds below which a ratio says nothing.
NOISE = 5.0
AT_ONCE = 10
MANIFEST = """apiVersion: batch/v1
kind: Job
metadata: {{name: sweep, annotations: {{starburst.io/array: "0-{last}%{at_once}"}}}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - {{name: main, image: train, command: [python, train.py], resources: {{limits: {{cpu: "1"}}}}}}
"""


def limit(name: str, value: float) -> float:
    """What is done for each job grows with their number; what is done once may not."""
    if value <= NOISE:
        return inf
    return EACH_JOB if name.startswith(("submit", "all jobs", "the array")) else ONCE


def main() -> None:
    """Measure an array of --jobs and one of a tenth of it."""
    sys.exit(of_a_tenth(__doc__, measure, limit))


def measure(jobs: int) -> dict[str, float]:
    """Figures for one length of array."""
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "starburst.db") as store:
        config = parse_config({"limits": {"pending_per_user": 2 * jobs}}, "bench")
        store.set_fact("config", config.model_dump(mode="json"))
        scheduler = Scheduler(Settings())
        take_up(store, scheduler, Intake(events=[NodesChanged((Node("node", Resources.of(0, 64, 64)),))]))
        figures = {"submit, ms": _ms(lambda: submit(store, jobs))}
        intake = RequestIntake(store, scheduler, Pace())
        figures["take up those whose turn is near, ms"] = _ms(
            lambda: take_up(store, scheduler, intake.read())
        )
        figures["rows of jobs"] = _rows(store)
        return figures | asked(store, jobs)


def submit(store: Store, jobs: int) -> None:
    """The manifest, as `starburst submit` and the HTTP API read and store it."""
    text = ManifestText("sweep.yaml", MANIFEST.format(last=jobs - 1, at_once=AT_ONCE))
    found = submitting.read_sources(store, [text], "ada")
    assert len(submitting.submit(store, found, allow_unsatisfiable=True)) == jobs


def take_up(store: Store, scheduler: Scheduler, asked: Intake) -> None:
    """A step as the controller makes it."""
    scheduler.handle(list(asked.events), 0.0)
    step = Step(
        now=0.0,
        changes=scheduler.take_changes(),
        facts=facts(scheduler.state),
        events=asked.events,
        request_seqs=asked.request_seqs,
        arrays=asked.arrays,
        submissions=asked.submissions,
        nodes=scheduler.state.capacity.nodes,
    )
    store.commit(step)


def asked(store: Store, jobs: int) -> dict[str, float]:
    """What people ask of the store, in milliseconds: the median of a few times."""
    (row,) = pages.named(store, [f"sweep-{jobs - 9}"])
    questions: dict[str, Callable[[], object]] = {
        "page near its end, ms": lambda: pages.page(store, after=row, limit=8),
        "numbers by phase, ms": lambda: queries.summary(store),
        "one job by its id, ms": lambda: queries.jobs(store, ids=[row.id]),
        "one job by its name, ms": lambda: pages.named(store, [row.name]),
        "explanation of a job, ms": lambda: SnapshotCache(store).explanation(row),
        "all jobs, ms": lambda: queries.jobs(store),
        "the array by its name, ms": lambda: pages.named(store, ["sweep"]),
    }
    return {name: statistics.median(_ms(ask) for _ in range(5)) for name, ask in questions.items()}


def _rows(store: Store) -> int:
    with store.read() as conn:
        return conn.scalar(select(func.count()).select_from(schema.jobs)) or 0


def _ms(do: Callable[[], object]) -> float:
    begin = time.process_time()
    do()
    return 1e3 * (time.process_time() - begin)


if __name__ == "__main__":
    main()
