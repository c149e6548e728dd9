"""What can go wrong on a day: with the account, SkyPilot, the scheduler, or one machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.sky_lab.deployment import Deployment
from tests.sky_lab.ec2 import REGIONS, ec2, intent_of
from tests.sky_lab.lab import family, kill_server, lab
from tests.sky_lab.within import RESTART, inside

#: Makes a fault good; a fault of one machine is given the id of that machine, every other one "".
Undo: TypeAlias = Callable[[], None]
#: Instance types that a day rents.
TYPES = ("c7i.xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    do: Callable[[Deployment, str], Undo]
    #: How long it lasts, seconds: the least and the most.
    away_s: tuple[float, float] = (10.0, 30.0)
    #: It befalls one machine, on which a job runs.
    of_machine: bool = False
    #: The account answers nobody else either.
    of_account: bool = False
    #: What ended on that machine may never be heard of.
    silences: bool = False
    #: SkyPilot does not learn of the machines that it makes, and makes others.
    unanswered: bool = False


def _nothing() -> None:
    """What needs no mending."""


def _aws(mode: str, actions: str = "", slow_s: int = 10) -> Callable[[Deployment, str], Undo]:
    def do(_at: Deployment, _vm: str) -> Undo:
        lab("fault", mode, actions, str(slow_s))
        return lambda: void(lab("fault", "off"))

    return do


def void(_said: object) -> None:
    """Drops what a command of the laboratory says."""


def _sold_out(_at: Deployment, _vm: str) -> Undo:
    def switch(word: str) -> None:
        for kind in TYPES:
            lab("capacity", REGIONS[0], kind, word)

    switch("off")
    return lambda: switch("on")


def _server(_at: Deployment, _vm: str) -> Undo:
    kill_server()
    return lambda: void(lab("up", seconds=300))


def _database(_at: Deployment, _vm: str) -> Undo:
    """SkyPilot dies and knows of no machine any more."""
    kill_server()
    for path in Path(os.environ["HOME"], ".sky").glob("state.db*"):
        path.unlink()
    return lambda: void(lab("up", seconds=300))


def _scheduler(at: Deployment, _vm: str) -> Undo:
    at.kill()
    return at.up


def _cut(_at: Deployment, vm: str) -> Undo:
    lab("unplug", vm)

    def back() -> None:
        if _first_process(vm) is not None:
            lab("plug", vm)

    return back


def _reboot(_at: Deployment, vm: str) -> Undo:
    """Its first process dies, and all others with it; the next connection boots it again from its disk."""
    if (root := _first_process(vm)) is not None:
        os.kill(root, signal.SIGKILL)
    return _nothing


def _agent(_at: Deployment, vm: str) -> Undo:
    """All processes of the agent die: those beside tasks, the dead-man switch, an exchange."""
    return _killed(vm, lambda word: b"starburst" in word and word.endswith(b".pyz"))


def _ray(_at: Deployment, vm: str) -> Undo:
    return _killed(vm, lambda word: b"/ray/" in word or word.startswith(b"ray::"))


def _engine(_at: Deployment, vm: str) -> Undo:
    """The container engine dies; as with systemd, it comes back."""

    def back() -> None:
        if (root := _first_process(vm)) is not None:
            inside(root, RESTART)

    _killed(vm, lambda word: word.endswith(b"dockerd"))
    return back


def _killed(vm: str, is_meant: Callable[[bytes], bool]) -> Undo:
    """kill -9 of the machine's processes that have such a word in their command line."""
    for pid in _processes(vm):
        with suppress(OSError):
            if any(map(is_meant, Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))):
                os.kill(pid, signal.SIGKILL)
    return _nothing


def _driver(_at: Deployment, vm: str) -> Undo:
    """`nvidia-smi` fails, as it does when the driver is gone; a machine without GPUs has none."""

    def switch(mode: int) -> None:
        if (root := _first_process(vm)) is not None:
            with suppress(OSError):
                Path("/proc", str(root), "root", "usr/local/bin/nvidia-smi").chmod(mode)

    switch(0o644)
    return lambda: switch(0o755)


def _by_hand(_at: Deployment, vm: str) -> Undo:
    ec2().terminate_instances(InstanceIds=[vm])
    return _nothing


def _preempted(_at: Deployment, vm: str) -> Undo:
    lab("preempt", vm)
    return _nothing


def _sky(*words: str) -> Callable[[Deployment, str], Undo]:
    """A person's command. Nobody waits for it: SkyPilot's API server does it when it comes to that."""

    def do(at: Deployment, vm: str) -> Undo:
        cluster = at.naming.cluster(intent_of(vm))
        with (at.root / "by-hand.log").open("ab") as log:
            person = subprocess.Popen(
                ["sky", *words, cluster], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

        def leave() -> None:
            person.kill()
            person.wait()

        return leave

    return do


def _first_process(vm: str) -> int | None:
    """The pid of a machine's init, while the machine runs."""
    with suppress(OSError, ValueError):
        pid = int(Path(os.environ["SKYLAB_HOME"], "state", "vms", vm, "pid").read_text())
        os.kill(pid, 0)
        return pid
    return None


def _processes(vm: str) -> Iterator[int]:
    root = _first_process(vm)
    return iter(()) if root is None else family(root)


FAULTS = (
    Fault("EC2 answers 500", _aws("error"), of_account=True),
    Fault("EC2 throttles", _aws("throttle"), of_account=True),
    Fault("credentials expired", _aws("auth"), of_account=True),
    Fault("EC2 is slow by 10 s", _aws("slow"), of_account=True),
    Fault("answers of RunInstances lost", _aws("lost", "RunInstances"), unanswered=True),
    Fault("answers of TerminateInstances lost", _aws("lost", "TerminateInstances")),
    Fault("sold out in every zone", _sold_out),
    Fault("API server killed", _server, (2.0, 15.0)),
    Fault("SkyPilot's database lost", _database, (2.0, 15.0)),
    Fault("scheduler killed", _scheduler, (1.0, 15.0)),
    Fault("network cut", _cut, (10.0, 90.0), of_machine=True, silences=True),
    Fault("network cut for long", _cut, (540.0, 600.0), of_machine=True, silences=True),
    Fault("machine rebooted", _reboot, of_machine=True, silences=True),
    Fault("agent killed", _agent, of_machine=True, silences=True),
    Fault("Ray killed", _ray, of_machine=True),
    Fault("GPU driver dead", _driver, of_machine=True),
    Fault("terminated by hand", _by_hand, of_machine=True, silences=True),
    Fault("preempted", _preempted, of_machine=True, silences=True),
    Fault("sky down", _sky("down", "-y"), (60.0, 90.0), of_machine=True, silences=True),
    Fault("sky stop", _sky("stop", "-y"), (60.0, 90.0), of_machine=True, silences=True),
)
ENGINE_KILLED = Fault("engine killed", _engine, of_machine=True, silences=True)


def faults() -> tuple[Fault, ...]:
    """What can go wrong with the machines that this laboratory has."""
    return (*FAULTS, ENGINE_KILLED) if os.environ.get("SKYLAB_DOCKER") else FAULTS
