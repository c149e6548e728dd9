"""The agent on a rented machine: a program of the standard library, sent there with its parts beside it.

`guest.py tend` takes JSON on stdin and answers JSON on stdout: it renews the lease, takes in what is to
run, passes stops on and tells how every task asked for stands, and what it says of its progress.
`guest.py submit` puts a task into the machine's Ray (`guest_ray.py`). `guest.py run DIR` is what a queue
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
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from starburst.clouds.sky.guest_ray import submit
    from starburst.clouds.sky.guest_report import hear
    from starburst.clouds.sky.guest_run import run
    from starburst.clouds.sky.guest_tasks import (
        base,
        forget_secrets,
        kill_strays,
        private_umask,
        rank_dir,
        take_lock,
        touched,
        write_exit,
    )
    from starburst.runs.shim import read_json, write_json
else:  # on a machine, where all files of the agent lie side by side
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from guest_ray import submit
    from guest_report import hear
    from guest_run import run
    from guest_tasks import (
        base,
        forget_secrets,
        kill_strays,
        private_umask,
        rank_dir,
        take_lock,
        touched,
        write_exit,
    )
    from shim import read_json, write_json

#: Of a task's output per exchange, at most.
LOG_BYTES = 1 << 18


def tend(ask: dict[str, Any]) -> dict[str, Any]:
    """Renew the lease by `lease_s`, take in `specs`, pass `stops` on, `look` at tasks and `hear` them."""
    if ask.get("lease_s") is not None:
        renew(ask["lease_s"])
    for name, spec in ask.get("specs", {}).items():
        take_in(rank_dir(name), spec)
    for name, grace_s in ask.get("stops", {}).items():
        stop(rank_dir(name), grace_s)
    ranks = {name: look(rank_dir(name), seen) for name, seen in ask.get("look", {}).items()}
    for name, known in ask.get("hear", {}).items():
        ranks[name]["report"] = hear(rank_dir(name), known)
    lease = read_json(os.path.join(base(), "lease.json"))
    lapsed = lease is not None and time.time() >= lease["until"]
    who = {"host": socket.gethostname(), "address": address()}
    return {"booted_at": booted_at(), "lapsed": lapsed, "ranks": ranks, **who}


def look(path: str, seen: int) -> dict[str, Any]:
    """How a task stands, and its output from byte `seen` on; `more` when that is not all."""
    found = state(path)  # first, so that the output of a task that is over is complete
    found["log"], found["more"] = "", False
    with suppress(FileNotFoundError), open(os.path.join(path, "log"), "rb") as file:
        file.seek(seen)
        found["log"] = base64.b64encode(file.read(LOG_BYTES)).decode()
        found["more"] = bool(file.read(1))
    return found


def renew(lease_s: float) -> None:
    """Put the machine's end off. A lease that has passed stays so: its jobs were told to end."""
    path = os.path.join(base(), "lease.json")
    os.makedirs(base(), exist_ok=True)
    lease = read_json(path)
    if lease is None or time.time() < lease["until"]:
        write_json(path, {"until": time.time() + lease_s})


def take_in(path: str, spec: dict[str, Any]) -> None:
    """Note what a task is to run, once."""
    os.makedirs(os.path.join(path, "work"), mode=0o700, exist_ok=True)
    secrets = spec.pop("secrets", None)
    if read_json(os.path.join(path, "spec.json")) is None:
        with private_umask():
            if secrets:  # first, for a task is known by its spec
                write_json(os.path.join(path, "secrets.json"), secrets)
            write_json(os.path.join(path, "spec.json"), spec)


def stop(path: str, grace_s: float) -> None:
    """Have a task ended. One that never began cannot begin after this."""
    os.makedirs(path, exist_ok=True)
    asked = read_json(os.path.join(path, "stop.json"))
    if asked is None or grace_s < asked["grace_s"]:
        write_json(os.path.join(path, "stop.json"), {"grace_s": grace_s})
    lock = take_lock(path)
    if lock is not None:
        if not touched(path):
            write_exit(path, "stop", "stopped before it began")
            forget_secrets(path)
        os.close(lock)
    started = read_json(os.path.join(path, "started.json"))
    if lock is None and started is not None:
        with suppress(ProcessLookupError):
            os.kill(
                started["shim"], signal.SIGTERM
            )  # makes it look; it holds its lock, so the number is its own


def state(path: str) -> dict[str, Any]:
    """How a task stands; `over` once nothing of it is alive."""
    lock = take_lock(path)
    alive = lock is None
    exit_ = read_json(os.path.join(path, "exit.json"))
    over = not alive and touched(path)
    if over and exit_ is None:
        over = not kill_strays(path)
    if lock is not None and lock >= 0:
        os.close(lock)
    started = os.path.exists(os.path.join(path, "started.json"))
    known = os.path.exists(os.path.join(path, "spec.json"))
    return {"known": known, "began": alive or touched(path), "started": started, "over": over, "exit": exit_}


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
    else:
        json.dump({"tend": tend, "submit": submit}[sys.argv[1]](json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
