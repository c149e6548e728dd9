"""Starts tasks: each once, in a process that outlives the exchange which asked for it.

The process inherits the task's lock, which is held from before its devices are claimed until nothing of the
task lives. So neither two exchanges nor a crash in between start a task twice, and no device is given twice.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import cache

from starburst.clouds.sky.agent.containers.engine import EngineSilentError, NoEngineError, find_engine
from starburst.clouds.sky.agent.devices import NoDeviceError, claim, devices_of
from starburst.clouds.sky.agent.run_task import APART, TOGETHER
from starburst.clouds.sky.agent.separation import as_root, separation
from starburst.clouds.sky.agent.task_dirs import facts, no_room, take_lock, touched
from starburst.runs.supervisor.exits import VERDICT
from starburst.runs.supervisor.files import reserve

#: Files of a task that are written on a full disk, too: that it is to end, and why it did.
RESERVED = ("stop.json", VERDICT)
#: Seconds for the machine's shell to begin.
SHELL_S = 10.0
#: Seconds for the container engine to answer: the exchange waits, and comes again.
KNOCK_S = 5.0
#: Bytes at the end of a log in which its last line is looked for.
TAIL_BYTES = 1000


def start(path: str) -> str:
    """Start the task in this directory unless it has begun; why it cannot start now, or "".

    Raises:
        OSError: the machine is short of something, such as disk space.
    """
    lock = take_lock(path)
    if lock is None or lock < 0:  # it runs, or was never taken in
        return ""
    try:
        spec = facts(os.path.join(path, "spec.json"))
        if spec is None or touched(path):
            return ""
        if why := no_room():
            return why
        for name in RESERVED:
            reserve(os.path.join(path, name))
        if spec["docker"] is not None and (why := why_no_containers()):
            return why
        died = devices_of(path) is not None
        how = APART if spec["docker"] is None and not separation()["tasks"] else TOGETHER
        claim(path, spec["gpus"], math.ceil(spec["cpus"]))
        _spawn(path, lock, how)
    except NoDeviceError as error:
        return str(error)
    finally:
        os.close(lock)
    return f"its runner died before it began: {_last_line(path)}" if died else ""


def why_no_containers() -> str:
    """Why no container can be made on this machine now; "" if one can, as far as its engine says."""
    try:
        find_engine(KNOCK_S)
    except (NoEngineError, EngineSilentError) as error:
        return str(error)
    return ""


def _spawn(path: str, lock: int, how: str) -> None:
    """Run `run` of this agent with the lock as its standard input, and what it says in the task's log.

    What keeps a task apart is done by root; sudo lets nothing through but the standard streams.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(os.path.join(path, "log"), flags, 0o600)
    try:
        argv = [sys.executable, "-I", os.path.abspath(sys.argv[0]), "run", path, how]
        env = {"PATH": user_path(), "LANG": os.environ.get("LANG", "C.UTF-8")}
        if how == APART:
            argv = as_root(*argv, **env)
        environment = {**os.environ, **env}
        subprocess.Popen(argv, stdin=lock, stdout=log, stderr=log, env=environment, start_new_session=True)
    finally:
        os.close(log)


@cache
def user_path() -> str:
    """PATH as the machine's user has it in a terminal, where images of clouds set up their Python."""
    argv, mark = ["bash", "-ic", 'echo "@$PATH@"'], b"@"
    try:
        quiet = subprocess.DEVNULL
        done = subprocess.run(
            argv,
            stdin=quiet,
            stdout=subprocess.PIPE,
            stderr=quiet,
            timeout=SHELL_S,
            check=False,
            start_new_session=True,
        )
        path = done.stdout.rstrip().rstrip(mark).rpartition(mark)[2].decode()
    except (OSError, subprocess.TimeoutExpired, ValueError):
        path = ""
    return path or os.environ.get("PATH", os.defpath)


def _last_line(path: str) -> str:
    with open(os.path.join(path, "log"), "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - TAIL_BYTES))
        lines = log.read(TAIL_BYTES).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
