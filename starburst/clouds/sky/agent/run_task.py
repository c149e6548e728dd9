"""How a machine runs one task, in a process that `start_task.py` began.

A task without an image is kept apart where the machine can (`separation.py`): this process is root's then,
and acts on files as the machine's user, except where it prepares what only root can.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from starburst.clouds.sky.agent import firewall, machine_cgroup
from starburst.clouds.sky.agent.containers.options import TaskRefusedError
from starburst.clouds.sky.agent.containers.removal import remove_container
from starburst.clouds.sky.agent.containers.volume_files import file_mounts, give_files
from starburst.clouds.sky.agent.devices import devices_of
from starburst.clouds.sky.agent.progress_file import make_report_dir, report_path
from starburst.clouds.sky.agent.protocol import ContainerSpec, TaskSpec
from starburst.clouds.sky.agent.separation import separation
from starburst.clouds.sky.agent.task_account import (
    APART_LIMITS,
    LIMITS,
    plan_of,
    programs,
    user_id,
    why_not_written,
)
from starburst.clouds.sky.agent.task_dirs import (
    WAITS,
    base,
    facts,
    forget_secrets,
    make_checkpoint_dir,
    private_umask,
    run_id,
    write_exit,
)
from starburst.runs.supervisor.children import LOCK_FD
from starburst.runs.supervisor.exits import REFUSAL
from starburst.runs.supervisor.file_owner import act_as_oneself, act_as_owner_of
from starburst.runs.supervisor.files import write_json
from starburst.runs.supervisor.id_pool import PoolUsedUpError
from starburst.runs.supervisor.log_pump import MAX_LOG
from starburst.runs.supervisor.progress_report import HOSTS_NAME, HOSTS_VARIABLE, VARIABLE, write_hosts

#: How a task runs: in an account of its own, or as the machine's user.
APART, TOGETHER = "apart", "together"
#: The name in the environment of tasks whose accounts have none.
USER = "starburst"
#: Seconds between looks at what listens on the machine, while a task runs apart.
LISTEN_S = 15.0


def run(path: str, how: str) -> None:
    """Run the task of a directory to its end, holding its lock while its supervisor or container lives.

    The lock comes as standard input, and what is written goes to the task's log.
    """
    os.dup2(0, LOCK_FD)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if how == APART:
        act_as_owner_of(path)
    spec = facts(os.path.join(path, "spec.json"))
    if spec is None:
        return  # another task has removed it
    try:
        prepare(path, spec, apart=how == APART)
    except TaskRefusedError as refused:
        write_exit(path, REFUSAL, str(refused))
        forget_secrets(path)
        return
    open(os.path.join(path, "began"), "w").close()
    argv = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), "supervise", path]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(LOCK_FD,), start_new_session=True)
    for number in (signal.SIGTERM, signal.SIGHUP):  # stops come by `stop.json`, shutdowns to the supervisor
        signal.signal(number, signal.SIG_IGN)
    attend(child, path, apart=how == APART)
    remove_container(path, spec["docker"])
    forget_secrets(path)


def attend(child: subprocess.Popen[bytes], path: str, *, apart: bool) -> None:
    """Wait for a task's supervisor; a task that is kept apart does not reach what listens later, either."""
    closed = firewall.listening() if apart else frozenset()
    while True:
        try:
            child.wait(LISTEN_S if apart else None)
            return
        except subprocess.TimeoutExpired:
            now = firewall.listening()
            if not now <= closed:
                closed = now
                with all_rights(path):
                    firewall.close()


def prepare(path: str, spec: dict[str, Any], *, apart: bool) -> None:
    """Turn the TaskSpec in `spec` into what the supervisor runs: fill in GPUs, directories and the cgroup.

    Raises:
        TaskRefusedError: it cannot have an account.
    """
    task = cast("TaskSpec", spec)
    devices = devices_of(path) or {"gpus": [], "cpus": []}
    gpus = ",".join(map(str, devices["gpus"]))
    checkpoints = os.path.expanduser(task["checkpoints"])
    make_checkpoint_dir(checkpoints)
    report_dir = make_report_dir(path, everybody=task["docker"] is not None)
    hosts = task.get("hosts", [])
    write_hosts(report_dir, hosts)
    if task["docker"] is not None:
        known = {"@GPUS@": gpus, "@CHECKPOINTS@": checkpoints, "@REPORT@": report_dir}
        in_container(path, task, task["docker"], known)
    else:
        visible = {"CUDA_VISIBLE_DEVICES": gpus, "NVIDIA_VISIBLE_DEVICES": gpus}
        own = {**visible, VARIABLE: report_path(path), "STARBURST_RUN": run_id(path)}
        if hosts:
            own[HOSTS_VARIABLE] = os.path.join(report_dir, HOSTS_NAME)
        account = {"HOME": os.path.join(path, "home"), "USER": USER, "LOGNAME": USER} if apart else {}
        env = {**machine_environment(), **account, **task["env"], **own}
        task["env"] = {**env, "STARBURST_CHECKPOINT_DIR": checkpoints}
        task["cwd"] = task["cwd"] or os.path.join(path, "work")
    spec["limits"] = (APART_LIMITS if apart else LIMITS) if task["docker"] is None else {}
    if apart:
        keep_apart(path, spec, checkpoints, report_dir)
    else:
        if task.get("mounts"):
            raise TaskRefusedError(
                "this machine does not keep jobs apart, so it mounts volumes in containers only; give the "
                "job an image, without starburst.io/runtime: host"
            )
        machine_cgroup.enter(Path(path))
        group = machine_cgroup.group_of(Path(path))
        spec["cgroup"] = None if group is None else str(group)
    spec.setdefault("max_log", MAX_LOG)
    spec["lease"] = os.path.join(base(), "lease.json")
    with private_umask():
        write_json(os.path.join(path, "spec.json"), spec)
    if devices["cpus"]:
        os.sched_setaffinity(0, devices["cpus"])


def in_container(path: str, task: TaskSpec, box: ContainerSpec, known: dict[str, str]) -> None:
    """Make a task's command the life of its container. `known` are values for @NAME@."""
    with private_umask(), open(os.path.join(path, "env"), "w", encoding="utf-8") as file:
        file.write(box["env_file"])
    task["docker"] = cast("ContainerSpec", {**box, "here": {**known, "@DIR@": path}})
    write_json(os.path.join(path, WAITS), {"why": ""})
    task["command"] = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), "contain", path]
    task["env"] = {**machine_environment(), "STARBURST_RUN": run_id(path)}  # the job's: `variables.py`
    task["cwd"] = path


def keep_apart(path: str, spec: dict[str, Any], checkpoints: str, report_dir: str) -> None:
    """Give a task the account of its job with the files of its volumes, and a control group with its limits.

    Raises:
        TaskRefusedError: its checkpoints are in a bucket that its account cannot write, there are no ids, or
            a file cannot be had where it is to be.
    """
    try:
        uid = user_id(path)
    except PoolUsedUpError:
        raise TaskRefusedError("this machine has no user ids left; end it") from None
    owner = os.stat(path)
    own, keep = [os.path.join(path, name) for name in ("work", "home")], [report_dir]
    if os.stat(checkpoints).st_dev == os.stat(base()).st_dev:
        own.append(checkpoints)
    elif why := why_not_written(checkpoints, uid):
        if spec.get("saves", True):
            raise TaskRefusedError(
                f"{checkpoints} cannot be written by the job's own account ({why}): its bucket is mounted "
                "for the machine's user alone; choose one in S3, or unset cloud.bucket"
            )
    else:
        keep.append(checkpoints)
    keep += programs(machine_environment()["PATH"])
    plan = plan_of(uid, own, keep, os.path.join(path, "tmp"))
    spec["seclusion"] = {**plan, "mounts": file_mounts(path, spec.get("mounts", []))}
    with all_rights(path):
        give_files(path, uid)
        os.chown(report_dir, uid, owner.st_gid)
        os.chmod(report_dir, 0o2770)  # so that the machine's user can read what is written there
        limits = spec["cpus"], int(spec.get("memory_mib", 0))
        spec["cgroup"] = machine_cgroup.make(Path(path), owner.st_uid, *limits)
        why = firewall.close()
    if why and not separation()["network"]:
        sys.exit(f"starburst: what listens on this machine could not be closed to the job: {why}")


@contextmanager
def all_rights(path: str) -> Iterator[None]:
    """Act on files as root, and then as the owner of a task's directory again."""
    act_as_oneself()
    try:
        yield
    finally:
        act_as_owner_of(path)


def machine_environment() -> dict[str, str]:
    """Variables that a task has of the machine."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.path.expanduser("~"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
