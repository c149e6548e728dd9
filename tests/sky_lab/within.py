"""What a test does within a machine of the laboratory, whose first process is one of this host's."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.sky_lab.lab import family, lab

#: Starts a container engine anew, as the laboratory does.
RESTART = """
setsid dockerd --storage-driver=vfs --iptables=false --bridge=none >/var/log/dockerd.again 2>&1 </dev/null &
"""


def root_of(host: str) -> int:
    """The first process of the machine at this address."""
    rows = [line.split("\t") for line in lab("vms").splitlines()]
    (root,) = [int(row[8]) for row in rows if host in row[6:8] and row[5] == "running"]
    return root


def first_process(vm: str) -> int | None:
    """The pid of the init of the machine with this id, while it runs."""
    with suppress(OSError, ValueError):
        pid = int(Path(os.environ["SKYLAB_HOME"], "state", "vms", vm, "pid").read_text())
        os.kill(pid, 0)
        return pid
    return None


def unless_gone(vm: str, act: Callable[[], object]) -> None:
    """Do something to a machine; it may have ended, or end meanwhile."""
    try:
        act()
    except subprocess.CalledProcessError:
        if first_process(vm) is not None:
            raise


def inside(root: int, script: str) -> None:
    """Run a script in the namespaces of a machine."""
    argv = ["nsenter", "-t", str(root), "-m", "-p", "-n", "-u", "sh", "-c", script]
    subprocess.run(argv, check=True, timeout=20)


def commands(root: int) -> Iterator[tuple[int, list[str]]]:
    """Processes of a machine with the words of their command lines."""
    for pid in family(root):
        with suppress(OSError):  # gone meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            yield pid, [word.decode(errors="replace") for word in words]


def kill_in(root: int, is_meant: Callable[[str], bool]) -> None:
    """kill -9 of the processes of a machine that have such a word in their command lines; at least one."""
    pids = [pid for pid, words in commands(root) if any(map(is_meant, words))]
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_ray(root: int) -> None:
    """kill -9 of all that is Ray's on a machine: raylet, dashboard and its store."""
    kill_in(root, lambda word: "/ray/" in word or word.startswith("ray::"))
