"""What a machine is to run of a task, as its agent takes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starburst.clouds.sky.access.ports import BUCKET
from starburst.clouds.sky.machines.naming import run_name
from starburst.clouds.sky.runs.docker import container, runs_in_container, variables, what_runs
from starburst.core.model.actions import Slot
from starburst.domain.job import Site
from starburst.runs.files import directory_name
from starburst.runs.ports import Run
from translator.tasks.runtime_values import RuntimeValues, UnresolvedError

#: Set by whoever runs a task, whatever its user sets.
_OURS = ("STARBURST_", "JOB_COMPLETION_INDEX")
#: Of Docker's own client, which hands on the values of Secrets: they would be its settings too.
_CLIENTS = frozenset(
    (
        *("PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT"),
        *("DOCKER_API_VERSION", "DOCKER_CERT_PATH", "DOCKER_TLS", "DOCKER_TLS_VERIFY"),
    )
)


def spec_of(run: Run, slot: Slot, volumes: list[dict[str, Any]], *, bucket: bool) -> dict[str, Any]:
    """The spec of one task; the machine adds what only it knows. `volumes` as of `volumes_of`."""
    job, workload = run.job, run.workload
    where = f"{BUCKET}/checkpoints" if bucket else "~/starburst/checkpoints"
    env = dict(workload.env) | {
        "STARBURST_JOB": job.id,
        "STARBURST_ATTEMPT": str(run.attempt),
        "STARBURST_SITE": Site.CLOUD.value,
        "STARBURST_NODE": slot.where,
        "STARBURST_RANK": str(slot.rank),
        "STARBURST_WORLD_SIZE": str(len(run.slots)),
        **run.indices(slot.rank),
    }
    boxed = None
    if runs_in_container(workload):
        name = run_name(job.id, run.attempt, slot.rank)
        boxed = {**asdict(container(name, workload, slot.resources, env)), "volumes": volumes}
    return {
        "command": list(workload.command),
        "cwd": workload.working_dir,
        "env": env,
        "gpus": slot.resources.gpus,
        "cpus": slot.resources.cpus,
        "checkpoints": f"{where}/{directory_name(job.id)}",
        "docker": boxed,
        "grace_s": job.grace_s,
        "time_limit_s": workload.time_limit_s,
    }


def filled(spec: dict[str, Any], values: RuntimeValues) -> dict[str, Any]:
    """A task's spec with its values in it; those of Secrets under `secrets`.

    Raises:
        UnresolvedError: the container engine cannot hand on a Secret's value under such a name.
    """
    ours = {name: value for name, value in spec["env"].items() if name.startswith(_OURS)}
    env = {**values.plain, **ours}
    secrets = {name: value for name, value in values.secret.items() if name not in ours}
    spec = {**spec, "env": env, "command": list(values.command), "secrets": secrets}
    box = spec["docker"]
    if box is None:
        return spec
    taken = sorted(_CLIENTS & secrets.keys())
    if taken:
        raise UnresolvedError(f"a Secret's value cannot be given as {taken[0]}; choose another name")
    env_file, long = variables(env)
    rest = what_runs(box["image"], spec["cwd"], values.command)
    return {**spec, "docker": {**box, "rest": rest, "env_file": env_file, "env": long}}
