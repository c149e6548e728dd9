"""Tasks with an image: what the machine adds to the command line of `docker run`, and the container's end."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from typing import Any

from starburst.clouds.sky.agent.protocol import ContainerSpec, VolumeMount

#: Seconds for the container engine to remove a container.
REMOVE_S = 10.0


class TaskRefusedError(Exception):
    """A task cannot be started on this machine; the message says why, and the mend."""


def command_line(path: str, box: ContainerSpec, known: dict[str, str], secrets: Iterable[str]) -> list[str]:
    """The command line of a task's container. `known` are values for @NAME@; `secrets` names of variables.

    Raises:
        TaskRefusedError: a volume is not here, or cannot be made.
    """
    options = [re.sub("@[A-Z]+@", lambda m: known[m[0]], option) for option in box["options"]]
    for volume in box.get("volumes", ()):
        options += bind(path, volume)
    passed = [part for key in sorted({*box["env"], *secrets}) for part in ("-e", key)]
    return [*options, *passed, *box["rest"]]


def bind(path: str, volume: VolumeMount) -> list[str]:
    """The option that mounts a volume, or a directory of one, which is made if it is missing.

    Raises:
        TaskRefusedError: the volume is not here, or its directory leads elsewhere or cannot be made.
    """
    store = volume["store"]
    root = os.path.realpath(os.path.join(path, "volumes") if store is None else os.path.expanduser(store))
    if store is not None and not (os.path.isdir(root) if volume["copied"] else os.path.ismount(root)):
        why = "a machine has what cloud.volumes named when it was rented"
        raise TaskRefusedError(f"{volume['told']} is not mounted on this machine; {why}")
    source = os.path.realpath(os.path.join(root, volume["below"]))
    if os.path.commonpath([root, source]) != root:  # by a link that a job put there
        raise TaskRefusedError(f"{volume['below']} leads out of {volume['told']}; mend subPath")
    if ":" in source or ":" in volume["path"]:
        why = "a path with a colon cannot be mounted; mend subPath or mountPath"
        raise TaskRefusedError(f"{volume['told']}: {why}")
    try:
        if not os.path.exists(source):
            os.makedirs(source)
        if store is None:
            os.chmod(source, 0o777)  # as on the cluster: the image decides as whom it runs
    except OSError as error:
        why = f"{volume['below']} cannot be made: {error.strerror}"
        raise TaskRefusedError(f"{volume['told']}: {why}") from error
    return ["-v", f"{source}:{volume['path']}" + (":ro" if volume["read_only"] else "")]


def remove_container(box: Any) -> bool:
    """Remove the container of a spec's `docker`, if there is one; False if the engine does not answer."""
    if not isinstance(box, dict):
        return True
    argv = ["docker", "rm", "-f", str(box.get("name"))]
    try:
        subprocess.run(argv, stdout=subprocess.DEVNULL, timeout=REMOVE_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    except (OSError, ValueError):  # no engine, or no name: no container
        return True
    return True
