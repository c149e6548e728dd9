"""A round: Starburst on the laboratory while processes are killed, a network cut, its home deleted."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from starburst.app.config.home import Home
from starburst.clouds.sky.machines.naming import CONTROLLER, INTENT, Naming
from starburst.domain.job import Phase, is_over
from starburst.runs.attempt_dir import log_path
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.sky_lab.ec2 import REGIONS, billed, ec2
from tests.sky_lab.lab import kill_server, lab, tmp_dirs
from tests.sky_lab.plan import Disturbance, Fate, Plan, What, When

OWNER = "starburst"
REAP_AFTER_S, LEASE_S, IDLE_MINUTES = 30, 60, 1
#: Wall seconds at most: until all jobs are over; until nothing is rented after that, or after a reaper by
#: hand; and until a machine that is left alone has ended (a launch, the lease, idleness, and the way down).
DONE_S, GONE_S, ALONE_S = 480.0, 120.0, 420.0
LOOK_S = 0.3
#: Starts that may be refused while SkyPilot's API server is down, each after some seconds.
REFUSALS = 30

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

#: Leaves on the machine's disk, which outlives it, from when to when it lived and whether it came to its end.
SCRIPT = """
mkdir -p /tmp/marks; mark=/tmp/marks/$STARBURST_JOB.$STARBURST_ATTEMPT.$$
echo begin; echo begin $(date +%s.%N) >>$mark
for i in $(seq {beats}); do sleep .2; echo beat $(date +%s.%N) >>$mark; done
echo end; echo end $(date +%s.%N) >>$mark
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """A job's process on a machine, by its marks; wall seconds."""

    job: str
    attempt: int
    vm: str
    began_at: float
    seen_at: float
    ended: bool

    @classmethod
    def read(cls, vm: str, path: Path) -> Copy:
        job, attempt, _pid = path.name.rsplit(".", 2)
        marks = [line.split() for line in path.read_text().splitlines() if len(line.split()) == 2]
        times = [float(at) for _what, at in marks]
        return cls(job, int(attempt), vm, times[0], times[-1], marks[-1][0] == "end")


class BrokenError(Exception):
    """A round cannot go on."""


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
    #: Every machine that was ever seen, and those whose network never came back.
    seen: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    ids: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _refused: int = 0
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.home = Home(self.root / "home")
        self.root.mkdir(parents=True)
        (self.root / "starburst.yaml").write_text(yaml.safe_dump(CONFIG))
        with Store.open(self._made(self.home).database) as store:
            controller = str(store.fact("controller"))
        self.tag = dict(Naming(OWNER, controller).labels("x", 0.0))[CONTROLLER]
        shutil.copytree(self.home.root, self.root / "before")

    def run(self) -> list[str]:
        """Live through it; what is wrong at the end."""
        try:
            self._up()
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
            When.RUNNING: lambda: bool(self.copies()),
            When.ENDING: lambda: False,
        }
        self._until(when.value, DONE_S, lambda: moments[when]() or self._done())
        moment = time.monotonic() + delay_s
        self._until("a moment", DONE_S, lambda: time.monotonic() >= moment)
        return when is When.ASKED or not self._done() or bool(self.alive())

    def _do(self, it: Disturbance) -> bool:
        """Whether there was anything to do it to."""
        if it.what is What.SCHEDULER:
            self._kill()
            back = self._up
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

    def _up(self) -> None:
        with (self.root / "up.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "starburst", "up", "--config", "starburst.yaml"],
                env=self._env(self.home),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _submit(self) -> None:
        jobs = [_manifest(f"job-{number}", *job) for number, job in enumerate(self.plan.jobs)]
        said = self._starburst(self.home, "submit", "-", "-o", "name", given=yaml.safe_dump_all(jobs))
        self.ids = [line.removeprefix("job/") for line in said.split()]

    # --- the end -----------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self.plan.fate is Fate.LIVES:
            self._until("all jobs over", DONE_S, lambda: not self._due and self._done())
            self._until_gone(GONE_S, time.monotonic())
            self._until("the store has no machine", GONE_S, lambda: not self._records())
            self._check_jobs()
            return
        shutil.rmtree(self.home.root)
        since = time.monotonic()
        if self.plan.fate is Fate.DELETED:
            before = self.alive()
            self._starburst(self._made(Home(self.root / "another")), *REAP, "--others")
            if not before <= self.alive():  # within seconds none can have ended by itself
                self.wrong.append("the reaper of another store ended a machine")
            self._until_gone(ALONE_S, since)
        else:
            shutil.copytree(self.root / "before", self.home.root)
            self._starburst(self.home, *REAP)
            self._until_gone(GONE_S, since)
        self._check_copies()

    def _until_gone(self, limit_s: float, since: float) -> None:
        self._until("zero machines", limit_s - (time.monotonic() - since), lambda: not self.alive())
        self.gone_s = time.monotonic() - since

    def _check_jobs(self) -> None:
        rows = self._rows()
        for job, (_cpus, beats) in zip(self.ids, self.plan.jobs, strict=True):
            row = next((row for row in rows if row.id == job), None)
            ended = [it for it in self.copies() if it.job == job and it.ended]
            heard = [it for it in ended if it.vm not in self.lost]
            if row is None or row.phase != Phase.SUCCEEDED.value:
                self.wrong.append(f"{job} is {row and row.phase}")
                continue
            log = log_path(self.home.cloud / "runs", job, row.attempt or 0)
            if len(heard) != 1 or row.attempt not in {it.attempt for it in ended}:
                self.wrong.append(f"{job}, {beats} beats, came to its end {len(ended)} times: {ended}")
            if log.read_text() != "begin\nend\n":
                self.wrong.append(f"{job} attempt {row.attempt}: its log is {log.read_text()!r}")
        self._check_copies()

    def _check_copies(self) -> None:
        for one, other in combinations(self.copies(), 2):
            if one.job == other.job and max(one.began_at, other.began_at) < min(one.seen_at, other.seen_at):
                self.wrong.append(f"two copies lived at one time: {one}, {other}")

    def _clear(self) -> None:
        """Whatever went wrong, the next round starts with nothing of this one."""
        self._kill()
        for _at, back in self._due:
            if back is _server_up:
                back()
        left = self.alive()
        if left:
            ec2().terminate_instances(InstanceIds=sorted(left))

    # --- what there is -----------------------------------------------------------------------------------

    def alive(self) -> set[str]:
        """Machines of this round that are billed, by the cloud's own word; no intent may have two."""
        tagged = {vm: tags for vm, tags in billed().items() if tags.get(CONTROLLER) == self.tag}
        self.seen |= tagged.keys()
        intents = [tags.get(INTENT, "") for tags in tagged.values()]
        twice = sorted({intent for intent in intents if intents.count(intent) > 1})
        if twice and f"two machines for {twice}" not in self.wrong:
            self.wrong.append(f"two machines for {twice}")
        return set(tagged)

    def copies(self) -> list[Copy]:
        """Every copy of a job that ever ran."""
        marks = [
            (vm, path)
            for vm in sorted(self.seen)
            for tmp in tmp_dirs(vm)
            for path in sorted((tmp / "marks").glob("*"))
        ]
        return [Copy.read(vm, path) for vm, path in marks if path.stat().st_size]

    def _done(self) -> bool:
        if self.plan.fate is not Fate.LIVES and self._process is None:
            return True
        rows = self._rows()
        return bool(rows) and all(is_over(row.phase) for row in rows)

    def _rows(self) -> list[queries.JobRow]:
        with Store.open(self.home.database) as store:
            return queries.jobs(store)

    def _records(self) -> list[Any]:
        with Store.open(self.home.database) as store:
            return queries.instance_records(store)

    # --- how ---------------------------------------------------------------------------------------------

    def _until(self, what: str, limit_s: float, holds: Callable[[], bool]) -> None:
        """Until something holds; what is due meanwhile is done."""
        give_up = time.monotonic() + limit_s
        while True:
            self.alive()
            if holds():
                return
            if self._process is not None and self._process.poll() is not None:
                self._supervise(self._process.returncode)
            if time.monotonic() > give_up:
                raise BrokenError(f"not within {limit_s:.0f} s: {what}")
            for entry in [entry for entry in self._due if entry[0] <= time.monotonic()]:
                self._due.remove(entry)
                entry[1]()
            time.sleep(LOOK_S)

    def _supervise(self, code: int) -> None:
        """A start that is refused because SkyPilot's API server is down is tried again, as services are."""
        self._refused += 1
        if (
            code != 2
            or self._refused > REFUSALS
            or What.SERVER not in {it.what for it in self.plan.disturbances}
        ):
            raise BrokenError(f"the scheduler ended by itself, with {code}")
        self._up()

    def _say(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:.0f} s: {what}")

    @staticmethod
    def _made(home: Home) -> Home:
        home.make()
        return home

    @staticmethod
    def _env(home: Home) -> dict[str, str]:
        return {**os.environ, "STARBURST_HOME": str(home.root)}

    def _starburst(self, home: Home, *args: str, given: str | None = None) -> str:
        """A starburst command that must succeed; what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "starburst", *args],
            env=self._env(home),
            cwd=self.root,
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise BrokenError(
                f"starburst {' '.join(args)} ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return str(done.stdout)


REAP = ("reap", "--no-dry-run", "--config", "starburst.yaml")


def _server_up() -> None:
    lab("up", seconds=300)


def _manifest(name: str, cpus: int, beats: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "command": ["bash", "-c", SCRIPT.replace("{beats}", str(beats))],
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
