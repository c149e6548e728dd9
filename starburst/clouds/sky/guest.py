"""The agent on a rented machine: a program of the standard library, sent there with `runs/shim.py` beside it.

    ~/starburst/lease.json                   until when the machine is ours, on its own clock
               runs/<job>/<attempt>/<rank>/  as in `runs/attempt_dir.py`: spec, lock, started, stop, exit, log
                                             and secrets (of Secrets) until it starts
                                             and volumes/ (the attempt's own) until it ends
               checkpoints/<job>/

`guest.py tend` takes JSON on stdin and answers JSON on stdout: it renews the lease, takes in what is to
run, passes stops on and tells how every task asked for stands. `guest.py submit` puts a task into the
machine's Ray. `guest.py run DIR` is what a queue (Ray's or SkyPilot's) starts: it holds the task's lock,
gives it the GPUs that the queue chose and CPUs of its own, and has the shim run it. All of it may be
repeated: the lock and the files of a task decide, so a task that two queues start runs once.
"""

from __future__ import annotations

import base64
import fcntl
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    from shim import LOCK_FD, REFUSAL, read_json, write_json  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # on the scheduler's side
    from starburst.runs.shim import LOCK_FD, REFUSAL, read_json, write_json

#: SkyPilot's Ray listens for jobs here, on its machine only, unless ~/.sky/ray_port.json has another port.
RAY_PORT = 8266
CALL_S = 10.0
#: Of a task's output per exchange, at most.
LOG_BYTES = 1 << 18


def base() -> str:
    """Everything of ours on the machine."""
    return os.path.join(os.path.expanduser("~"), "starburst")


# --- tending: one exchange for all tasks of the machine
# -------------------------------------------------------


def tend(ask: dict[str, Any]) -> dict[str, Any]:
    """Renew the lease by `lease_s`, take in `specs`, pass `stops` on, and `look` at tasks."""
    if ask.get("lease_s") is not None:
        renew(ask["lease_s"])
    for name, spec in ask.get("specs", {}).items():
        take_in(rank_dir(name), spec)
    for name, grace_s in ask.get("stops", {}).items():
        stop(rank_dir(name), grace_s)
    ranks = {name: look(rank_dir(name), seen) for name, seen in ask.get("look", {}).items()}
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
    if read_json(os.path.join(path, "stop.json")) is None:
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


def take_lock(path: str) -> int | None:
    """The task's lock; None while somebody holds it, -1 if there is no such task."""
    if not os.path.isdir(path):
        return -1
    lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


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
    """SIGKILL what a killed shim left behind; whether there was anything. Known by its environment."""
    marker = f"STARBURST_RUN={run_id(path)}".encode()
    found = False
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # gone meanwhile, or another user's
            with open(f"/proc/{name}/environ", "rb") as file:
                ours = marker in file.read().split(b"\0")
            if ours:
                os.kill(int(name), signal.SIGKILL)
                found = True
    remove_container(path)
    return found


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


# --- the machine's Ray
# ----------------------------------------------------------------------------------------


def submit(ask: dict[str, Any]) -> dict[str, Any]:
    """Put tasks into Ray's queue, each once: {name: {"dir", "gpus"}} → {name: Ray's status}."""
    return {name: submit_one(name, **what) for name, what in ask["tasks"].items()}


def submit_one(name: str, dir: str, gpus: int) -> str:
    """The status of a submission, made now if there was none."""
    known = ray(name)
    if known is not None:
        return str(known["status"])
    program = os.path.abspath(__file__)
    job: dict[str, Any] = {
        "entrypoint": f"exec /usr/bin/env python3 {program} run {rank_dir(dir)}",
        "submission_id": name,
    }
    if gpus:
        job["entrypoint_num_gpus"] = gpus
    try:
        ray("", job)
    except urllib.error.HTTPError:
        if ray(name) is None:  # not because another one was faster
            raise
    return "PENDING"


def ray(name: str, body: dict[str, Any] | None = None) -> Any:
    """Ask Ray for a submission, or make one; None if there is none."""
    data = None if body is None else json.dumps(body).encode()
    ports = read_json(os.path.expanduser("~/.sky/ray_port.json")) or {}
    url = f"http://127.0.0.1:{ports.get('ray_dashboard_port', RAY_PORT)}/api/jobs/{name}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=CALL_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if body is None and error.code == 404:
            return None
        raise


# --- running one task
# -----------------------------------------------------------------------------------------


def run(path: str) -> None:
    """What a queue starts: hold the lock while the shim, and a container, live."""
    lock = take_lock(path)
    if lock is None or lock < 0 or touched(path):
        return  # another queue was first, or it was told to end before
    os.dup2(lock, LOCK_FD)
    log = os.open(os.path.join(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    spec = read_json(os.path.join(path, "spec.json"))
    try:
        prepare(path, spec)
    except Refused as refused:
        write_exit(path, REFUSAL, str(refused))
        forget_secrets(path)
        return
    open(os.path.join(path, "began"), "w").close()
    shim = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim.py")
    argv = [sys.executable, "-I", "-S", shim, path]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(LOCK_FD,), start_new_session=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a queue that is told to end it; the shim has its own ways
    child.wait()
    remove_container(path)
    shutil.rmtree(os.path.join(path, "volumes"), ignore_errors=True)


def prepare(path: str, spec: dict[str, Any]) -> None:
    """Fill in what only the machine knows: GPUs, CPUs, directories."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "") if spec["gpus"] else ""
    checkpoints = os.path.expanduser(spec["checkpoints"])
    os.makedirs(checkpoints, exist_ok=True)
    own = {
        "CUDA_VISIBLE_DEVICES": gpus,
        "NVIDIA_VISIBLE_DEVICES": gpus,
        "STARBURST_CHECKPOINT_DIR": checkpoints,
        "STARBURST_RUN": run_id(path),
    }
    home = os.path.expanduser("~")
    machine = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    if spec["docker"] is None:
        spec["env"] = {**machine, **spec["env"], **own}
        spec["cwd"] = spec["cwd"] or os.path.join(path, "work")
    else:
        with private_umask(), open(os.path.join(path, "env"), "w", encoding="utf-8") as file:
            file.write(spec["docker"]["env_file"])
        known = {"@DIR@": path, "@GPUS@": gpus, "@CHECKPOINTS@": checkpoints}
        options = [re.sub("@[A-Z]+@", lambda m: known[m[0]], option) for option in spec["docker"]["options"]]
        for volume in spec["docker"].get("volumes", ()):
            options += bind(path, volume)
        secrets = read_json(os.path.join(path, "secrets.json")) or {}
        passed = [part for key in sorted({*spec["docker"]["env"], *secrets}) for part in ("-e", key)]
        spec["command"] = [*options, *passed, *spec["docker"]["rest"]]
        spec["env"] = {**machine, **spec["docker"]["env"], "STARBURST_RUN": run_id(path)}
        spec["cwd"] = path
    spec["lease"] = os.path.join(base(), "lease.json")
    with private_umask():
        write_json(os.path.join(path, "spec.json"), spec)
    bind_cpus(path, math.ceil(spec["cpus"]))


class Refused(Exception):  # noqa: N818 - no error of ours
    """A task cannot be started here, and the message says why."""


def bind(path: str, volume: dict[str, Any]) -> list[str]:
    """The option that shows a container one of its volumes, or a directory of one, made if it is missing."""
    own = volume["store"] is None
    root = os.path.realpath(os.path.join(path, "volumes") if own else os.path.expanduser(volume["store"]))
    there = own or (os.path.isdir(root) if volume["copied"] else os.path.ismount(root))
    if not there:
        why = "a machine has what cloud.volumes named when it was rented"
        raise Refused(f"{volume['told']} is not mounted on this machine; {why}")
    source = os.path.realpath(os.path.join(root, volume["below"]))
    if os.path.commonpath([root, source]) != root:  # a link that somebody put there
        raise Refused(f"{volume['below']} leads out of {volume['told']}; mend subPath")
    try:
        if not os.path.exists(source):
            os.makedirs(source)
        if own:
            os.chmod(source, 0o777)  # as the cluster does it, for whoever the image runs as
    except OSError as error:
        raise Refused(f"{volume['told']}: {volume['below']} cannot be made: {error.strerror}") from error
    return ["-v", f"{source}:{volume['path']}" + (":ro" if volume["read_only"] else "")]


def bind_cpus(path: str, count: int) -> None:
    """Keep this process and its children to CPUs that no other task has, if so many are free."""
    own = sorted(os.sched_getaffinity(0))
    guard = os.open(os.path.join(base(), "cpus.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(guard, fcntl.LOCK_EX)
    try:
        taken = set()
        for job, attempt, rank in task_dirs():
            other = os.path.join(base(), "runs", job, attempt, rank)
            cpus = read_json(os.path.join(other, "cpus.json"))
            if cpus and other != path and not is_free(other):
                taken.update(cpus)
        free = [cpu for cpu in own if cpu not in taken]
        chosen = free[:count] if 0 < count <= len(free) else []
        write_json(os.path.join(path, "cpus.json"), chosen)
        if chosen:
            os.sched_setaffinity(0, chosen)
    finally:
        os.close(guard)


def is_free(path: str) -> bool:
    """Whether nobody holds a task's lock."""
    lock = take_lock(path)
    if lock is None:
        return False
    if lock >= 0:
        os.close(lock)
    return True


def task_dirs() -> list[tuple[str, str, str]]:
    """Every task there is or was: job, attempt, rank."""
    root = os.path.join(base(), "runs")
    jobs = os.listdir(root) if os.path.isdir(root) else []
    attempts = [(job, number) for job in jobs for number in os.listdir(os.path.join(root, job))]
    return [(*pair, rank) for pair in attempts for rank in os.listdir(os.path.join(root, *pair))]


def remove_container(path: str) -> None:
    """A container outlives the client that was killed; its name is the task's."""
    spec = read_json(os.path.join(path, "spec.json")) or {}
    if spec.get("docker"):
        subprocess.run(["docker", "rm", "-f", spec["docker"]["name"]], stdout=subprocess.DEVNULL, check=False)


def rank_dir(name: str) -> str:
    """The directory of a task named job/attempt/rank; the job's part has no slash."""
    return os.path.join(base(), "runs", name)


def run_id(path: str) -> str:
    """What marks the processes of a task."""
    return "/".join(path.split(os.sep)[-3:])


class private_umask:  # noqa: N801 - reads as a statement
    """Files made within are readable by their owner only."""

    def __enter__(self) -> None:
        self._old = os.umask(0o077)

    def __exit__(self, *_error: object) -> None:
        os.umask(self._old)


def main() -> None:
    """One verb."""
    if sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        json.dump({"tend": tend, "submit": submit}[sys.argv[1]](json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
