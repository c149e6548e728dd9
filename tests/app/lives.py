"""A small demo whose scheduler is killed: what it is told, its lives, and what must be true at its end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock

import yaml

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.clouds.local import LocalCloud
from starburst.demo import train
from starburst.demo.record import lost, ran_twice
from starburst.domain.clock import Pace
from starburst.domain.cloud import Instance, InstancePhase
from starburst.domain.job import OWNER, Job, Phase, Site, Submission, Workload
from starburst.domain.resources import Resources
from starburst.runs.processes import ProcessRunner
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.app.up import up

#: Scheduler seconds per wall second.
SPEED = 600.0
#: Wall seconds that such a run takes, about, on an idle machine; kills are spread over them.
LIFE_S = 5.0
#: Wall seconds until a run that does not end has failed.
PATIENCE_S = 60.0
#: Schedulers are forked off a process that has imported all they need: half a second less, a hundred times.
NURSERY = get_context("forkserver")
NURSERY.set_forkserver_preload(["starburst.cli.main", "starburst.cli.service.up", "tests.app.up"])
#: Migrations are for one thread of a process at a time.
OPENING = Lock()

CONFIG = {
    "http": {"enabled": False},  # it is started many times
    "policy": {"waiting": "constant", "factor": 0.1, "t_max": "8m", "offer_pause": "5m"},
    "cluster": {"nodes": [{"name": "two", "gpus": 2}, {"name": "one", "gpus": 1}]},
    "cloud": {
        "offers": [
            {"name": "small", "gpus": 1, "cpus": 8, "memory_gib": 64, "usd_per_hour": 3.06}
            | {"boot": "5m", "setup": "4m", "capacity": 2},
            {"name": "large", "gpus": 4, "cpus": 32, "memory_gib": 244, "usd_per_hour": 12.24}
            | {"boot": "6m", "setup": "4m"},
            {"name": "plain", "gpus": 0, "cpus": 8, "memory_gib": 64, "usd_per_hour": 0.36}
            | {"boot": "3m", "setup": "3m"},
        ]
    },
    "clock": {"speed": SPEED},
    "debug": {"validate": True},
}

#: When it arrives and how long it works (wall seconds), GPUs per task, and whether it saves its progress.
#: The first burst fills the cluster, so that long jobs leave; it frees in time for some to come home. What
#: may come home saves its progress, and at its end its result: else one that is told to stop while it exits
#: would have to do all its work again.
JOBS: tuple[tuple[float, float, tuple[int, ...], bool], ...] = (
    (0.0, 1.3, (2,), False),
    (0.0, 1.1, (1,), False),
    (0.0, 2.4, (1,), True),
    (0.0, 2.1, (1,), True),
    (0.0, 0.5, (1,), True),
    (0.9, 0.4, (0,), False),
    (0.9, 0.6, (1, 1), True),
    (0.9, 0.5, (2,), True),
    (1.6, 0.4, (1,), True),
    (1.6, 0.3, (1,), True),
)


@dataclass
class Lives:
    """One run in a home of its own: a scheduler that is killed after each of `moments`, then lives on."""

    seed: int
    root: Path
    #: How long each of the killed lives lasts; wall seconds from the start of the process.
    moments: list[float]
    processes: list[BaseProcess] = field(default_factory=list)
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.home = Home(self.root / "home")
        self.home.root.mkdir(parents=True)
        self.witness = self.home.root / "witness.jsonl"
        self.log = self.root / "up.log"
        self.config = self.root / "small.yaml"
        self.config.write_text(yaml.safe_dump(CONFIG))
        self._arrivals = [(at, self._submission(f"job-{n}", *rest)) for n, (at, *rest) in enumerate(JOBS)]
        self.job_ids = [submission.job.id for _, submission in self._arrivals]

    def run(self) -> list[str]:
        """Live through it; returns what is wrong at the end."""
        self._began = time.monotonic()
        try:
            with self.open() as store:
                for moment in self.moments:
                    process = self.start()
                    self.until(partial(past, time.monotonic() + moment), store)
                    process.kill()
                    process.join()
                process = self.start()
                in_time = self.until(lambda: self.is_over(store) or process.exitcode is not None, store)
                wrong = [] if in_time else [f"not over within {PATIENCE_S:g} s"]
                if process.exitcode is not None:
                    wrong.append(f"the scheduler ended by itself, with {process.exitcode}")
                process.terminate()
                process.join(PATIENCE_S)
                return wrong + self.wrong(store)
        finally:
            self.end()

    def start(self, *options: str) -> BaseProcess:
        """A scheduler on this home, in a session of its own."""
        process = NURSERY.Process(target=up, args=(self.home.root, self.config, self.log, *options))
        process.start()
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Whatever went wrong, nothing of this run stays behind."""
        for process in self.processes:
            process.kill()
            process.join()
        while left := self.left():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def left(self) -> list[int]:
        """Processes that carry this run's marker, its home, in their environment or arguments."""
        marker, found = os.fsencode(self.home.root), []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # gone meanwhile, or another user's
                if any(marker in (path / name).read_bytes() for name in ("environ", "cmdline")):
                    found.append(int(path.name))
        return found

    def story(self) -> str:
        """What there is to know about a run that failed."""
        with self.open() as opened:
            jobs = [f"{row.id}: {row.phase} {row.site} {row.message}" for row in queries.jobs(opened)]
            machines = [str(record) for record in queries.instance_records(opened, include_ended=True)]
        truth = [str(machine) for machine in self.machines()]
        log = self.log.read_text().splitlines()[-40:]
        head = f"seed {self.seed}, killed after {', '.join(f'{moment:.3f} s' for moment in self.moments)}"
        return "\n".join([head, *jobs, "the store's machines:", *machines, "the cloud's:", *truth, *log])

    def machines(self) -> list[Instance]:
        """Every machine there is or was, in the cloud's own words."""
        cloud = parse_config(CONFIG, "test").cloud
        with self.open() as store:
            controller = store.fact("controller")
        listing = LocalCloud(
            cloud.catalog(),
            self.home.cloud,
            ProcessRunner(self.home.cloud / "runs", self.home.checkpoints, Site.CLOUD),
            pace=Pace(),
            now=time.time,
            lease_s=cloud.lease,
            owner="starburst",
            controller=controller,
        )
        return asyncio.run(listing.owned())

    def open(self) -> Store:
        with OPENING:
            return Store.open(self.home.store)

    def _submission(self, name: str, work_s: float, gpus: tuple[int, ...], checkpoint: bool) -> Submission:
        command = [sys.executable, "-I", "-S", train.__file__, "--seconds", f"{work_s}"]
        command += ["--witness", str(self.witness), *(["--checkpoint"] if checkpoint else [])]
        tasks = tuple(Resources.of(count, 1, 4) for count in gpus)
        estimate_s = work_s * SPEED
        job = Job(name, name, tasks, runtime_estimate_s=estimate_s, checkpoint=checkpoint, grace_s=5.0)
        return Submission(job, Workload(tuple(command), submitter=OWNER))

    def until(self, over: Callable[[], bool], store: Store) -> bool:
        """Submit what arrives until something is over; whether it was in time."""
        give_up = time.monotonic() + PATIENCE_S
        while not over():
            while self._arrivals and self._arrivals[0][0] <= time.monotonic() - self._began:
                store.submit([self._arrivals.pop(0)[1]], time.time())
            if time.monotonic() > give_up:
                return False
            time.sleep(0.1)
        return True

    def is_over(self, store: Store) -> bool:
        all_ended = not self._arrivals and not lost(store, self.job_ids)
        return all_ended and not queries.instance_records(store)

    def wrong(self, store: Store) -> list[str]:
        """Promises that were broken."""
        rows, machines = queries.jobs(store), self.machines()
        bill = {machine.id: _cost_micro_usd(machine) for machine in machines}
        books = {
            m.id: m.micro_usd for m in queries.instance_records(store, include_ended=True) if m.micro_usd
        }
        self.until(lambda: not self.left(), store)
        checks = {
            "lost": lost(store, self.job_ids),
            "did not succeed": [row.id for row in rows if row.phase != Phase.SUCCEEDED.value],
            "ran twice": ran_twice(self.witness),
            "never worked to the end": sorted(set(self.job_ids) - self._worked()),
            "leaked": [machine.id for machine in machines if machine.phase is not InstancePhase.GONE],
            "still alive": self.left(),
            "bills that differ": sorted({*bill.items()} ^ {*books.items()}),
            "micro-dollars that no job paid": sum(bill.values()) - sum(row.cloud_micro_usd for row in rows),
            "still owed": store.pending_actions(),
        }
        return [f"{what}: {found}" for what, found in checks.items() if found]

    def _worked(self) -> set[str]:
        lines = self.witness.read_text().splitlines() if self.witness.exists() else []
        notes = [json.loads(line) for line in lines]
        return {note["STARBURST_JOB"] for note in notes if note["what"] == "end"}


def past(at: float) -> bool:
    return time.monotonic() >= at


def _cost_micro_usd(machine: Instance) -> int:
    """Billed seconds × price per hour of all its nodes, by the cloud's own record."""
    prices = {
        entry.offer.name: entry.offer.price_per_hour for entry in parse_config(CONFIG, "t").cloud.catalog()
    }
    price, ended_at = prices[machine.offer_name], machine.ended_at
    assert price is not None
    if ended_at is None:
        return 0
    return (price * machine.nodes).for_seconds(ended_at - machine.launched_at).micro_usd


def moments(run: int, runs: int) -> list[float]:
    """When run number `run` of `runs` is killed: spread evenly over a life, and some again soon after."""
    draw = random.Random(run)
    first = LIFE_S * (run + draw.random()) / runs
    again = {3: 1, 7: 2}.get(run % 10, 0)
    return [first, *(draw.uniform(0.2, 2.0) for _ in range(again))]
