"""Rented machines by the thousand: the live scheduler over the SkyPilot adapter, with a SkyPilot in memory.

Controller, core, SQLite store and the adapter with its journal are the real ones. SkyPilot's API server, the
cloud and the agents of machines are models in virtual time. Five jobs that run in the cloud only share each
machine. All are launched, then work on for two minutes: counted are the calls of these, CPU time, steps and
memory. Prints a table beside a tenth of the machines; fails if a figure per machine grows with their number.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import structlog

from bench.growth import report
from bench.throughput import QuickSite
from bench.virtual import VirtualLoop
from starburst.app.daemon.controller import Controller, Surroundings
from starburst.app.daemon.observers import CommittedStep, StepObserver
from starburst.clouds.sky.cloud import SkyCloud
from starburst.clouds.sky.context import SkyClock, SkyContext, SkySettings
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.runs.inputs import RunInputs
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.domain.job import CloudChoice, Job, Phase, Site, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.store.store import Store
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Line
from tests.clouds.sky.fake_vm import Vm

START = 1_767_571_200.0
JOBS_EACH = 5
OFFER = Offer("aws/us-east-1/p3.16xlarge", Resources.of(5, 64, 488, "V100"), Money.of("24.48"), "us-east-1")
#: Virtual seconds: of work that is looked at, and the most that the launches may take.
WORK_S, LAUNCH_S = 120.0, 4 * 3600.0
#: What a figure per machine may be of that at a tenth of the machines.
GROWS = 3.0


@dataclass(slots=True)
class IndexedSky(FakeSky):
    """A model whose machines are found by name, so that it costs little beside what is measured."""

    by_cluster: dict[str, list[Vm]] = field(default_factory=dict)
    indexed: int = 0

    def alive(self, cluster: str | None = None) -> list[Vm]:
        """See `FakeSky`."""
        for vm in self.vms[self.indexed :]:
            self.by_cluster.setdefault(vm.cluster, []).append(vm)
        self.indexed = len(self.vms)
        known = self.vms if cluster is None else self.by_cluster.get(cluster, [])
        return [vm for vm in known if vm.ended_at is None]


class Stopwatch(StepObserver):
    """Durations of steps, milliseconds."""

    def __init__(self) -> None:
        self.core_ms: list[float] = []
        self.commit_ms: list[float] = []

    def stepped(self, step: CommittedStep) -> None:
        """See `StepObserver`."""
        self.core_ms.append(1e3 * step.core_s)
        self.commit_ms.append(1e3 * step.commit_s)

    def close(self) -> None:
        """Nothing is open."""


async def live(home: Path, machines: int) -> dict[str, float]:
    """Rent so many machines, have them work, and say what that takes."""
    wall = asyncio.get_running_loop().time
    sky, watch = IndexedSky(home / "sky", gpus=JOBS_EACH), Stopwatch()
    with Store.open(home / "starburst.db") as store:
        store.submit([submission(i) for i in range(machines * JOBS_EACH)], wall())
        cloud = adapter(sky, home)
        settings = Settings(packer="stratus", pack_window_s=60.0)
        controller = Controller(
            store,
            Scheduler(settings),
            QuickSite(Site.CLUSTER),
            cloud,
            Pace(),
            wall=wall,
            around=Surroundings(observers=[watch]),
        )
        stop = asyncio.Event()
        living = asyncio.create_task(controller.run(stop))
        began_at, began = wall(), time.process_time()
        while running(controller) < machines * JOBS_EACH:
            await asyncio.sleep(10.0)
            assert not living.done(), living.result()
            assert wall() < began_at + LAUNCH_S, f"{running(controller)} jobs run"
        launched_s, launch_cpu_s = wall() - began_at, time.process_time() - began
        calls, steps, began = Counter(sky.calls), len(watch.core_ms), time.process_time()
        await asyncio.sleep(WORK_S)
        minutes, cpu_s = WORK_S / 60, time.process_time() - began
        made = sky.calls - calls
        rented = len(controller.scheduler.state.fleet.instances)
        stop.set()
        await living
    ssh, cloud_calls = made["ssh"], sum(made[name] for name in ("sight", "search", "arm", "end"))
    return {
        "machines rented": rented,
        "jobs that run": machines * JOBS_EACH,
        "until all run, virtual s": launched_s,
        "CPU of that, ms a machine": 1e3 * launch_cpu_s / machines,
        "calls of SkyPilot, a minute": (sum(made.values()) - ssh - cloud_calls) / minutes,
        "calls of the cloud's API, a minute and machine": cloud_calls / minutes / machines,
        "exchanges over ssh, a minute and machine": ssh / minutes / machines,
        "CPU at work, s a minute": cpu_s / minutes,
        "CPU at work, ms a minute and machine": 1e3 * cpu_s / minutes / machines,
        "steps while at work, a minute": (len(watch.core_ms) - steps) / minutes,
        "step, core, median ms": statistics.median(watch.core_ms),
        "step, core, longest ms": max(watch.core_ms),
        "step, commit, median ms": statistics.median(watch.commit_ms),
        "peak memory so far, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def adapter(sky: FakeSky, home: Path) -> SkyCloud:
    """The SkyPilot adapter on a line to the model."""
    line = Line(sky)
    settings = SkySettings(
        owner="starburst", controller="bench", logs=home / "runs", checkpoints=home / "checkpoints"
    )
    clock = SkyClock(asyncio.get_running_loop().time, Pace())
    journal, inputs = FileJournal(home / "notes"), RunInputs(None, {})

    async def offers() -> list[Offer]:
        return [OFFER]

    return SkyCloud(SkyContext(line, line, line, journal, clock, settings, inputs), offers)


def running(controller: Controller) -> int:
    """Jobs whose run has begun."""
    return sum(record.phase is Phase.RUNNING for record in controller.scheduler.state.jobs.values())


def submission(number: int) -> Submission:
    """A job of one GPU in the cloud, for longer than is looked at."""
    job = Job(
        f"job-{number:05}",
        "train",
        (Resources.of(1, 4, 32),),
        f"user-{number % 50}",
        runtime_estimate_s=86_400.0,
        cloud=CloudChoice.ONLY,
    )
    return Submission(job, Workload(("work", "86400", "0")))


def measure(machines: int) -> dict[str, float]:
    """Figures for so many machines."""
    loop = VirtualLoop(START)
    with tempfile.TemporaryDirectory() as home:
        try:
            return loop.run_until_complete(live(Path(home), machines))
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()


def limit(name: str, _value: float) -> float:
    """What a machine costs may grow by so much."""
    return GROWS if name.endswith("machine") else inf


def main() -> None:
    """Measure --machines and a tenth of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=2000)
    parser.add_argument("--small", action="store_true", help="40 machines: only to see that it runs")
    args = parser.parse_args()
    machines = 40 if args.small else args.machines
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    tenth, whole = measure(machines // 10), measure(machines)
    sys.exit(report(machines, tenth, whole, limit))


if __name__ == "__main__":
    main()
