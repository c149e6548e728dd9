"""The demo: a real Starburst in its own home directory, a burst of forty jobs, then the summary."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from anyio import move_on_after
from rich.console import Console
from rich.live import Live

from sim.reports.gantt import gantt
from sim.world import SimJob
from starburst.aio import running
from starburst.app.config import Config, parse_config
from starburst.app.config.home import Home
from starburst.app.config.sites import CloudConfig
from starburst.app.daemon.controller import Controller
from starburst.app.daemon.observers import CommittedStep
from starburst.app.wiring.build import build
from starburst.demo.bills import Bill, replay, rivals
from starburst.demo.jobs import SPEED, DemoJob, demo_jobs
from starburst.demo.record import history, lost, ran_twice, worked_s
from starburst.demo.view import View, line
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import Phase, is_over
from starburst.domain.money import Money
from starburst.policy.waiting import hours
from starburst.runs.ports import Cloud
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store

#: Wall seconds after which the demo and its jobs are ended.
LIMIT_S = 85.0
FRAMES_PER_S = 6
#: Longest wait for the ends of jobs after Ctrl-C, wall seconds.
END_S = 15.0
DEMO_CONFIG = {
    "policy": {"budget_percent": 50, "prior_gpus": 1.7, "prior_runtime": "1h", "t_max": "40m"},
    "cluster": {
        "nodes": [{"name": "node", "count": 2, "gpus": 4, "gpu_type": "V100", "cpus": 32, "memory_gib": 244}]
    },
    "clock": {"speed": SPEED},
    "debug": {"validate": True},
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Content of the `--json` output. Money in dollars, times in scheduler seconds."""

    submitted: int
    succeeded: int
    failed: int
    lost: int
    ran_twice: int
    offloaded: int
    returned: int
    passed_out_of_order: int
    cloud_cost: float
    no_wait_cost: float
    constant_wait_cost: float
    mean_jct_s: float
    no_wait_mean_jct_s: float
    mean_wait_s: float
    leaked_instances: int
    wall_s: float
    seed: int
    decision_log: str
    picture: str


def run_demo(out: Path, *, count: int, seed: int, console: Console) -> Summary:
    """Run the demo in the directory `out`; `console` shows a live screen, or lines if it is no terminal."""
    out = out.absolute()  # jobs have other working directories
    out.mkdir(parents=True, exist_ok=True)
    home = Home(out / f"home-{int(time.time())}")
    config = parse_config(DEMO_CONFIG, "demo")
    jobs = demo_jobs(count, seed, home.root / "witness.jsonl")
    began = time.monotonic()
    with home.lock(), Store.open(home.store) as store:
        demo = _Demo(home, config, store, jobs, console)
        asyncio.run(demo.run())
        ended = f"its jobs were ended, and their files are in {home.root}"
        if demo.interrupted:
            raise DemoInterruptedError(f"interrupted; {ended}")
        if demo.late:
            raise DemoLateError(f"not done after {LIMIT_S:g} s, as where this machine is busy; {ended}")
        return _summarise(demo, out, store, seed=seed, wall_s=time.monotonic() - began)


class DemoInterruptedError(Exception):
    """The user ended the demo with Ctrl-C."""


class DemoLateError(Exception):
    """The demo was not done in time."""


class _Demo:
    """A run of the demo in this process: controller, submitter and screen."""

    def __init__(
        self, home: Home, config: Config, store: Store, jobs: list[DemoJob], console: Console
    ) -> None:
        self._database = home.store
        self.home = home
        self.config = config
        self.jobs = jobs
        self._console = console
        self.controller: Controller = build(home, config, store, observers=[self])
        self._start = self.controller.now()
        self.interrupted = self.late = False
        self._view = View(self.controller.scheduler, self._start, len(jobs))

    async def run(self) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        async with running(self.controller.run(stop), "controller") as controller:
            try:
                async with running(self._submit(), "submitter") as submitter:
                    with self._screen() as live, move_on_after(LIMIT_S) as limit:
                        await self._until_done(controller, live)
                    self.late = limit.cancelled_caught
                    if not (self.interrupted or self.late):
                        await submitter
                if self.interrupted or self.late:
                    await self._end_jobs()
            finally:
                stop.set()
                await controller

    def _interrupt(self) -> None:
        self.interrupted = True

    async def _end_jobs(self) -> None:
        """Cancel all jobs without a grace, and wait until nothing of them is alive; END_S at most."""
        give_up = time.monotonic() + END_S
        with Store.open(self._database) as store:
            store.cancel(_live(store), time.time(), now=True)
            while _live(store) and time.monotonic() < give_up:  # jobs not taken up yet are in the store only
                await asyncio.sleep(1 / FRAMES_PER_S)

    async def _submit(self) -> None:
        """Submit the jobs over a separate connection, as another process would."""
        began = time.monotonic()
        with Store.open(self._database) as store:
            for job in self.jobs:
                await asyncio.sleep(max(0.0, began + job.arrival_s - time.monotonic()))
                store.submit([job.submission], time.time())

    async def _until_done(self, controller: asyncio.Task[None], live: Live | None) -> None:
        while not (self.interrupted or self._done()):
            if controller.done():
                controller.result()
            if live is not None:
                live.update(self._view.draw(self.controller.now(), self._console.height), refresh=True)
            await asyncio.sleep(1 / FRAMES_PER_S)

    def _done(self) -> bool:
        scheduler = self.controller.scheduler
        all_in = scheduler.state.arrivals == len(self.jobs)
        return all_in and not scheduler.state.jobs and not scheduler.state.fleet.instances

    def stepped(self, step: CommittedStep) -> None:
        """Display the decisions of a step."""
        self._view.hear(step.changes.decisions)
        if not self._console.is_terminal:
            for decision in step.changes.decisions:
                self._console.print(line(decision, self._start), markup=False, soft_wrap=True)

    def close(self) -> None:
        """Nothing to close."""

    def _screen(self) -> AbstractContextManager[Live | None]:
        if not self._console.is_terminal:
            return nullcontext()
        return Live(console=self._console, screen=True, auto_refresh=False)


def _live(store: Store) -> list[str]:
    return [row.id for row in queries.jobs(store) if not is_over(row.phase)]


def _summarise(demo: _Demo, out: Path, store: Store, *, seed: int, wall_s: float) -> Summary:
    rows = queries.jobs(store)
    past = history(store)
    decisions = queries.decisions(store)
    waits = {wait.job_id: wait.end - wait.start for wait in past.waits}
    paid = Money(sum(row.cloud_micro_usd for row in rows))
    no_wait, constant = _bills(demo, rows, worked_s(past.spans))
    log = out / "decisions.jsonl"
    log.write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in decisions))
    jct_s = [row.ended_at - row.submitted_at for row in rows if row.ended_at is not None]
    nodes = demo.controller.scheduler.state.capacity.nodes
    summary = Summary(
        submitted=len(demo.jobs),
        succeeded=sum(row.phase == Phase.SUCCEEDED.value for row in rows),
        failed=sum(row.phase == Phase.FAILED.value for row in rows),
        lost=len(lost(store, [job.submission.job.id for job in demo.jobs])),
        ran_twice=len(ran_twice(demo.home.root / "witness.jsonl")),
        offloaded=len({row.subject for row in decisions if row.kind == "offloaded"}),
        returned=sum(row.kind == "returning" for row in decisions),
        passed_out_of_order=sum(row.kind == "placed" and bool(row.numbers["passed"]) for row in decisions),
        cloud_cost=float(paid.dollars),
        no_wait_cost=float(no_wait.cloud_cost.dollars),
        constant_wait_cost=float(constant.cloud_cost.dollars),
        mean_jct_s=sum(jct_s) / len(jct_s),
        no_wait_mean_jct_s=no_wait.mean_jct_s,
        mean_wait_s=sum(waits.values()) / len(rows),
        leaked_instances=asyncio.run(_leaked(demo.controller.cloud)),
        wall_s=round(wall_s, 1),
        seed=seed,
        decision_log=str(log),
        picture=str(out / "schedule.svg"),
    )
    title = f"{summary.submitted} jobs on {len(nodes)} nodes and a cloud: {paid}, {_percent(paid, no_wait)}"
    subtitle = "cluster GPUs above, rented machines in the middle, waits below; dashed: stopped to come home"
    Path(summary.picture).write_text(gantt(title, subtitle, past.spans, past.waits, nodes))
    return summary


def _bills(demo: _Demo, rows: list[JobRow], worked: dict[str, float]) -> list[Bill]:
    """No-Wait and Constant-Wait on the same jobs, with the measured arrival and run times."""
    start = min(row.submitted_at for row in rows)
    submitted = {job.submission.job.id: job.submission.job for job in demo.jobs}
    jobs = [SimJob(submitted[row.id], row.submitted_at - start, worked.get(row.id, 0.0)) for row in rows]
    nodes = demo.controller.scheduler.state.capacity.nodes
    assert isinstance(demo.config.cloud, CloudConfig)
    offers = demo.config.cloud.catalog()
    settings = demo.config.policy.settings()
    return [replay(name, other, jobs, nodes, offers) for name, other in rivals(settings)]


async def _leaked(cloud: Cloud) -> int:
    ended = (InstancePhase.GONE, InstancePhase.FAILED)
    return sum(machine.phase not in ended for machine in await cloud.owned())


def _percent(paid: Money, rival: Bill) -> str:
    """Comparison with a rival's bill, in words."""
    if not rival.cloud_cost.micro_usd:
        return f"and {rival.policy} would have paid nothing"
    less = 1 - paid.micro_usd / rival.cloud_cost.micro_usd
    return f"{abs(less):.0%} {'less' if less >= 0 else 'more'} than {rival.policy}"


def tell(summary: Summary, console: Console) -> None:
    """Print the summary."""
    s = summary
    paid, no_wait, constant = (Money.of(x) for x in (s.cloud_cost, s.no_wait_cost, s.constant_wait_cost))
    console.print(
        f"\n{s.submitted} jobs, {s.succeeded} succeeded, {s.failed} failed, {s.lost} lost, "
        f"{s.ran_twice} ran twice; {s.leaked_instances} machines leaked. {s.wall_s:.0f} s.",
        style="bold",
    )
    console.print(
        f"{s.offloaded} left for the cloud, {s.returned} came home, {s.passed_out_of_order} passed an "
        f"earlier job; mean wait {hours(s.mean_wait_s)}, mean JCT {hours(s.mean_jct_s)}.",
        soft_wrap=True,
    )
    console.print("\nThe bill, and what the same jobs would have cost without Starburst:")
    for name, amount in (("Starburst", paid), ("Constant-Wait", constant), ("No-Wait", no_wait)):
        share = amount.micro_usd / max(no_wait.micro_usd, paid.micro_usd, 1)
        console.print(f"  {name:<14} {amount!s:>9}  [cyan]{'█' * round(40 * share)}[/]")
    console.print(f"\npicture   {s.picture}\ndecisions {s.decision_log}", soft_wrap=True)
