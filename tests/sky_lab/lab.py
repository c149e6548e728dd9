"""The laboratory: SkyPilot's own API server in front of a fake EC2, and a SkyCloud that talks to it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from starburst.clouds.sky.access.cloud_api import ProvisionApi
from starburst.clouds.sky.access.ports import SkyApi
from starburst.clouds.sky.access.sdk import SdkApi
from starburst.clouds.sky.access.ssh import SshTransport
from starburst.clouds.sky.cloud import SkyCloud
from starburst.clouds.sky.context import SkyClock, SkyContext, SkySettings
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.offers import OfferFilter, cached, catalog_offers
from starburst.clouds.sky.runs.inputs import RunInputs
from starburst.clouds.sky.runs.whereabouts import login_of
from starburst.clouds.sky.zones import ZoneNames
from starburst.core.model.actions import Slot
from starburst.core.model.events import Event, OffersChanged
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Workload
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import log_path
from starburst.runs.ports import Run
from tests.references import SHARED

SCRIPT = SHARED / "skylab" / "skylab"
OWNER = "starburst-tests"
TYPES = frozenset({"p3.8xlarge", "c7i.xlarge"})

E = TypeVar("E", bound=Event)
Kind: TypeAlias = "type[E] | tuple[type[E], ...]"


def lab(*args: str, seconds: float = 300) -> str:
    """One command of the laboratory; on a busy host even a short one takes its time."""
    env = {"SKYLAB_PYTHON": sys.executable, **os.environ}  # SkyPilot is large; this Python has it
    env.pop("SKYPILOT_DISABLE_LOCAL_API_SERVER", None)  # our own adapter sets it; the laboratory starts one
    done = subprocess.run(
        [SCRIPT, *args], env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=seconds
    )
    return done.stdout


def environment() -> dict[str, str]:
    """What the laboratory says its users need; it is started first if it is down."""
    lines = [line for line in lab("up", seconds=900).splitlines() if line.startswith("export ")]
    found = dict(shlex.split(line)[1].split("=", 1) for line in lines)
    return {key: os.path.expandvars(value) for key, value in found.items()}


def vm_at(address: str) -> tuple[str, str]:
    """Id and state of the instance that has this address."""
    rows = [line.split("\t") for line in lab("vms").splitlines()]
    return next(((row[0], row[5]) for row in reversed(rows) if address in row[6:8]), ("", "gone"))


def tmp_dirs(vm: str) -> list[Path]:
    """What the tasks that ran on a machine have as /tmp; its disk outlives it."""
    return sorted(_runs(vm).glob("*/*/*/tmp"))


def logs(vm: str) -> list[Path]:
    """What the tasks that ran on a machine said."""
    return sorted(_runs(vm).glob("*/*/*/log"))


def spec_of(vm: str, job: str, attempt: int) -> dict[str, Any]:
    """What the agent of a machine was told of an attempt that began there."""
    (path,) = _runs(vm).glob(f"{job}/{attempt}/*/spec.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _runs(vm: str) -> Path:
    return Path(os.environ["SKYLAB_HOME"], "state", "vms", vm, "disk/home/ubuntu/starburst/runs")


def kill_server() -> None:
    """kill -9 of SkyPilot's API server and all below it, as if its machine crashed; `lab("up")` mends it."""
    root = int(Path(os.environ["SKYLAB_HOME"], "state", "api.pid").read_text())
    stopped: set[int] = set()
    while found := set(family(root)) - stopped:  # whoever is stopped makes no new ones
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= found
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    with suppress(OSError):  # gone meanwhile
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from family(int(child))


@dataclass(slots=True)
class Life:
    """A controller's part over the laboratory."""

    home: Path
    controller: str
    lease_s: float = 600.0
    events: list[Event] = field(default_factory=list)
    api: SkyApi = field(default_factory=SdkApi)
    zones: ZoneNames = field(default_factory=ZoneNames)
    inputs: RunInputs = field(default_factory=RunInputs)
    cloud: SkyCloud = field(init=False)
    _transport: SshTransport = field(init=False)
    _watch: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self._transport = SshTransport(self.home / "ssh")
        settings = SkySettings(
            owner=OWNER,
            controller=self.controller,
            logs=self.home / "runs",
            checkpoints=self.home / "checkpoints",
            lease_s=self.lease_s,
            idle_minutes=1,
        )
        context = SkyContext(
            self.api,
            ProvisionApi(),
            self._transport,
            FileJournal(self.home / "notes"),
            SkyClock(time.time, Pace()),
            settings,
            self.inputs,
        )
        self.cloud = SkyCloud(context, cached(lambda: catalog_offers("aws", OfferFilter(TYPES), self.zones)))

    async def __aenter__(self) -> Life:
        self._watch = asyncio.create_task(self.cloud.watch(self.events.append))
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch
        self._transport.close()

    async def offer(self, name: str) -> Offer:
        offers = (await self.heard(OffersChanged)).offers
        return next(offer for offer in offers if offer.name == name)

    async def heard(
        self,
        kind: Kind[E],
        when: Callable[[E], bool] = lambda _event: True,
        *,
        since: int = 0,
        seconds: float = 900,
    ) -> E:
        """The first report of a kind after so many reports, once it has come: a busy host takes its time."""
        end = time.monotonic() + seconds
        while True:
            for event in self.events[since:]:
                if isinstance(event, kind) and when(event):
                    return event
            if self._watch.done():
                self._watch.result()
            assert time.monotonic() < end, f"no {kind} in {seconds:g} s: {self.events}"
            await asyncio.sleep(0.1)

    async def written(self, job: str, what: str, attempt: int = 1, seconds: float = 300) -> str:
        """What a job wrote, once this is in it."""
        path, end = log_path(self.home / "runs", job, attempt), time.monotonic() + seconds
        while what not in (text := path.read_text() if path.exists() else ""):
            assert time.monotonic() < end, f"{job} has not written {what!r}: {text!r} {self.events}"
            await asyncio.sleep(0.05)
        return text

    async def beside(self, job: str, *command: str) -> tuple[int, str]:
        """Exit code and output of a command beside the task of a job, as `starburst exec` runs it."""
        found = login_of(FileJournal(self.home / "notes"), Naming(OWNER, self.controller), job, 1, 0)
        argv = await self._transport.enter(found.node, found.access, found.task, command)
        done = await asyncio.to_thread(
            subprocess.run, argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    def host(self, instance_id: str) -> str:
        """The address of a machine that is ready."""
        return self.cloud.machines[instance_id].access().host


def job(name: str, instance_id: str, script: str, gpus: int = 0, attempt: int = 1, **more: Any) -> Run:
    """A run of a shell script on one machine."""
    need = Resources.of(gpus, 1, 1)
    slots = (Slot(0, instance_id, need),)
    return Run(Job(name, name, (need,), **more), attempt, slots, Workload(("bash", "-c", script)))
