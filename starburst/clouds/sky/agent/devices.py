"""GPUs and CPUs of a task's own, on a machine that several tasks share.

A task's claim is in `devices.json` of its directory. It holds while something of the task lives, and is
dropped when devices are next looked for. Claims are made under one lock of the machine.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any, TypedDict

from starburst.clouds.sky.agent.task_dirs import facts, is_free, kill_strays, machine_lock, task_dirs
from starburst.runs.supervisor.files import remove, write_json

#: Seconds for the driver to list the GPUs.
LIST_S = 10.0
#: GPUs in the command line of a container.
_OPTION = re.compile(r'"device=([0-9,]*)"')


class NoDeviceError(Exception):
    """A task cannot have its GPUs now; the message says why."""


class Devices(TypedDict):
    """Indices of what a task has for itself; `cpus` is empty if it shares all of them."""

    gpus: list[int]
    cpus: list[int]


def claim(path: str, gpus: int, cpus: int) -> None:
    """Give the task in this directory, whose lock the caller holds, `gpus` GPUs that no other task has.

    It is given as many CPUs likewise if so many are free, and else shares all.

    Raises:
        NoDeviceError: so many GPUs are not free, or not there.
        OSError: the claim cannot be written.
    """
    with machine_lock("devices"):
        taken = list(_taken(path))
        used_gpus = {gpu for devices in taken for gpu in devices["gpus"]}
        used_cpus = {cpu for devices in taken for cpu in devices["cpus"]}
        free = [gpu for gpu in all_gpus() if gpu not in used_gpus] if gpus else []
        if len(free) < gpus:
            raise NoDeviceError(f"{len(free)} of {len(all_gpus())} GPUs are free, and {gpus} are needed")
        own = [cpu for cpu in sorted(os.sched_getaffinity(0)) if cpu not in used_cpus]
        chosen = own[:cpus] if 0 < cpus <= len(own) else []
        write_json(os.path.join(path, "devices.json"), {"gpus": free[:gpus], "cpus": chosen})


def devices_of(path: str) -> Devices | None:
    """What a task has claimed; None if nothing, or if its job has put something else there."""
    found = facts(os.path.join(path, "devices.json"))
    return None if found is None else {"gpus": _numbers(found, "gpus"), "cpus": _numbers(found, "cpus")}


def all_gpus() -> tuple[int, ...]:
    """Indices of the machine's GPUs, as its driver counts them.

    Raises:
        NoDeviceError: the driver does not answer.
    """
    listing, trouble = _driver_says()
    if trouble:
        raise NoDeviceError(trouble)
    return tuple(int(index) for index in re.findall(r"^GPU (\d+):", listing, re.MULTILINE))


@cache
def _driver_says() -> tuple[str, str]:
    """The driver's listing, and why there is none; asked once per process, for it may hang."""
    argv = ["nvidia-smi", "-L"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIST_S, text=True, check=False
        )
    except FileNotFoundError:
        return "", ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvidia-smi does not answer: {error}"
    return done.stdout, f"nvidia-smi failed: {done.stdout}{done.stderr}" if done.returncode else ""


def _taken(path: str) -> Iterator[Devices]:
    """The devices of other tasks; claims of those that are over are dropped."""
    for other in task_dirs():
        if other == path:
            continue
        devices = devices_of(other)
        if devices is None:
            if not is_free(other):
                yield _before_claims(other)
        elif not is_free(other) or kill_strays(other):
            yield devices
        else:
            remove(os.path.join(other, "devices.json"))


def _before_claims(path: str) -> Devices:
    """The devices of a task that the agent of a version without claims had started."""
    spec = facts(os.path.join(path, "spec.json")) or {}
    env, command = spec.get("env"), spec.get("command")
    given = [str(env.get("CUDA_VISIBLE_DEVICES", ""))] if isinstance(env, dict) else []
    if isinstance(command, list):
        given += [match[1] for word in command if (match := _OPTION.fullmatch(str(word)))]
    gpus = [int(index) for text in given for index in text.split(",") if index.isdigit()]
    return {"gpus": gpus, "cpus": _numbers(facts(os.path.join(path, "cpus.json")) or {}, "cpus")}


def _numbers(found: dict[str, Any], key: str) -> list[int]:
    values = found.get(key)
    return [value for value in values if isinstance(value, int)] if isinstance(values, list) else []
