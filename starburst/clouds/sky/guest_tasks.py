"""What a machine's disk knows of its tasks; part of the agent (`guest.py`).

~/starburst/lease.json                   until when the machine is ours, on its own clock
           runs/<job>/<attempt>/<rank>/  as in `runs/attempt_dir.py`: spec, lock, started, stop, exit, log
                                         and secrets (of Secrets) until it starts
                                         and volumes/ (the attempt's own) until it ends
                                         and report/ (what the task says of its progress)
           checkpoints/<job>/
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from starburst.runs.exits import read_plain
    from starburst.runs.shim import mark_of, write_json
else:  # on a machine, where all files of the agent lie side by side
    from exits import read_plain
    from shim import mark_of, write_json

#: A larger file is none of ours; a spec has a job's environment in it.
MAX_BYTES = 1 << 24
#: Seconds for the container engine to remove a container.
REMOVE_S = 10.0


def base() -> str:
    """Everything of ours on the machine."""
    return os.path.join(os.path.expanduser("~"), "starburst")


def rank_dir(name: str) -> str:
    """The directory of a task named job/attempt/rank; the job's part has no slash."""
    return os.path.join(base(), "runs", name)


def facts(path: str) -> dict[str, Any] | None:
    """What a file of ours says; None if there is none, or a job has put something else in its place."""
    try:
        text = read_plain(path, MAX_BYTES)
        said = None if text is None else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def run_id(path: str) -> str:
    """What marks the processes of a task."""
    return "/".join(path.split(os.sep)[-3:])


def task_dirs() -> list[tuple[str, str, str]]:
    """Every task there is or was: job, attempt, rank."""
    root = os.path.join(base(), "runs")
    attempts = [(job, number) for job in inside(root) for number in inside(root, job)]
    return [(*pair, rank) for pair in attempts for rank in inside(root, *pair)]


def inside(*path: str) -> list[str]:
    """Names in a directory; none if there is no such directory."""
    try:
        return os.listdir(os.path.join(*path))
    except OSError:
        return []


def take_lock(path: str) -> int | None:
    """The task's lock; None while somebody holds it, -1 if there is no such task."""
    if not os.path.isdir(path):
        return -1
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(os.path.join(path, "lock"), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def is_free(path: str) -> bool:
    """Whether nobody holds a task's lock."""
    lock = take_lock(path)
    if lock is None:
        return False
    if lock >= 0:
        os.close(lock)
    return True


def touched(path: str) -> bool:
    """Whether it got so far that something may have run, or never will."""
    return any(os.path.exists(os.path.join(path, name)) for name in ("began", "started.json", "exit.json"))


def write_exit(path: str, ended_by: str, message: str) -> None:
    """Note the end of a task that no shim saw."""
    now = time.time()
    facts = {"exit_code": None, "signal": None, "ended_by": ended_by, "message": message}
    write_json(os.path.join(path, "exit.json"), {**facts, "started_at": now, "ended_at": now})


def forget_secrets(path: str) -> None:
    """Of a task that will not start."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, "secrets.json"))


def kill_strays(path: str) -> bool:
    """SIGKILL what a killed shim left behind; whether there was anything.

    Known by the limit that the shim gave it, or by its environment.
    """
    marker, limit = f"STARBURST_RUN={run_id(path)}".encode(), str(mark_of(path)).encode()
    found = False
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # gone meanwhile, or another user's
            environment, limits = (_of_process(name, what) for what in ("environ", "limits"))
            if marker in environment.split(b"\0") or limit in limits.split():
                os.kill(int(name), signal.SIGKILL)
                found = True
    return found or not remove_container(path)


def _of_process(name: str, what: str) -> bytes:
    with open(f"/proc/{name}/{what}", "rb") as file:
        return file.read()


def remove_container(path: str) -> bool:
    """Whether a task has no container any more: one outlives the client that was killed."""
    box = (facts(os.path.join(path, "spec.json")) or {}).get("docker")
    if isinstance(box, dict):
        argv = ["docker", "rm", "-f", str(box.get("name"))]
        try:
            subprocess.run(argv, stdout=subprocess.DEVNULL, timeout=REMOVE_S, check=False)
        except subprocess.TimeoutExpired:
            return False
        except (OSError, ValueError):  # no engine, or no name: there is none
            return True
    return True


class private_umask:  # noqa: N801 - reads as a statement
    """Files made within are readable by their owner only."""

    def __enter__(self) -> None:
        self._old = os.umask(0o077)

    def __exit__(self, *_error: object) -> None:
        os.umask(self._old)
