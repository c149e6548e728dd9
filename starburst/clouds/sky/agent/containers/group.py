"""The control group above the containers of all tasks, by which the machine's firewall knows what they send.

A container has the network of its machine and may be root inside, so neither an address nor a user id tells
it from the machine. Its control group does, and no process leaves that: in version 2 by the group's path, in
version 1 by the class of the controller net_cls, which groups inherit.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starburst.clouds.sky.agent.containers.engine import ASK_S, Engine
from starburst.runs.supervisor import cgroups

#: The group's name; and as a slice of systemd.
NAME, SLICE = "starburst-containers", "starburst.slice"
#: The class of version 1, as a network scheduler's handle 5b:1.
CLASS_ID = 0x5B0001
#: Where a control group is known by its processes.
PROCESSES = "cgroup.procs"


class NoGroupError(Exception):
    """The machine has no control groups by which a firewall could know containers."""


@dataclass(frozen=True)
class ContainerGroup:
    """The group: `parent` for the engine, `match` for iptables."""

    parent: str
    directory: Path
    match: tuple[str, ...]


def container_group(engine: Engine) -> ContainerGroup:
    """Where the group of an engine's containers is, whether it was made or not.

    Raises:
        EngineError, EngineSilentError: the engine does not say how it makes groups.
        NoGroupError: there are none for this.
    """
    version, manager = _ways(engine)
    parent = SLICE if manager == "systemd" else f"/{NAME}"
    name = parent.strip("/")
    if version == "2":
        with suppress(OSError, LookupError):
            return ContainerGroup(parent, cgroups.mount()[0] / name, ("--path", name))
        raise NoGroupError("its control groups are not mounted")
    point = net_cls()
    if point is None:
        raise NoGroupError("its control groups are of version 1, without net_cls")
    return ContainerGroup(parent, point / name, ("--cgroup", hex(CLASS_ID)))


def make(group: ContainerGroup) -> None:
    """As root, have the group there, and keep it.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be made.
    """
    if group.parent == SLICE and group.match[0] == "--path":  # systemd removes what it does not know
        argv = ["systemctl", "start", SLICE]
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S, check=True)
    group.directory.mkdir(exist_ok=True)
    if group.match[0] == "--cgroup":
        (group.directory / "net_cls.classid").write_text(str(CLASS_ID))


def sockets(directory: Path) -> frozenset[str]:
    """As root, the sockets of all processes in a group and below it, as /proc names them."""
    found = set()
    for pid in _processes(directory):
        with suppress(OSError):  # it has ended
            for handle in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    found.add(os.readlink(handle.path))
    return frozenset(name for name in found if name.startswith("socket:"))


def groups_here() -> Iterator[Path]:
    """The directories that the group may have on this machine."""
    points = []
    with suppress(OSError, LookupError):
        points.append(cgroups.mount()[0])
    if (point := net_cls()) is not None:
        points.append(point)
    yield from (found for point in points for name in (NAME, SLICE) if (found := point / name).is_dir())


def net_cls() -> Path | None:
    """Where the controller net_cls of version 1 is mounted; None if it is not."""
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind, options = line.split()[:4]
            if kind == "cgroup" and "net_cls" in options.split(","):
                return Path(point)
    return None


def _processes(directory: Path) -> Iterator[str]:
    for above, _, files in os.walk(directory):
        if PROCESSES in files:
            with suppress(OSError):  # removed meanwhile
                yield from Path(above, PROCESSES).read_text().split()


def _ways(engine: Engine) -> tuple[str, str]:
    """Version of the control groups and what makes them, by the engine; docker before 20.10 names none."""
    found = json.loads(engine.ask("info", "--format", "{{json .}}"))
    if engine.name == "docker":
        return str(found.get("CgroupVersion") or "1"), str(found.get("CgroupDriver"))
    host = found.get("host", {})
    return str(host.get("cgroupVersion")).lstrip("v"), str(host.get("cgroupManager"))
