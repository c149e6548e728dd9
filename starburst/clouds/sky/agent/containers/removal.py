"""The end of containers: by the engine, and by their processes where the engine is dead.

Every container has its task in the label `starburst.io/run`. Containers outlive the client that made them,
and processes of a container outlive docker's daemon.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import Any

from starburst.clouds.sky.agent.containers.engine import (
    ACT_S,
    ASK_S,
    Engine,
    EngineError,
    EngineSilentError,
    NoEngineError,
    find_engine,
    kill,
)
from starburst.runs.supervisor.files import read_fact

#: The label of every container, with the name of its task: job/attempt/rank.
LABEL = "starburst.io/run"
#: The file with id of a task's container; and where parts of volumes are mounted for it (`pinned.py`).
CONTAINER, PINNED = "container.json", "pinned"
#: What removes containers, with the volumes that their images declare: these stay on the disk otherwise.
REMOVE = ("rm", "-f", "-v")
#: Seconds for the engine to remove a container.
REMOVE_S = 10.0
#: How engines say that there is no such container.
_NONE = ("no such container", "no container with")


def remove_container(path: str, box: Any) -> bool:
    """Remove the container of a task, if there is one; whether it is certain that nothing of it is left.

    `box` is the `docker` of the task's spec.
    """
    if not isinstance(box, dict):
        return True
    try:
        gone = remove(find_engine(), str(box.get("name")))
    except NoEngineError:
        return True
    except EngineSilentError:
        gone = kill_processes(path)
    if gone:
        _unpin(path)
    return gone


def _unpin(path: str) -> None:
    """Take down what was mounted for a container; its places go, and nothing that was in them."""
    above = os.path.join(path, PINNED)
    with suppress(OSError, subprocess.TimeoutExpired):  # none was
        for name in os.listdir(above):
            argv = ["umount", "-l", os.path.join(above, name)]
            sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
            subprocess.run([*sudo, *argv], capture_output=True, timeout=ASK_S, check=False)


def remove(engine: Engine, name: str) -> bool:
    """Remove a container with SIGKILL; whether there is none of this name now.

    Raises:
        EngineSilentError: the engine does not answer.
    """
    try:
        _kill(engine, name)
        engine.ask(*REMOVE, name, seconds=REMOVE_S)
    except EngineError as error:
        return any(phrase in str(error).lower() for phrase in _NONE)
    return True


def remove_all() -> None:
    """Remove every container of Starburst's: the machine is about to shut down."""
    with suppress(NoEngineError, EngineSilentError, EngineError):
        engine = find_engine()
        names = [name for name, _ in labelled(engine)]
        if names:
            _kill(engine, *names)
            engine.ask(*REMOVE, *names, seconds=ACT_S)


def _kill(engine: Engine, *names: str) -> None:
    """End what runs of these: podman's removal would first stop it, for ten seconds.

    Its option for that (`rm -t`) came with podman 4.0.
    """
    if engine.name == "podman":
        with suppress(EngineError):  # there is none, or it does not run
            engine.ask("kill", *names, seconds=REMOVE_S)


def labelled(engine: Engine) -> list[tuple[str, str]]:
    """Name and task of all containers that have the label, dead ones included.

    Raises:
        EngineError, EngineSilentError: the engine does not list them.
    """
    label = f'.Label "{LABEL}"' if engine.name == "docker" else ".Labels"
    shown = "{{.Names}} {{" + label + "}}"
    lines = engine.ask("ps", "-a", "--filter", f"label={LABEL}", "--format", shown).splitlines()
    found = [line.partition(" ") for line in lines]
    return [(name, _task(label)) for name, _, label in found if name]


def kill_processes(path: str) -> bool:
    """SIGKILL the processes of a task's container without its engine; whether none was found."""
    known = (read_fact(os.path.join(path, CONTAINER)) or {}).get("id")
    if not isinstance(known, str) or len(known) != 64:
        return True  # none was made
    found = [pid for pid in os.listdir("/proc") if pid.isdigit() and known in _groups(pid)]
    for pid in found:
        kill(int(pid))
    return not found


def _groups(pid: str) -> str:
    """The control groups of a process; engines put a container's id in their names."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _task(label: str) -> str:
    """The task in a label's value, or in podman's map[KEY:VALUE …]."""
    if not label.startswith("map["):
        return label
    pairs = (pair.partition(f"{LABEL}:") for pair in label[4:-1].split())
    return next((value for head, found, value in pairs if found and not head), "")
