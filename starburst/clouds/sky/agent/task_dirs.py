"""What a machine's disk knows of its tasks.

~/starburst/lease.json                   until when the machine is ours, on its own clock
           lease.json.room               blocks for the next lease, should the disk be full
           runs/<job>/<attempt>/<rank>/  as in `runs/attempt_dir.py`: spec, lock, started, stop, exit, log;
                                         secrets.json, logins.json, files.json until the task starts;
                                         began, once it may have; devices; of a container: waits until it
                                         runs, container;
                                         volumes/ (of the attempt) until it ends; report/ (its progress);
                                         work/, home/, tmp/ (of its account)
           checkpoints/<job>/
           accounts/<job>                its user id
           images/<digest>/              an image that is pulled ahead of its tasks: image, lock, waits
           images.json                   images that tasks have used and the engine has
           separation.json               whether tasks are kept apart
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starburst.clouds.sky.agent import machine_cgroup
from starburst.clouds.sky.agent.containers.removal import remove_container
from starburst.runs.supervisor import cgroups, strays
from starburst.runs.supervisor.exits import Exit, message_of
from starburst.runs.supervisor.files import is_shortage, read_fact, remove, try_lock, write_json

#: The file that says why a container does not run yet; it is there as long as that is so.
WAITS = "waits.json"
#: Values of Secrets, until the task starts; those that its container is being made with.
SECRETS, GIVEN = "secrets.json", "secrets.env"
#: Files for its volumes, until they are written; and its volumes.
FILES, VOLUMES = "files.json", "volumes"
#: Directory with the login of one pull.
REGISTRY = "registry"
#: Bytes of a spec at most: it holds a job's environment.
MAX_SPEC_BYTES = 1 << 24
#: Bytes that must be free on the disk for a task to start.
ROOM_BYTES = 1 << 24


def base() -> str:
    """The directory of everything that is Starburst's on the machine."""
    return os.path.join(os.path.expanduser("~"), "starburst")


def rank_dir(name: str) -> str:
    """The directory of a task named job/attempt/rank; the job's part has no slash."""
    return os.path.join(base(), "runs", name)


def make_checkpoint_dir(directory: str) -> None:
    """Make the directory of a job's checkpoints, in one of the machine's user alone unless it is in a bucket.

    A container may write in it as any user.
    """
    os.makedirs(directory, exist_ok=True)
    above = os.path.dirname(directory)
    if above == os.path.join(base(), "checkpoints"):
        os.chmod(above, 0o700)


def facts(path: str) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is none, or a job has replaced it or made it unreadable.

    Raises:
        OSError: the machine is short of something, so that what the file says is not known.
    """
    try:
        return read_fact(path, MAX_SPEC_BYTES)
    except OSError as error:
        if is_shortage(error):
            raise
        return None


def task_name(path: str) -> str:
    """The name of the task in a directory: job/attempt/rank."""
    return "/".join(path.split(os.sep)[-3:])


def run_id(path: str) -> str:
    """The value of STARBURST_RUN by which a task's processes are known: job/attempt/rank/directory.

    The digest of the directory tells homes of one machine apart.
    """
    return f"{task_name(path)}/{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def task_dirs() -> list[str]:
    """Directories of every task that this machine has or had."""
    runs = Path(base(), "runs")
    return [str(path) for path in runs.glob("*/*/*")] if runs.is_dir() else []


def no_room() -> str:
    """Why the machine's disk has no room for another task; "" if it has."""
    try:
        disk = os.statvfs(base())
    except FileNotFoundError:  # nothing is there yet
        return ""
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    if free < ROOM_BYTES:
        return f"its disk is full: {free >> 10} KiB of {size >> 20} MiB are free"
    return "its disk is full: it takes no more files" if disk.f_files and not disk.f_favail else ""


@contextmanager
def machine_lock(name: str) -> Iterator[None]:
    """Hold a lock of the machine; other processes wait for it."""
    lock = os.open(os.path.join(base(), f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def take_lock(path: str) -> int | None:
    """The descriptor of a task's lock; None while another process holds it, -1 if there is no such task."""
    if not os.path.isdir(path):
        return -1
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(os.path.join(path, "lock"), flags, 0o600)
    if try_lock(lock):
        return lock
    os.close(lock)
    return None


def is_free(path: str) -> bool:
    """Whether no process holds a task's lock."""
    lock = take_lock(path)
    if lock is None:
        return False
    if lock >= 0:
        os.close(lock)
    return True


def touched(path: str) -> bool:
    """Whether something of a task may have run, or it never will."""
    return any(os.path.exists(os.path.join(path, name)) for name in ("began", "started.json", "exit.json"))


def write_exit(path: str, ended_by: str, message: str) -> None:
    """Note the end of a task that never had a supervisor."""
    now = time.time()
    write_json(
        os.path.join(path, "exit.json"), asdict(Exit(None, None, ended_by, message_of(message), now, now))
    )


def forget_secrets(path: str) -> None:
    """Remove the values of Secrets of a task that will not start, or has ended."""
    for name in (SECRETS, GIVEN, "logins.json", FILES):
        remove(os.path.join(path, name))
    for name in (VOLUMES, REGISTRY):
        shutil.rmtree(os.path.join(path, name), ignore_errors=True)


def kill_group(path: str) -> bool:
    """SIGKILL what is in a task's control group; whether there was anything.

    The group is looked for where the task's spec says, if it can be the task's, and where this machine makes
    it: the task may have removed its spec.
    """
    spec = facts(os.path.join(path, "spec.json")) or {}
    directory = Path(path)
    groups = {cgroups.recorded(spec.get("cgroup"), directory), machine_cgroup.group_of(directory)}
    killed = [cgroups.kill(group) for group in groups if group is not None]
    return any(killed)


def kill_container(path: str) -> bool:
    """Remove a task's container; whether anything of it may be left."""
    spec = facts(os.path.join(path, "spec.json")) or {}
    return not remove_container(path, spec.get("docker"))


def kill_strays(path: str) -> bool:
    """SIGKILL what a killed supervisor left behind; whether anything may be left.

    A container outlives the client that was killed, so it is removed by its name.
    """
    found = kill_group(path)
    found |= strays.kill_strays(Path(path), [f"STARBURST_RUN={run_id(path)}"])
    return kill_container(path) or found


class private_umask:  # noqa: N801 - reads as a statement
    """A context in which files are made readable by their owner only."""

    def __enter__(self) -> None:
        self._old = os.umask(0o077)

    def __exit__(self, *_error: object) -> None:
        os.umask(self._old)
