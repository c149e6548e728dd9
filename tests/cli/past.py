"""Lives of jobs, written into a store as a scheduler would have written them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from starburst.app.config import parse_config
from starburst.core.model.events import (
    Event,
    InstanceGone,
    InstanceReady,
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
from starburst.domain.job import CloudChoice, Job, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.store import Step, Store

NOON = datetime(2026, 3, 2, 12, tzinfo=timezone.utc).timestamp()
CONFIG = {"policy": {"waiting": "compute", "factor": 0.08}}


class Past:
    """A store, and the scheduler that fills it."""

    def __init__(self, store: Store, now: float) -> None:
        self.store = store
        self.now = now
        self.scheduler = Scheduler(Settings(factor=0.08))
        node = Node("node", Resources.of(4, 64, 256, "V100"))
        offers = [
            Offer("p3.2xlarge", Resources.of(2, 8, 61, "V100"), Money.of("2.04")),
            Offer("c7i.large", Resources.of(0, 2, 4), Money.of("0.1")),
        ]
        self.tell(NodesChanged((node,)), OffersChanged(tuple(offers)))

    @classmethod
    @contextmanager
    def begin(cls, database: Path, now: float) -> Iterator[Past]:
        """A new one, whose clock all but stands still."""
        database.parent.mkdir(mode=0o700)
        with Store.open(database) as store:
            store.set_fact("config", parse_config(CONFIG, "test").model_dump(mode="json"))
            store.set_fact("clock", {"origin": time.time(), "speed": 1e-6, "start": now})
            yield cls(store, now)

    def tell(self, *events: Event, submissions: tuple[Submission, ...] = ()) -> None:
        """One stored step."""
        self.scheduler.handle([*events, *(JobSubmitted(s.job) for s in submissions)], self.now)
        self.store.commit(
            Step(
                now=self.now,
                changes=self.scheduler.take_changes(),
                facts=facts(self.scheduler.state),
                events=events,
                submissions={s.job.id: s for s in submissions},
                nodes=self.scheduler.state.capacity.nodes,
                offers=list(self.scheduler.state.fleet.offers.values()),
            )
        )

    def submit(self, job_id: str, gpus: int = 1, **of_job: object) -> None:
        """A job arrives."""
        tasks = (Resources.of(gpus) if gpus else Resources.of(0, 1),)
        told = {"name": job_id.rpartition("-")[0], "user": "ada", "tasks": tasks, **of_job}
        job = Job(job_id, **told)  # type: ignore[arg-type]
        self.tell(submissions=(Submission(job, Workload(("true",))),))

    def start(self, job_id: str) -> None:
        """Its run has begun."""
        self.tell(RunStarted(job_id, self.scheduler.state.jobs[job_id].attempt))

    def end(self, job_id: str, code: int = 0) -> None:
        """Its run is over."""
        attempt = self.scheduler.state.jobs[job_id].attempt
        self.tell(RunEnded(job_id, attempt, RunEnd.EXITED, code))

    def ready(self, machine: str) -> None:
        """A machine is up since now."""
        self.tell(InstanceReady(machine, self.now))

    def gone(self, machine: str) -> None:
        """A machine is given back."""
        launched_at = self.scheduler.state.fleet.instances[machine].launched_at
        assert launched_at is not None
        self.tell(InstanceGone(machine, launched_at, self.now))

    def morning(self) -> None:
        """Until noon: one finished, one failed in the cloud, one running there, one here, one waiting."""
        self.now = NOON - 3 * 3600
        self.submit("done-11111")
        self.start("done-11111")
        self.submit("bad-22222", cloud=CloudChoice.ONLY, user="bob", queue="papers")
        self.ready("i-000001")
        self.start("bad-22222")
        self.now = NOON - 2 * 3600
        self.end("done-11111")
        self.end("bad-22222", 3)
        self.gone("i-000001")
        self.now = NOON - 3600
        self.submit("render-33333", 2, cloud=CloudChoice.ONLY)
        self.ready("i-000002")
        self.start("render-33333")
        self.submit("train-44444", 4)
        self.start("train-44444")
        self.now = NOON
        self.submit("wait-55555", 2, runtime_estimate_s=5400.0)
