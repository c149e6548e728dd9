"""What can go wrong on a day: with the account, SkyPilot, the scheduler, or one machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sky_lab.day.within_machines import clock_off, disk_full
from tests.sky_lab.day.world import Undo, World
from tests.sky_lab.ec2 import ec2, intent_of
from tests.sky_lab.lab import family, kill_server, lab
from tests.sky_lab.within import RESTART, first_process, inside, unless_gone

#: Instance types that a day rents.
TYPES = ("c7i.xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge")
#: Seconds in which no machine comes up here.
IMPATIENT_S = 15


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    #: Begins it; a fault of one machine is given the id of that machine, every other one "".
    do: Callable[[World, str], Undo]
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
    #: It waits until a machine is on its way.
    of_launch: bool = False


def _nothing() -> None:
    """What needs no mending."""


def _aws(mode: str, actions: str = "", slow_s: int = 10) -> Callable[[World, str], Undo]:
    def do(_world: World, _vm: str) -> Undo:
        lab("fault", mode, actions, str(slow_s))
        return lambda: void(lab("fault", "off"))

    return do


def void(_said: object) -> None:
    """Drops what a command of the laboratory says."""


def _sold_out(world: World, _vm: str) -> Undo:
    world.account.sold_out = True

    def again() -> None:
        world.account.sold_out = False

    return again


def _server(_world: World, _vm: str) -> Undo:
    kill_server()
    return lambda: void(lab("up", seconds=300))


def _database(_world: World, _vm: str) -> Undo:
    """SkyPilot dies and knows of no machine any more."""
    kill_server()
    for path in Path(os.environ["HOME"], ".sky").glob("state.db*"):
        path.unlink()
    return lambda: void(lab("up", seconds=300))


def _scheduler(world: World, _vm: str) -> Undo:
    world.at.kill()
    return world.at.up


def _impatient(world: World, _vm: str) -> Undo:
    """Launches are given up before their machines are up, which then come all the same."""

    def begin(**cloud: Any) -> None:
        world.at.kill()
        world.at.configure(**cloud)
        world.at.up()

    begin(launch_limit=f"{IMPATIENT_S}s")
    return begin


def _person(world: World, _vm: str) -> Undo:
    world.neighbours.person(world.at)
    return _nothing


def _other_home(world: World, _vm: str) -> Undo:
    world.neighbours.home(world.at)
    return _nothing


def _cut(_world: World, vm: str) -> Undo:
    unless_gone(vm, lambda: lab("unplug", vm))
    return lambda: unless_gone(vm, lambda: lab("plug", vm))


def _reboot(_world: World, vm: str) -> Undo:
    """Its first process dies, and all others with it; the next connection boots it again from its disk."""
    if (root := first_process(vm)) is not None:
        os.kill(root, signal.SIGKILL)
    return _nothing


def _agent(_world: World, vm: str) -> Undo:
    """All processes of the agent die: those beside tasks, the dead-man switch, an exchange."""
    return _killed(vm, lambda word: b"starburst" in word and word.endswith(b".pyz"))


def _ray(_world: World, vm: str) -> Undo:
    return _killed(vm, lambda word: b"/ray/" in word or word.startswith(b"ray::"))


def _engine(_world: World, vm: str) -> Undo:
    """The container engine dies; as with systemd, it comes back."""

    def back() -> None:
        if (root := first_process(vm)) is not None:
            unless_gone(vm, lambda: inside(root, RESTART))

    _killed(vm, lambda word: word.endswith(b"dockerd"))
    return back


def _killed(vm: str, is_meant: Callable[[bytes], bool]) -> Undo:
    """kill -9 of the machine's processes that have such a word in their command line."""
    for pid in _processes(vm):
        with suppress(OSError):
            if any(map(is_meant, Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))):
                os.kill(pid, signal.SIGKILL)
    return _nothing


def _driver(_world: World, vm: str) -> Undo:
    """`nvidia-smi` fails, as it does when the driver is gone; a machine without GPUs has none."""

    def switch(mode: int) -> None:
        if (root := first_process(vm)) is not None:
            with suppress(OSError):
                Path("/proc", str(root), "root", "usr/local/bin/nvidia-smi").chmod(mode)

    switch(0o644)
    return lambda: switch(0o755)


def _by_hand(_world: World, vm: str) -> Undo:
    ec2().terminate_instances(InstanceIds=[vm])
    return _nothing


def _preempted(_world: World, vm: str) -> Undo:
    unless_gone(vm, lambda: lab("preempt", vm))
    return _nothing


def _sky(*words: str) -> Callable[[World, str], Undo]:
    """A person's command. Nobody waits for it: SkyPilot's API server does it when it comes to that."""

    def do(world: World, vm: str) -> Undo:
        cluster = world.at.naming.cluster(intent_of(vm))
        with (world.at.root / "by-hand.log").open("ab") as log:
            person = subprocess.Popen(
                ["sky", *words, cluster], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

        def leave() -> None:
            person.kill()
            person.wait()

        return leave

    return do


def _processes(vm: str) -> Iterator[int]:
    root = first_process(vm)
    return iter(()) if root is None else family(root)


FAULTS = (
    Fault("EC2 answers 500", _aws("error"), of_account=True),
    Fault("EC2 throttles", _aws("throttle"), of_account=True),
    Fault("credentials expired", _aws("auth"), of_account=True),
    Fault("EC2 is slow by 10 s", _aws("slow"), of_account=True),
    Fault("EC2 is slow by 30 s", _aws("slow", slow_s=30), (30.0, 60.0), of_account=True),
    Fault("answers of RunInstances lost", _aws("lost", "RunInstances"), unanswered=True),
    Fault("answers of TerminateInstances lost", _aws("lost", "TerminateInstances")),
    Fault("sold out in every zone", _sold_out),
    Fault("API server killed", _server, (2.0, 15.0)),
    Fault("SkyPilot's database lost", _database, (2.0, 15.0)),
    Fault("scheduler killed", _scheduler, (1.0, 15.0)),
    Fault("launches given up too soon", _impatient, (20.0, 40.0), of_launch=True),
    Fault("a person's cluster beside ours", _person),
    Fault("another home on the account", _other_home),
    Fault("network cut", _cut, (10.0, 90.0), of_machine=True, silences=True),
    Fault("network cut for long", _cut, (540.0, 600.0), of_machine=True, silences=True),
    Fault("machine rebooted", _reboot, of_machine=True, silences=True),
    Fault("agent killed", _agent, of_machine=True, silences=True),
    Fault("Ray killed", _ray, of_machine=True),
    Fault("GPU driver dead", _driver, of_machine=True),
    Fault("disk full", disk_full, (20.0, 60.0), of_machine=True),
    Fault("clock an hour ahead", clock_off, (20.0, 90.0), of_machine=True),
    Fault("terminated by hand", _by_hand, of_machine=True, silences=True),
    Fault("preempted", _preempted, of_machine=True, silences=True),
    Fault("sky down", _sky("down", "-y"), (60.0, 90.0), of_machine=True, silences=True),
    Fault("sky stop", _sky("stop", "-y"), (60.0, 90.0), of_machine=True, silences=True),
)
ENGINE_KILLED = Fault("engine killed", _engine, of_machine=True, silences=True)


def faults() -> tuple[Fault, ...]:
    """What can go wrong with the machines that this laboratory has."""
    return (*FAULTS, ENGINE_KILLED) if os.environ.get("SKYLAB_DOCKER") else FAULTS
