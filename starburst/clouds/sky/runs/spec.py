"""The spec of a task for its machine's agent (`agent/protocol.py`), and late values filled into it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import cast

from starburst.clouds.sky.access.ports import BUCKET
from starburst.clouds.sky.agent.protocol import FileToWrite, TaskSpec, TaskSpecWithSecrets, VolumeMount
from starburst.clouds.sky.machines.naming import run_name
from starburst.clouds.sky.runs.docker import REPORT, container, runs_in_container, variables, what_runs
from starburst.core.model.actions import Slot
from starburst.domain.job import Site
from starburst.runs.files import directory_name
from starburst.runs.peers import PEER_VARIABLES
from starburst.runs.ports import Run
from starburst.runs.supervisor.log_pump import MAX_LOG
from starburst.runs.supervisor.progress_report import HOSTS_NAME, HOSTS_VARIABLE
from translator.tasks.containers.registry_logins import registry_of
from translator.tasks.runtime_values import RuntimeValues, UnresolvedError
from translator.tasks.storage.volume_files import VolumeFile

#: Prefixes of variables that the scheduler sets, whatever the user sets.
_OURS = ("STARBURST_", "JOB_COMPLETION_INDEX")
#: Variables that Docker's client reads as its own settings: it could not pass on a Secret under such a name.
_CLIENTS = frozenset(
    (
        *("PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT"),
        *("DOCKER_API_VERSION", "DOCKER_CERT_PATH", "DOCKER_TLS", "DOCKER_TLS_VERIFY"),
    )
)


def spec_of(
    run: Run,
    slot: Slot,
    volumes: list[VolumeMount],
    *,
    bucket: bool,
    peers: Mapping[str, str],
    max_log: int = MAX_LOG,
) -> TaskSpec:
    """The spec of one task, to be completed on its machine. `bucket`: checkpoints are kept in a bucket.

    `peers`: variables with the other tasks of its gang; those that its user sets win. `max_log`: bytes of its
    log.
    """
    job, workload = run.job, run.workload
    where = f"{BUCKET}/checkpoints" if bucket else "~/starburst/checkpoints"
    env = {**peers, **dict(workload.env)} | {
        "STARBURST_JOB": job.id,
        "STARBURST_ATTEMPT": str(run.attempt),
        "STARBURST_SITE": Site.CLOUD.value,
        "STARBURST_NODE": slot.where,
        "STARBURST_RANK": str(slot.rank),
        "STARBURST_WORLD_SIZE": str(len(run.slots)),
        **run.indices(slot.rank),
    }
    box = None
    if runs_in_container(workload):
        if run.is_gang:
            env[HOSTS_VARIABLE] = f"{REPORT}/{HOSTS_NAME}"
        box = container(run_name(job.id, run.attempt, slot.rank), workload, slot.resources, env)
        box["volumes"] = volumes
    return {
        "command": list(workload.command),
        "cwd": workload.working_dir,
        "env": env,
        "gpus": slot.resources.gpus,
        "cpus": slot.resources.cpus,
        "memory_mib": slot.resources.memory_mib,
        "saves": job.checkpoint,
        "checkpoints": f"{where}/{directory_name(job.id)}",
        "docker": box,
        "grace_s": job.grace_s,
        "time_limit_s": workload.time_limit_s,
        "hosts": [],
        "mounts": [] if box else volumes,
        "max_log": max_log,
    }


def filled(spec: TaskSpec, values: RuntimeValues) -> TaskSpecWithSecrets:
    """A task's spec with late values in it; those of Secrets under `secrets`.

    Raises:
        UnresolvedError: the container engine cannot hand on a Secret's value under such a name.
    """
    ours = {name: value for name, value in spec["env"].items() if name.startswith(_OURS)}
    peers = {name: value for name, value in spec["env"].items() if name in PEER_VARIABLES}
    env = {**peers, **values.plain, **ours}
    env = {name: value for name, value in env.items() if name in ours or name not in values.secret}
    secrets = {name: value for name, value in values.secret.items() if name not in ours}
    files = [_file(file, content) for file, content in values.files]
    changes = {"env": env, "command": list(values.command), "secrets": secrets, "logins": [], "files": files}
    found = cast("TaskSpecWithSecrets", {**spec, **changes})
    box = found["docker"]
    if box is None:
        return found
    taken = sorted(_CLIENTS & secrets.keys())
    if taken:
        raise UnresolvedError(f"a Secret's value cannot be given as {taken[0]}; choose another name")
    env_file, long = variables(env)
    command, args = (values.command, ()) if values.has_program else ((), values.command)
    rest = what_runs(box["image"], spec["cwd"], command, args)
    found["docker"] = {**box, "rest": rest, "env_file": env_file, "env": long}
    registry = registry_of(box["image"])
    found["logins"] = [
        {"registry": registry, "username": user, "password": password} for user, password in values.logins
    ]
    return found


def _file(file: VolumeFile, content: str) -> FileToWrite:
    return {
        "volume": str(file.volume),
        "path": file.path,
        "content": base64.b64encode(content.encode(errors="surrogateescape")).decode(),
        "mode": file.mode,
        "secret": file.secret,
    }
