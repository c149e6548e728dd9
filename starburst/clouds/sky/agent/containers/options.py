"""What the machine adds to the command line that makes a task's container."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from starburst.clouds.sky.agent.containers.engine import Engine
from starburst.clouds.sky.agent.containers.pinned import NotPinnedError, pinned
from starburst.clouds.sky.agent.containers.removal import LABEL
from starburst.clouds.sky.agent.devices import devices_of
from starburst.clouds.sky.agent.protocol import ContainerSpec, VolumeMount
from starburst.clouds.sky.agent.task_account import MAX_FILES
from starburst.clouds.sky.agent.task_dirs import VOLUMES, task_name

#: The number of the capability by which limits are raised.
CAP_SYS_RESOURCE = 24
#: Bytes of memory that a process locks at most, as systemd gives it to container engines.
MAX_LOCKED = 8 << 20


class TaskRefusedError(Exception):
    """A task cannot be started on this machine; the message says why, and the mend."""


def create_arguments(
    path: str,
    engine: Engine,
    box: ContainerSpec,
    known: Mapping[str, str],
    variables: Sequence[str],
    *,
    parent: str,
) -> list[str]:
    """What follows the engine's `create`. `known` are values for @NAME@; `variables` options for them.

    `parent` is the control group above all containers; "" is the engine's own.

    Raises:
        TaskRefusedError: a volume is not here, or cannot be made.
    """
    options = ["--name", box["name"], "--label", f"{LABEL}={task_name(path)}", "--log-driver", "none"]
    options += [_filled(option, known) for option in _without_engine(box["options"])]
    cpus = (devices_of(path) or {"cpus": []})["cpus"]
    if cpus and engine.is_root:
        options += ["--cpuset-cpus", ",".join(map(str, cpus))]
    options += ["--cgroup-parent", parent] if parent else []
    options += limits(engine, box)
    volumes = box.get("volumes", [])
    stored = [volume for volume in volumes if volume.get("memory_mib") is None]  # of older versions: all
    sources = iter(sources_of(path, engine, stored))
    for volume in volumes:
        size = volume.get("memory_mib")
        options += bind(next(sources), volume) if size is None else in_memory(volume["path"], size, box)
    options += variables
    options += engine.gpus(known["@GPUS@"])  # last: a job's own variable of that name does not count
    return [*options, *box["rest"]]


def limits(engine: Engine, box: ContainerSpec) -> list[str]:
    """The options for limits of a container's processes: as on a node with containerd, without core files.

    A container that adds IPC_LOCK may lock any memory, also as a user who is not root and has no capability.
    Where limits cannot be raised, those that the engine has remain; podman keeps them only if none is given.
    """
    options = ["--ulimit", "core=0:0"]
    if not engine.is_root:
        return options
    if not root_raises_limits():
        return options if engine.name == "docker" else []
    locked = -1 if "IPC_LOCK" in box["options"] else MAX_LOCKED
    files = min(MAX_FILES, int(Path("/proc/sys/fs/nr_open").read_text()))
    return [*options, "--ulimit", f"nofile={files}:{files}", "--ulimit", f"memlock={locked}:{locked}"]


def root_raises_limits() -> bool:
    """Whether root has the capability for that on this machine; within a container it may not."""
    status = Path("/proc/self/status").read_text()
    bounds = next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:"))
    return bool(int(bounds, 16) >> CAP_SYS_RESOURCE & 1)


def in_memory(place: str, size_mib: int, box: ContainerSpec) -> list[str]:
    """The option that gives a container a file system in memory, within its own limit as on Kubernetes."""
    limit = box["options"][box["options"].index("--memory") + 1] if "--memory" in box["options"] else ""
    size = f"{size_mib}m" if size_mib else limit
    return ["--tmpfs", f"{place}:rw,exec,mode=1777" + (f",size={size}" if size else "")]


def _filled(option: str, known: Mapping[str, str]) -> str:
    return re.sub("@[A-Z]+@", lambda found: known[found[0]], option)


def _without_engine(options: list[str]) -> list[str]:
    """The options without what specs of older versions begin with: docker run --rm --name NAME … --gpus …."""
    if options[:2] != ["docker", "run"]:
        return options
    rest = options[5:]
    at = rest.index("--gpus") if "--gpus" in rest else len(rest)
    return [*rest[:at], *rest[at + 2 :]]


def bind(source: str, volume: VolumeMount) -> list[str]:
    """The option that mounts what is to be shown of a volume."""
    return ["-v", f"{source}:{volume['path']}" + (":ro" if volume["read_only"] else "")]


def sources_of(path: str, engine: Engine, volumes: Sequence[VolumeMount]) -> list[str]:
    """What the engine is to mount for volumes of the task in `path`: of those that others write, pinned.

    Raises:
        TaskRefusedError: a volume is not here, or its directory leads elsewhere or cannot be made.
        EngineSilentError: root does not answer in time.
    """
    parts = []
    for volume in volumes:
        source = source_of(path, volume)
        parts.append((source if volume["store"] is None else _root(path, volume), source))
    try:
        return pinned(path, engine, parts)
    except NotPinnedError as error:
        raise TaskRefusedError(f"CreateContainerConfigError: a subPath cannot be mounted: {error}") from error


def _root(path: str, volume: VolumeMount) -> str:
    """Where the whole of a volume is; for those of the attempt's own, all of them."""
    store = volume["store"]
    return os.path.realpath(os.path.join(path, VOLUMES) if store is None else os.path.expanduser(store))


def source_of(path: str, volume: VolumeMount) -> str:
    """What of the machine's is to be mounted for a volume of the task in `path`; made if it is missing.

    Raises:
        TaskRefusedError: the volume is not here, or its directory leads elsewhere or cannot be made.
    """
    store, root = volume["store"], _root(path, volume)
    if store is not None and not (os.path.isdir(root) if volume["copied"] else os.path.ismount(root)):
        why = "a machine has what cloud.volumes named when it was rented"
        raise TaskRefusedError(f"{volume['told']} is not mounted on this machine; {why}")
    source = os.path.realpath(os.path.join(root, volume["below"]))
    if os.path.commonpath([root, source]) != root:  # by a link that a job put there
        raise TaskRefusedError(f"{volume['below']} leads out of {volume['told']}; mend subPath")
    if ":" in source or ":" in volume["path"]:
        why = "a path with a colon cannot be mounted; mend subPath or mountPath"
        raise TaskRefusedError(f"{volume['told']}: {why}")
    is_files = volume.get("files", False)
    within = volume["below"].partition("/")[2]
    if is_files and within and not os.path.exists(source):
        raise TaskRefusedError(f"there is no {within} in its volume; mend subPath")
    try:
        if not os.path.exists(source):
            os.makedirs(source)
        if store is None and not is_files:
            os.chmod(source, 0o777)  # as on the cluster: the image decides as whom it runs
    except OSError as error:
        why = f"{volume['below']} cannot be made: {error.strerror}"
        raise TaskRefusedError(f"{volume['told']}: {why}") from error
    return source
