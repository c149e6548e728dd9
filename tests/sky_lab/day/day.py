"""A day: jobs are submitted and things go wrong as planned; then everything is counted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from starburst.domain.job import is_over
from tests.sky_lab.day import verdict
from tests.sky_lab.day.account import Account
from tests.sky_lab.day.faults import TYPES
from tests.sky_lab.day.jobs import MAX_LOG, PlannedJob
from tests.sky_lab.day.neighbours import Neighbours
from tests.sky_lab.day.plan import DayPlan, PlannedFault
from tests.sky_lab.day.world import Undo, World
from tests.sky_lab.deployment import BrokenError, Deployment
from tests.sky_lab.ec2 import REGIONS, ec2, made_twice, rented, stops
from tests.sky_lab.lab import lab
from tests.sky_lab.within import first_process

LOOK_S = 0.5
LEASE_S, IDLE_MINUTES = 120, 1
#: Seconds that a job has run before it is told to run anew.
REQUEUED_S = 2.0


def config(patience: float) -> dict[str, Any]:
    """The config; a slow host needs more patience until a machine that is up counts as lost."""
    return {
        "policy": {
            "packer": "eva",
            "pack_window": "3s",
            "unreachable": f"{20 * patience:g}s",
            "offer_pause": "10s",
        },
        "cluster": {"nodes": [{"name": "node", "cpus": 1, "memory_gib": 1}]},
        "cloud": {
            "kind": "skypilot",
            "regions": [REGIONS[0]],
            "instance_types": list(TYPES),
            "spot": "also",
            "lease": f"{LEASE_S * patience:g}s",
            "idle_minutes": IDLE_MINUTES,
            "reap_after": "60s",
            "launch_limit": f"{600 * patience:g}s",
        },
        "home": {"max_log": MAX_LOG},
        "debug": {"validate": True},
    }


@dataclass
class Day:
    """One day in a directory of its own."""

    plan: DayPlan
    root: Path
    #: Machines that the account has, at which no more jobs are submitted; and jobs that may be on their way.
    machines: int = 8
    at_once: int = 12
    #: Factor of all limits of time, for slow hosts.
    patience: float = 1.0
    story: list[str] = field(default_factory=list)
    jobs: dict[str, PlannedJob] = field(default_factory=dict)
    most_machines: int = 0
    took_s: float = 0.0
    #: How long machines were billed, and idle.
    idle: str = "not all ended"
    #: Names of the faults that came about.
    happened: set[str] = field(default_factory=set)
    _due: list[tuple[float, PlannedFault, Undo]] = field(default_factory=list)
    _silenced: set[str] = field(default_factory=set)
    #: From when to when (epoch seconds) answers to launches were lost.
    _unanswered: list[tuple[float, float]] = field(default_factory=list)
    #: Jobs that a person has told to end, or to run anew.
    _told: set[str] = field(default_factory=set)
    _alive: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.at = Deployment(self.root, config(self.patience))
        self.world = World(self.at, Account(self.machines, TYPES), Neighbours())
        self._jobs, self._faults = list(self.plan.jobs), list(self.plan.faults)
        self._began = time.monotonic()

    @property
    def wrong(self) -> list[str]:
        """What was found."""
        return self.at.wrong

    def run(self) -> list[str]:
        """Live through it; what is wrong at its end."""
        try:
            self.world.account.open()
            self.at.up()
            done_s, gone_s = 900.0 * self.patience, 300.0 * self.patience
            self._until("offers known", gone_s, self.at.has_offers)
            self._began = time.monotonic()
            self._until("all submitted", done_s * 4, lambda: not self._jobs)
            self._until("all jobs over", done_s, self._done)
            self._faults.clear()
            self._until("all faults made good", gone_s, lambda: not self._due)
            self._until("nothing rented", gone_s, lambda: not self._alive)
            self._until("the store has no machine", gone_s, lambda: not self.at.records())
            self._until("the other homes have nothing to do", done_s, self.world.neighbours.done)
            self._judge()
        except (BrokenError, subprocess.SubprocessError, ClientError, BotoCoreError) as error:
            self.wrong.append(f"{type(error).__name__}: {error}")
            open_rows = [row for row in self.at.rows() if not is_over(row.phase)]
            self.wrong.extend(f"{row.id} is {row.phase}: {row.message}" for row in open_rows)
        finally:
            self._clear()
        self.took_s = time.monotonic() - self._began
        return self.wrong

    def _judge(self) -> None:
        """Find what is wrong, with this home and the others."""
        neighbours, machines = self.world.neighbours, []
        homes = [(self.at, self.jobs), *((other.at, other.jobs) for other in neighbours.homes)]
        for at, jobs in homes:
            silenced = self._silenced | verdict.unheard(at)
            self.wrong.extend(verdict.wrong_jobs(at, jobs, silenced))
            self.wrong.extend(verdict.wrong_bills(at))
            self.wrong.extend(made_twice(rented(at.tag), self._unanswered))
            self.wrong.extend(verdict.left_over(at, [person.cluster for person in neighbours.people]))
            machines += [replace(one, intent=f"{at.tag} {one.intent}") for one in rented(at.tag)]
        self.wrong.extend(verdict.too_many(machines, self.machines))
        self.wrong.extend(neighbours.wrong())
        self.idle = verdict.idle(self.at)

    def report(self) -> list[str]:
        """What the day was, what went wrong with the world, and what is wrong with Starburst."""
        planned = {one.fault.name for one in self.plan.faults}
        return [
            f"seed {self.plan.seed}: {len(self.jobs)} jobs, {len(self.at.seen)} machines, at most "
            f"{self.most_machines} at a time; {len(self.happened)} of {len(planned)} kinds of faults; "
            f"{self.took_s:.0f} s; wrong: {len(self.wrong)}",
            f"  {self.idle}",
            *(f"  {line}" for line in self.story),
            *(f"  WRONG {line}" for line in self.wrong),
        ]

    # --- what happens ------------------------------------------------------------------------------------

    def _until(self, what: str, limit_s: float, holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > give_up:
                raise BrokenError(f"not within {limit_s:.0f} s: {what}")
            self._look()
            self._make_good()
            self._go_wrong()
            self._submit()
            self._tell()
            time.sleep(LOOK_S)

    def _look(self) -> None:
        """See what the cloud bills, unless it answers nobody now."""
        if not any(fault.fault.of_account for _at, fault, _undo in self._due):
            with suppress(ClientError, BotoCoreError):
                self._alive = self.at.alive()
                self.at.stopped |= stops(self.at.tag)
                others = self.world.neighbours.alive()
                self.most_machines = max(self.most_machines, len(self._alive) + others)
        self.at.supervise(may_refuse=True)
        self.world.neighbours.supervise()

    def _make_good(self) -> None:
        for entry in [entry for entry in self._due if entry[0] <= time.monotonic()]:
            self._due.remove(entry)
            entry[2]()
            if entry[1].fault.unanswered:
                self._unanswered[-1] = self._unanswered[-1][0], time.time()
            self._say(f"over: {entry[1].fault.name}")

    def _go_wrong(self) -> None:
        """Begin the fault that is due; one of the account overlaps with faults of single machines only."""
        if not self._faults or self._faults[0].at_s > self._now():
            return
        planned, there = self._faults[0], [fault.fault for _at, fault, _undo in self._due]
        if planned.fault.name in {fault.name for fault in there}:
            return
        of_all = [fault for fault in (planned.fault, *there) if not fault.of_machine]
        if not planned.fault.of_machine and any(fault.of_account for fault in of_all) and len(of_all) > 1:
            return
        vm = self._busy_machine() if planned.fault.of_machine else ""
        if vm is None or (planned.fault.of_launch and not self.world.launches()):
            return
        self._faults.pop(0)
        undo = planned.fault.do(self.world, vm)
        self.happened.add(planned.fault.name)
        if planned.fault.silences:
            self._silenced.add(vm)
        if planned.fault.unanswered:
            self._unanswered.append((time.time(), inf))
        self._due.append((time.monotonic() + planned.away_s, planned, undo))
        self._say(f"{planned.fault.name}{' of ' if vm else ''}{vm} for {planned.away_s:.0f} s")

    def _busy_machine(self) -> str | None:
        """A machine that is up, on which a job has begun, and that nothing has befallen yet."""
        if any(fault.fault.of_account for _at, fault, _undo in self._due):
            return None
        busy = {copy.vm for copy in self.at.copies() if not copy.ended}
        free = (self._alive & busy) - self._silenced
        return min((vm for vm in free if first_process(vm) is not None), default=None)

    def _submit(self) -> None:
        if not self._jobs or len(self._alive) >= self.machines or not self.at.has_offers():
            return
        due = [job for job in self._jobs if job.at_s <= self._now()]
        due = due[: max(0, self.at_once - self._open())]
        if not due:
            return
        del self._jobs[: len(due)]
        alone = [job for job in due if job.kind.workdir]
        together = [job for job in due if not job.kind.workdir]
        manifests = [job.kind.manifest(job.name, job.beats, job.spot) for job in together]
        ids = self.at.submit(manifests) if manifests else []
        ids += [self.at.submit_command(*job.kind.options(job.name, job.beats, self.root)) for job in alone]
        self.jobs |= dict(zip(ids, [*together, *alone], strict=True))

    def _tell(self) -> None:
        """End, or stop and queue again, the jobs that are to be, once they run."""
        waiting = {
            id_ for id_, job in self.jobs.items() if job.kind.cancelled or job.kind.requeued
        } - self._told
        if not waiting:
            return
        for copy in self.at.copies():
            if copy.job not in waiting - self._told:
                continue
            if self.jobs[copy.job].kind.cancelled:
                self.at.starburst("cancel", copy.job)
                self._told.add(copy.job)
            elif copy.ended:
                self._told.add(copy.job)
            elif copy.seen_at - copy.began_at > REQUEUED_S:
                with suppress(BrokenError):  # it may have ended, or wait for another machine
                    self.at.starburst("requeue", copy.job)
                    self._told.add(copy.job)

    def _clear(self) -> None:
        """Whatever went wrong, nothing of this day stays."""
        for _at, _fault, undo in self._due:
            with suppress(subprocess.SubprocessError):
                undo()
        self.at.kill()
        lab("fault", "off")
        self.world.account.close()
        self.world.neighbours.leave()
        if left := self.at.alive():
            ec2().terminate_instances(InstanceIds=sorted(left))

    # --- how ---------------------------------------------------------------------------------------------

    def _open(self) -> int:
        over = {row.id for row in self.at.rows() if is_over(row.phase)}
        return len(self.jobs.keys() - over)

    def _done(self) -> bool:
        return not self._jobs and not self._open()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _say(self, what: str) -> None:
        over = len(self.jobs) - self._open()
        self.story.append(
            f"{self._now():.0f} s: {what} "
            f"({over} of {len(self.plan.jobs)} jobs over, load {os.getloadavg()[0]:.0f})"
        )
        print(self.story[-1], file=sys.stderr, flush=True)
