"""How a machine runs one task, in a process that `start_task.py` began."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from starburst.clouds.sky.agent import machine_cgroup
from starburst.clouds.sky.agent.containers import TaskRefusedError, command_line, remove_container
from starburst.clouds.sky.agent.devices import devices_of
from starburst.clouds.sky.agent.progress_file import make_report_dir, report_path
from starburst.clouds.sky.agent.protocol import TaskSpec
from starburst.clouds.sky.agent.task_dirs import (
    base,
    facts,
    forget_secrets,
    private_umask,
    run_id,
    write_exit,
)
from starburst.runs.supervisor import cgroups
from starburst.runs.supervisor.children import LOCK_FD
from starburst.runs.supervisor.exits import REFUSAL
from starburst.runs.supervisor.files import write_json
from starburst.runs.supervisor.progress_report import VARIABLE


def run(path: str) -> None:
    """Run the task of a directory to its end, holding its lock while its supervisor or container lives.

    The lock comes as standard input, and what is written goes to the task's log.
    """
    os.dup2(0, LOCK_FD)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    spec = facts(os.path.join(path, "spec.json"))
    if spec is None:
        return  # another task has removed it
    try:
        prepare(path, spec)
    except TaskRefusedError as refused:
        write_exit(path, REFUSAL, str(refused))
        forget_secrets(path)
        return
    open(os.path.join(path, "began"), "w").close()
    argv = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), "supervise", path]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(LOCK_FD,), start_new_session=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # stops come by `stop.json`
    child.wait()
    remove_container(spec["docker"])
    shutil.rmtree(os.path.join(path, "volumes"), ignore_errors=True)


def prepare(path: str, spec: dict[str, Any]) -> None:
    """Turn the TaskSpec in `spec` into what the supervisor runs: fill in GPUs, directories and the cgroup.

    Raises:
        TaskRefusedError: a volume of its container is not here.
    """
    task = cast("TaskSpec", spec)
    devices = devices_of(path) or {"gpus": [], "cpus": []}
    gpus = ",".join(map(str, devices["gpus"]))
    checkpoints = os.path.expanduser(task["checkpoints"])
    os.makedirs(checkpoints, exist_ok=True)
    box = task["docker"]
    report_dir = make_report_dir(path, everybody=box is not None)
    own = {
        "CUDA_VISIBLE_DEVICES": gpus,
        "NVIDIA_VISIBLE_DEVICES": gpus,
        "STARBURST_CHECKPOINT_DIR": checkpoints,
        VARIABLE: report_path(path),
        "STARBURST_RUN": run_id(path),
    }
    if box is None:
        task["env"] = {**machine_environment(), **task["env"], **own}
        task["cwd"] = task["cwd"] or os.path.join(path, "work")
    else:
        with private_umask(), open(os.path.join(path, "env"), "w", encoding="utf-8") as file:
            file.write(box["env_file"])
        known = {"@DIR@": path, "@GPUS@": gpus, "@CHECKPOINTS@": checkpoints, "@REPORT@": report_dir}
        secrets = facts(os.path.join(path, "secrets.json")) or {}
        task["command"] = command_line(path, box, known, secrets)
        task["env"] = {**machine_environment(), **box["env"], "STARBURST_RUN": run_id(path)}
        task["cwd"] = path
    spec["lease"] = os.path.join(base(), "lease.json")
    machine_cgroup.enter()
    spec["cgroup"] = cgroups.group_of(Path(path))
    with private_umask():
        write_json(os.path.join(path, "spec.json"), spec)
    if devices["cpus"]:
        os.sched_setaffinity(0, devices["cpus"])


def machine_environment() -> dict[str, str]:
    """Variables that a task has of the machine."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.path.expanduser("~"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
