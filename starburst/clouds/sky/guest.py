"""The agent on a rented machine: a program of the standard library, sent there with its parts beside it.

`guest.py tend` takes JSON on stdin and answers JSON on stdout: it takes in what is to run, passes stops
on and tells how every task asked for stands, and what it says of its progress; last, it renews the lease.
What is wrong with one task is told of that task alone: its files are its job's to write, too.
`guest.py submit` puts a task into the machine's Ray (`guest_ray.py`). `guest.py retire` ends the machine, and
`guest.py switch` is what ends it without us (`guest_switch.py`). `guest.py run DIR` is what a queue
(Ray's or SkyPilot's) starts: it holds the task's lock, gives it the GPUs that the queue chose and CPUs of its
own, and has the shim run it (`guest_run.py`). All of it may be repeated: the lock and the files of a task
(`guest_tasks.py`) decide, so a task that two queues start runs once.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import stat
import sys
import time
import zlib
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from starburst.clouds.sky.guest_ray import submit
    from starburst.clouds.sky.guest_report import hear
    from starburst.clouds.sky.guest_run import run
    from starburst.clouds.sky.guest_switch import arm, retire, stands, watch
    from starburst.clouds.sky.guest_tasks import (
        base,
        facts,
        forget_secrets,
        kill_strays,
        private_umask,
        rank_dir,
        take_lock,
        touched,
        write_exit,
    )
    from starburst.runs.exits import load_exit
    from starburst.runs.shim import write_json
else:  # on a machine, where all files of the agent lie side by side
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from exits import load_exit
    from guest_ray import submit
    from guest_report import hear
    from guest_run import run
    from guest_switch import arm, retire, stands, watch
    from guest_tasks import (
        base,
        facts,
        forget_secrets,
        kill_strays,
        private_umask,
        rank_dir,
        take_lock,
        touched,
        write_exit,
    )
    from shim import write_json

#: Of the output of all tasks per exchange, at most; each has an equal part.
LOG_BYTES = 1 << 22


def tend(ask: dict[str, Any]) -> dict[str, Any]:
    """Take in `specs`, pass `stops` on, `look` at tasks, `hear` them; then renew the lease by `lease_s`.

    The `switch` is set if its settings come along, and put back if it was there and is not.
    """
    armed = arm(ask.get("switch"))
    names = dict.fromkeys((*ask.get("specs", {}), *ask.get("stops", {}), *ask.get("look", {})))
    ranks = {name: attend(name, ask, LOG_BYTES // len(names)) for name in names}
    if ask.get("lease_s") is not None:
        renew(ask["lease_s"])
    who = {"host": socket.gethostname(), "address": address()}
    ends = {"lapsed": time.time() >= leased_until(), "armed": armed, "kept": stands("keeper")}
    return {"booted_at": booted_at(), "ranks": ranks, **ends, **who}


def attend(name: str, ask: dict[str, Any], room: int) -> dict[str, Any]:
    """Everything that is asked about one task, and how it stands."""
    path, trouble = rank_dir(name), ""
    try:
        if name in ask.get("specs", {}):
            take_in(path, ask["specs"][name])
        if name in ask.get("stops", {}):
            stop(path, ask["stops"][name])
    except OSError as error:  # a full disk, say: to be tried again
        trouble = str(error)
    try:
        found = look(path, ask.get("look", {}).get(name), room)
    except Exception:  # its job has been at its files, for ours are whole: what is left of it ends
        found = {**state_of_none(), "began": True, "over": not kill_strays(path)}
    known = ask.get("hear", {}).get(name)
    return {**found, "trouble": trouble, "report": None if known is None else hear(path, known)}


def look(path: str, seen: int | None, room: int) -> dict[str, Any]:
    """How a task stands, and its output from byte `seen` on; `more` when that is not all."""
    found = state(path)  # first, so that the output of a task that is over is complete
    log, more = (b"", False) if seen is None else read_log(os.path.join(path, "log"), seen, room)
    return {**found, "log": base64.b64encode(zlib.compress(log, 1)).decode(), "more": more}


def read_log(path: str, seen: int, room: int) -> tuple[bytes, bool]:
    """A part of what a task wrote, and whether there is more; nothing if its job put no plain file there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b"", False
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return b"", False
        found = os.pread(file, room + 1, seen)
        return found[:room], len(found) > room
    finally:
        os.close(file)


def leased_until() -> float:
    """Epoch seconds on the machine's clock; infinity before the first lease, 0 if nobody can read it."""
    path = os.path.join(base(), "lease.json")
    if not os.path.lexists(path):
        return float("inf")
    until = (facts(path) or {}).get("until")
    return float(until) if isinstance(until, (int, float)) else 0.0


def renew(lease_s: float) -> None:
    """Put the machine's end off. A lease that has passed stays so: its jobs were told to end."""
    os.makedirs(base(), exist_ok=True)
    if time.time() < leased_until():
        write_json(os.path.join(base(), "lease.json"), {"until": time.time() + lease_s})


def take_in(path: str, spec: dict[str, Any]) -> None:
    """Note what a task is to run, once."""
    os.makedirs(os.path.join(path, "work"), mode=0o700, exist_ok=True)
    secrets = spec.pop("secrets", None)
    if facts(os.path.join(path, "spec.json")) is None:
        with private_umask():
            if secrets:  # first, for a task is known by its spec
                write_json(os.path.join(path, "secrets.json"), secrets)
            write_json(os.path.join(path, "spec.json"), spec)


def stop(path: str, grace_s: float) -> None:
    """Have a task ended; a later stop can only shorten its grace. One that never began cannot begin then."""
    os.makedirs(path, exist_ok=True)
    lock = take_lock(path)
    if lock is None:
        tell(path, grace_s)
        return
    if not touched(path) and not kill_strays(path):  # its job may have removed what would tell
        forget_secrets(path)
        try:
            write_exit(path, "stop", "stopped before it began")
        except OSError:  # a full disk: what is not known cannot begin either
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(path, "spec.json"))
    os.close(lock)


def tell(path: str, grace_s: float) -> None:
    """Have the shim of a task end it."""
    told = (facts(os.path.join(path, "stop.json")) or {}).get("grace_s")
    if not isinstance(told, (int, float)) or told > grace_s:
        write_json(os.path.join(path, "stop.json"), {"grace_s": grace_s})
    shim = (facts(os.path.join(path, "started.json")) or {}).get("shim")
    if isinstance(shim, int) and shim > 1:
        with suppress(ProcessLookupError, PermissionError, OverflowError):
            os.kill(shim, signal.SIGTERM)  # makes it look; it holds its lock, so the number is its own


def state(path: str) -> dict[str, Any]:
    """How a task stands; `over` once nothing of it is alive."""
    lock = take_lock(path)
    alive = lock is None
    exit_ = load_exit(os.path.join(path, "exit.json"))
    over = not alive and touched(path)
    if over and exit_ is None:
        over = not kill_strays(path)
    if lock is not None and lock >= 0:
        os.close(lock)
    return {
        "known": os.path.exists(os.path.join(path, "spec.json")),
        "began": alive or touched(path),
        "started": os.path.exists(os.path.join(path, "started.json")),
        "over": over,
        "exit": None if exit_ is None else asdict(exit_),
    }


def state_of_none() -> dict[str, Any]:
    """How a task stands whose files tell nothing."""
    nothing = base64.b64encode(zlib.compress(b"")).decode()
    flags = dict.fromkeys(("known", "began", "started", "over", "more"), False)
    return {**flags, "exit": None, "log": nothing}


def address() -> str:
    """The machine's address in its network; nothing is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # RFC 5737: an address of nobody's
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def booted_at() -> float:
    """When the machine's first process began, epoch seconds."""
    with open("/proc/stat", encoding="ascii") as file:
        boot = next(float(line.split()[1]) for line in file if line.startswith("btime"))
    with open("/proc/1/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """One verb."""
    if sys.argv[1] == "run":
        run(sys.argv[2])
    elif sys.argv[1] == "switch":
        watch()
    else:
        verbs = {"tend": tend, "submit": submit, "retire": retire}
        json.dump(verbs[sys.argv[1]](json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
