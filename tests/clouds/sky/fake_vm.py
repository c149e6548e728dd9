"""A rented machine in memory and in virtual time, and what its agent and its cloud say of it."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starburst.clouds.sky.access.ports import InstanceRef, Observation, Presence


@dataclass(slots=True)
class Task:
    """One task on a VM: works as many seconds as its command says (`work SECONDS CODE`)."""

    spec: dict[str, Any]
    began_at: float | None = None
    gpus: tuple[int, ...] = ()
    stop_at: float | None = None
    exit: dict[str, Any] | None = None
    begun: int = 0
    #: What lies where it is to say how far it is.
    report: bytes | None = None

    def settle(self, now: float, lease_until: float) -> None:
        if self.exit is not None:
            return
        if self.began_at is None:
            if self.stop_at is not None:
                self.exit = exit_of(None, "stop", now)
            return
        _, seconds, code = self.spec["command"]
        done_at = self.began_at + float(seconds)
        if self.stop_at is not None and self.stop_at <= min(now, done_at):
            self.exit = exit_of(143, "stop", self.stop_at)
        elif lease_until <= min(now, done_at):
            self.exit = exit_of(143, "lease", lease_until)
        elif done_at <= now:
            self.exit = exit_of(int(code), "itself", done_at)

    @property
    def log(self) -> bytes:
        return b"" if self.began_at is None else f"gpus={self.gpus}\n".encode()


@dataclass(slots=True)
class Vm:
    """A rented machine."""

    cluster: str
    spot: bool
    gpus: int
    made_at: float
    id: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    ended_at: float | None = None
    plugged: bool = True
    #: SkyPilot's own tags are on the instance: without them it does not find it.
    tagged: bool = True
    stopped_at: float | None = None
    #: It runs what it runs, and starts nothing: why.
    refuses: str = ""
    #: Why it starts nothing, as it says of itself; and whether it can be kept all the same.
    trouble: str = ""
    renews: bool = True
    #: It lets one log in, and its agent fails: why.
    agent_fails: str = ""
    lease_until: float = 0.0
    #: Its cached mounts have uploaded all.
    uploads_until: float = 0.0
    #: What it says of checkpoints in their bucket, and until when.
    unconfirmed: str = ""
    busy_until: float = 0.0
    #: Keepers that were put there, and whether one stands.
    keepers: int = 0
    kept: bool = False
    #: Seconds after its lease at which it shuts itself down, once its switch is set; whether it then ends.
    switch_s: float | None = None
    ends_when_shut_down: bool = False
    #: Which node of its cluster it is, and how often that was replaced.
    node: int = 0
    replaced: int = 0
    tasks: dict[str, Task] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    #: Images with the seconds of their pull, and the logins that came with them.
    images: dict[str, float | None] = field(default_factory=dict)
    #: Why nothing that is started runs yet, as when an image is pulled.
    waits: str = ""
    #: Why it does not keep jobs apart.
    together: str = ""
    logins: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"10.0.{self.replaced}.{self.node + 1}"

    def settle(self, now: float) -> None:
        """Ends due, then GPUs to who waits."""
        for task in self.tasks.values():
            task.settle(now, self.lease_until)
        if self.switch_s is not None and now >= self.lease_until + self.switch_s:
            self.shut_down(self.lease_until + self.switch_s)

    def shut_down(self, at: float) -> None:
        """Its own power off: an end or a stop, as its cloud has been told."""
        if self.ended_at is None and self.stopped_at is None:
            self.stopped_at = at
            self.ended_at = at if self.ends_when_shut_down or self.spot else None

    def start(self, task: Task, now: float) -> str:
        """Begin a task; why that is not possible now, or ""."""
        if task.began_at is not None or task.exit is not None:
            return ""
        if self.refuses or self.waits:
            return self.refuses
        gpus = int(task.spec["gpus"])
        taken = {gpu for other in self.tasks.values() if other.exit is None for gpu in other.gpus}
        free = [gpu for gpu in range(self.gpus) if gpu not in taken]
        if len(free) < gpus:
            return f"{len(free)} GPUs are free"
        task.gpus, task.began_at, task.begun = tuple(free[:gpus]), now, task.begun + 1
        return ""


def look_at(task: Task | None, seen: int | None, waits: str = "") -> dict[str, Any]:
    if task is None:
        task = Task({})
    waits = "" if task.began_at is not None or task.exit is not None else waits
    began = bool(waits) or task.began_at is not None or task.exit is not None
    text = base64.b64encode(zlib.compress(task.log[seen or 0 :])).decode()
    started = task.began_at is not None
    over = task.exit is not None
    state = {"known": bool(task.spec), "began": began, "started": started, "over": over}
    rest = {"exit": task.exit, "log": text, "more": False, "trouble": "", "report": None, "waits": waits}
    return {**state, **rest}


def exit_of(code: int | None, ended_by: str, at: float) -> dict[str, Any]:
    facts = {"exit_code": code, "signal": None, "ended_by": ended_by, "message": ""}
    return {**facts, "started_at": at, "ended_at": at}


def observation(vm: Vm) -> Observation:
    at = InstanceRef("aws", "us-east-1", vm.id)
    if vm.ended_at is not None:
        return Observation(at, Presence.ENDED, vm.made_at, vm.ended_at)
    if vm.stopped_at is not None:
        return Observation(at, Presence.STOPPED, vm.made_at, vm.stopped_at)
    return Observation(at, Presence.RUNNING, vm.made_at, address=vm.address)
