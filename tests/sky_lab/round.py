"""A round: Starburst on the laboratory while processes are killed, a network cut, its home deleted."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starburst.domain.job import Phase, is_over
from starburst.runs.attempt_dir import log_path
from tests.sky_lab.deployment import BrokenError, Deployment
from tests.sky_lab.ec2 import REGIONS, ec2, made_twice, rented
from tests.sky_lab.lab import kill_server, lab
from tests.sky_lab.marks import BEATS, BEGIN, END, twins
from tests.sky_lab.plan import Disturbance, Fate, Plan, What, When

REAP_AFTER_S, LEASE_S, IDLE_MINUTES = 30, 60, 1
#: Wall seconds at most: until all jobs are over; until nothing is rented after that, or after a reaper by
#: hand; and until a machine that is left alone has ended (a launch, the lease, idleness, and the way down).
DONE_S, GONE_S, ALONE_S = 480.0, 120.0, 420.0
LOOK_S = 0.3

CONFIG = {
    "policy": {"packer": "eva", "pack_window": "3s", "unreachable": "15s", "offer_pause": "5s"},
    "cluster": {"nodes": [{"name": "node", "cpus": 1, "memory_gib": 1}]},
    "cloud": {
        "kind": "skypilot",
        "regions": [REGIONS[0]],
        "instance_types": ["c7i.xlarge"],
        "lease": f"{LEASE_S}s",
        "idle_minutes": IDLE_MINUTES,
        "reap_after": f"{REAP_AFTER_S}s",
    },
    "debug": {"validate": True},
}


@dataclass
class Round:
    """One round in a directory of its own."""

    plan: Plan
    root: Path
    #: What happened, and when.
    story: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    #: Wall seconds: of the whole round, and until nothing was rented after the jobs' or the scheduler's end.
    took_s: float = 0.0
    gone_s: float = math.nan
    #: Machines whose network never came back.
    lost: set[str] = field(default_factory=set)
    ids: list[str] = field(default_factory=list)
    _due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.at = Deployment(self.root, CONFIG, wrong=self.wrong)
        shutil.copytree(self.at.home.root, self.root / "before")

    @property
    def seen(self) -> set[str]:
        """Every machine that was ever seen."""
        return self.at.seen

    def alive(self) -> set[str]:
        """Machines of this round that are billed."""
        return self.at.alive()

    def run(self) -> list[str]:
        """Live through it; what is wrong at the end."""
        try:
            self.at.up()
            self._submit()
            for disturbance in self.plan.disturbances:
                in_time = self._reached(disturbance.when, disturbance.delay_s) and self._do(disturbance)
                self._say(str(disturbance) if in_time else f"too late: {disturbance}")
            self._end()
        except (BrokenError, subprocess.SubprocessError) as error:
            self.wrong.append(str(error))
        finally:
            self._clear()
        self.took_s = time.monotonic() - self._began
        return self.wrong

    # --- what happens ------------------------------------------------------------------------------------

    def _reached(self, when: When, delay_s: float) -> bool:
        """Wait for a moment; whether there is anything left to disturb then."""
        moments: dict[When, Callable[[], bool]] = {
            When.ASKED: lambda: True,
            When.LAUNCHING: lambda: bool(self.seen),
            When.RUNNING: lambda: bool(self.at.copies()),
            When.ENDING: lambda: False,
        }
        self._until(when.value, DONE_S, lambda: moments[when]() or self._done())
        moment = time.monotonic() + delay_s
        self._until("a moment", DONE_S, lambda: time.monotonic() >= moment)
        return when is When.ASKED or not self._done() or bool(self.alive())

    def _do(self, it: Disturbance) -> bool:
        """Whether there was anything to do it to."""
        if it.what is What.SCHEDULER:
            self.at.kill()
            back = self.at.up
        elif it.what is What.SERVER:
            kill_server()
            back = _server_up
        else:
            found = self._machine_with_a_network()
            if found is None:
                return False
            vm = found
            lab("unplug", vm)
            if it.what is What.LOST:
                self.lost.add(vm)

            def back() -> None:
                if vm in self.alive():
                    lab("plug", vm)

        if it.away_s != math.inf:
            self._due.append((time.monotonic() + it.away_s, back))
        return True

    def _machine_with_a_network(self) -> str | None:
        alive = self.alive()
        rows = (line.split("\t") for line in lab("vms").splitlines())
        return next((row[0] for row in rows if row[0] in alive and row[9] == "plugged"), None)

    def _submit(self) -> None:
        jobs = [_manifest(f"job-{number}", *job) for number, job in enumerate(self.plan.jobs)]
        self.ids = self.at.submit(jobs)

    # --- the end -----------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self.plan.fate is Fate.LIVES:
            self._until("all jobs over", DONE_S, lambda: not self._due and self._done())
            self._until_gone(GONE_S, time.monotonic())
            self._until("the store has no machine", GONE_S, lambda: not self.at.records())
            self._check_jobs()
            return
        shutil.rmtree(self.at.home.root)
        since = time.monotonic()
        if self.plan.fate is Fate.DELETED:
            before = self.alive()
            self.at.starburst(*REAP, "--others", home=self.at.made("another"))
            if not before <= self.alive():  # within seconds none can have ended by itself
                self.wrong.append("the reaper of another store ended a machine")
            self._until_gone(ALONE_S, since)
        else:
            shutil.copytree(self.root / "before", self.at.home.root)
            self.at.starburst(*REAP)
            self._until_gone(GONE_S, since)
        self._check_copies()

    def _until_gone(self, limit_s: float, since: float) -> None:
        self._until("zero machines", limit_s - (time.monotonic() - since), lambda: not self.alive())
        self.gone_s = time.monotonic() - since

    def _check_jobs(self) -> None:
        rows = self.at.rows()
        for job, (_cpus, beats) in zip(self.ids, self.plan.jobs, strict=True):
            row = next((row for row in rows if row.id == job), None)
            ended = [it for it in self.at.copies() if it.job == job and it.ended]
            heard = [it for it in ended if it.vm not in self.lost]
            if row is None or row.phase != Phase.SUCCEEDED.value:
                self.wrong.append(f"{job} is {row and row.phase}")
                continue
            log = log_path(self.at.home.cloud / "runs", job, row.attempt or 0)
            if len(heard) != 1 or row.attempt not in {it.attempt for it in ended}:
                self.wrong.append(f"{job}, {beats} beats, came to its end {len(ended)} times: {ended}")
            if log.read_text() != "begin\nend\n":
                self.wrong.append(f"{job} attempt {row.attempt}: its log is {log.read_text()!r}")
        self._check_copies()

    def _check_copies(self) -> None:
        self.wrong += twins(self.at.copies())
        self.wrong += made_twice(rented(self.at.tag))

    def _clear(self) -> None:
        """Whatever went wrong, the next round starts with nothing of this one."""
        self.at.kill()
        for _at, back in self._due:
            if back is _server_up:
                back()
        left = self.alive()
        if left:
            ec2().terminate_instances(InstanceIds=sorted(left))

    def _done(self) -> bool:
        if self.plan.fate is not Fate.LIVES and self.at.process is None:
            return True
        rows = self.at.rows()
        return bool(rows) and all(is_over(row.phase) for row in rows)

    # --- how ---------------------------------------------------------------------------------------------

    def _until(self, what: str, limit_s: float, holds: Callable[[], bool]) -> None:
        """Until something holds; what is due meanwhile is done."""
        give_up = time.monotonic() + limit_s
        while True:
            self.alive()
            if holds():
                return
            self.at.supervise(may_refuse=self._server_dies)
            if time.monotonic() > give_up:
                raise BrokenError(f"not within {limit_s:.0f} s: {what}")
            for entry in [entry for entry in self._due if entry[0] <= time.monotonic()]:
                self._due.remove(entry)
                entry[1]()
            time.sleep(LOOK_S)

    @property
    def _server_dies(self) -> bool:
        return What.SERVER in {it.what for it in self.plan.disturbances}

    def _say(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:.0f} s: {what}")


REAP = ("reap", "--no-dry-run", "--config", "starburst.yaml")


def _server_up() -> None:
    lab("up", seconds=300)


def _manifest(name: str, cpus: int, beats: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "command": ["bash", "-c", (BEGIN + BEATS + END).replace("{beats}", str(beats))],
        "resources": {"requests": {"cpu": cpus, "memory": "256Mi"}},
    }
    keys = {"starburst.io/cloud": "only"}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": keys},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }


def left_of(rounds: Iterable[Round]) -> list[str]:
    """Machines of rounds that are over: of a launch that came late."""
    return sorted(vm for one in rounds for vm in one.alive())
