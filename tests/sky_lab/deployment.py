"""A Starburst of its own on the laboratory: a home, a config, the processes, and the machines it rents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from starburst.app.config.home import Home
from starburst.clouds.sky.machines.naming import CONTROLLER, Naming
from starburst.store.listings import dashboard_queries, queries
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store
from tests.sky_lab.ec2 import billed
from tests.sky_lab.marks import Copy, copies_on

OWNER = "starburst"
#: Starts that may be refused while SkyPilot's API server is down, each after some seconds.
REFUSALS = 30


class BrokenError(Exception):
    """A round or a day cannot go on."""


@dataclass
class Deployment:
    """A home with its scheduler, in a directory of its own."""

    root: Path
    config: Mapping[str, Any]
    #: Every machine that was ever seen, and what no cloud should ever show.
    seen: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    #: Machines that were seen stopped, and since when: their bill ends there, whenever they are terminated.
    stopped: dict[str, float] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    _refused: int = 0

    def __post_init__(self) -> None:
        self.home = self.made("home")
        self.configure()
        with Store.open(self.home.database) as store:
            controller = str(store.fact("controller"))
        self.naming = Naming(OWNER, controller)
        self.tag = dict(self.naming.labels("x", 0.0, 0.0))[CONTROLLER]

    def made(self, name: str) -> Home:
        """A new home beside the others."""
        self.root.mkdir(parents=True, exist_ok=True)
        home = Home(self.root / name)
        home.make()
        return home

    def configure(self, **cloud: Any) -> None:
        """Write the config for the next start, with other values of these fields of its section `cloud`."""
        changed = {**self.config, "cloud": {**self.config["cloud"], **cloud}}
        (self.root / "starburst.yaml").write_text(yaml.safe_dump(changed))

    # --- its processes -----------------------------------------------------------------------------------

    def up(self) -> None:
        """Start the scheduler, unless it runs."""
        if self.process is not None and self.process.poll() is None:
            return
        with (self.root / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "starburst", "up", "--config", "starburst.yaml"],
                env=_env(self.home),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9 of the scheduler, if it runs."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def supervise(self, *, may_refuse: bool) -> None:
        """A start that is refused because SkyPilot's API server is down is tried again, as services are."""
        if self.process is None or self.process.poll() is None:
            return
        self._refused += 1
        if self.process.returncode != 2 or self._refused > REFUSALS or not may_refuse:
            raise BrokenError(f"the scheduler ended by itself, with {self.process.returncode}")
        self.up()

    def starburst(self, *args: str, home: Home | None = None, given: str | None = None) -> str:
        """A starburst command that must succeed; what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "starburst", *args],
            env=_env(home or self.home),
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

    def submit(self, manifests: list[dict[str, Any]]) -> list[str]:
        """Submit jobs; their ids."""
        return _ids(self.starburst("submit", "-", "-o", "name", given=yaml.safe_dump_all(manifests)))

    def submit_command(self, *words: str) -> str:
        """Submit one job by options and its command; its id."""
        (job,) = _ids(self.starburst("submit", "-o", "name", *words))
        return job

    # --- what there is -----------------------------------------------------------------------------------

    def alive(self) -> set[str]:
        """Machines of this store that are billed, by the cloud's own word."""
        tagged = {vm for vm, tags in billed().items() if tags.get(CONTROLLER) == self.tag}
        self.seen |= tagged
        return tagged

    def copies(self) -> list[Copy]:
        """Every copy of a job that ever ran."""
        return copies_on(self.seen)

    def rows(self) -> list[JobRow]:
        """All jobs."""
        with Store.open(self.home.database) as store:
            return queries.jobs(store)

    def has_offers(self) -> bool:
        """Whether the scheduler knows what can be rented."""
        with Store.open(self.home.database) as store, store.read() as conn:
            return bool(dashboard_queries.offers(conn))

    def records(self) -> list[Any]:
        """Machines that the store still has."""
        with Store.open(self.home.database) as store:
            return queries.instance_records(store)


def _ids(said: str) -> list[str]:
    return [line.removeprefix("job/") for line in said.split()]


def _env(home: Home) -> dict[str, str]:
    return {**os.environ, "STARBURST_HOME": str(home.root)}
