"""How a machine runs one task, when its queue has come to it; part of the agent (`guest.py`)."""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from starburst.clouds.sky.guest_report import VARIABLE, make_room, report_path
    from starburst.clouds.sky.guest_tasks import (
        base,
        facts,
        forget_secrets,
        is_free,
        private_umask,
        remove_container,
        run_id,
        take_lock,
        task_dirs,
        touched,
        write_exit,
    )
    from starburst.runs.shim import LOCK_FD, REFUSAL, write_json
else:  # on a machine, where all files of the agent lie side by side
    from guest_report import VARIABLE, make_room, report_path
    from guest_tasks import (
        base,
        facts,
        forget_secrets,
        is_free,
        private_umask,
        remove_container,
        run_id,
        take_lock,
        task_dirs,
        touched,
        write_exit,
    )
    from shim import LOCK_FD, REFUSAL, write_json


def run(path: str) -> None:
    """What a queue starts: hold the lock while the shim, and a container, live."""
    lock = take_lock(path)
    if lock is None or lock < 0 or touched(path):
        return  # another queue was first, or it was told to end before
    os.dup2(lock, LOCK_FD)
    log = os.open(os.path.join(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    spec = facts(os.path.join(path, "spec.json"))
    if spec is None:
        return  # it was never taken in
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
    report = make_room(path, everybody=spec["docker"] is not None)
    own = {
        "CUDA_VISIBLE_DEVICES": gpus,
        "NVIDIA_VISIBLE_DEVICES": gpus,
        "STARBURST_CHECKPOINT_DIR": checkpoints,
        VARIABLE: report_path(path),
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
        known = {"@DIR@": path, "@GPUS@": gpus, "@CHECKPOINTS@": checkpoints, "@REPORT@": report}
        options = [re.sub("@[A-Z]+@", lambda m: known[m[0]], option) for option in spec["docker"]["options"]]
        for volume in spec["docker"].get("volumes", ()):
            options += bind(path, volume)
        secrets = facts(os.path.join(path, "secrets.json")) or {}
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
    if ":" in source or ":" in volume["path"]:
        raise Refused(f"{volume['told']}: a path with a colon cannot be mounted; mend subPath or mountPath")
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
            cpus = cpus_of(other)
            if cpus and other != path and not is_free(other):
                taken.update(cpus)
        free = [cpu for cpu in own if cpu not in taken]
        chosen = free[:count] if 0 < count <= len(free) else []
        write_json(os.path.join(path, "cpus.json"), {"cpus": chosen})
        if chosen:
            os.sched_setaffinity(0, chosen)
    finally:
        os.close(guard)


def cpus_of(path: str) -> list[int]:
    """Those that a task was bound to; none if its job has put something else there."""
    cpus = (facts(os.path.join(path, "cpus.json")) or {}).get("cpus")
    return [cpu for cpu in cpus if isinstance(cpu, int)] if isinstance(cpus, list) else []
