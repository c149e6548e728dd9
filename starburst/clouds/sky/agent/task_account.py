"""The account of a task that is kept apart on its machine: a user id per job, and what it sees there.

It is no user of the machine and never becomes one. It sees the home of the machine's user as an empty
directory with nothing in it but the task's own directories and the programs that are in its PATH, and no
socket of a container engine, whose users are root.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from starburst.clouds.sky.agent.task_dirs import base, machine_lock
from starburst.runs.supervisor.file_owner import act_as_oneself
from starburst.runs.supervisor.id_pool import IdPool
from starburst.runs.supervisor.seclusion import engine_sockets, shared_memory

#: User ids of jobs: above those that systemd's containers use, and below what needs more than 31 bits.
FIRST_ID, LAST_ID = 1_900_000_000, 1_900_065_535
#: Open files, and processes and threads of a task at most; engines of Kubernetes' nodes give as many files.
MAX_FILES, MAX_PROCESSES = 1_048_576, 32_768
#: Limits of a task without an image: a crash leaves no core file on the machine's disk. That of processes is
#: for one in an account of its own.
LIMITS = {"NOFILE": MAX_FILES, "CORE": 0}
APART_LIMITS = {**LIMITS, "NPROC": MAX_PROCESSES}


def user_id(path: str) -> int:
    """The id of the job whose task is in this directory; all its attempts on this machine have it.

    Raises:
        PoolUsedUpError, OSError: none can be given to it.
    """
    with machine_lock("accounts"):
        return IdPool(Path(base(), "accounts"), FIRST_ID, LAST_ID).id_of(Path(path).parts[-3])


def plan_of(uid: int, own: Sequence[str], keep: Sequence[str], tmp: str) -> dict[str, Any]:
    """The plan for `seclusion.enter`: directories made for the task, others that it sees, and its /tmp."""
    return {
        "uid": uid,
        "gid": uid,
        "groups": [],
        "own": [*own, tmp],
        "hide": [os.path.realpath(os.path.expanduser("~"))],
        "keep": [*own, *keep],
        "memory": shared_memory(),
        "without": engine_sockets(),
        "private": [[place, tmp] for place in ("/tmp", "/var/tmp") if os.path.isdir(place)],
        "no_new_privs": True,
    }


def programs(path_variable: str) -> list[str]:
    """Directories below the home without which programs in a PATH do not run."""
    home = os.path.realpath(os.path.expanduser("~"))
    found = dict.fromkeys(top for entry in path_variable.split(":") for top in _needed(entry))
    return [top for top in found if os.path.isdir(top) and os.path.commonpath([home, top]) == home != top]


def _needed(entry: str) -> Iterator[str]:
    """The directory; if it is of an environment, that, and the one of its interpreter."""
    directory = os.path.realpath(entry)
    above = os.path.dirname(directory)
    if any(os.path.exists(os.path.join(above, mark)) for mark in ("conda-meta", "pyvenv.cfg")):
        yield above
        yield os.path.dirname(os.path.dirname(os.path.realpath(os.path.join(directory, "python3"))))
    else:
        yield directory


def why_not_written(directory: str, uid: int) -> str:
    """As root: why an account cannot write in a directory; "" if it can."""
    heard, said = os.pipe()
    trial = os.fork()
    if trial == 0:
        try:
            act_as_oneself()
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            # Written and closed before it is removed: rclone uploads a file at its close, an empty one later.
            with tempfile.NamedTemporaryFile(dir=directory) as file:
                file.write(b"1")
            os._exit(0)
        except OSError as error:
            os.write(said, str(error.strerror).encode())
        finally:
            os._exit(1)
    os.close(said)
    with open(heard, "rb") as answer:
        why = answer.read().decode(errors="replace")
    return "" if os.waitpid(trial, 0)[1] == 0 else why or "a trial was killed"
