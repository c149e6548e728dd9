"""Reads a SkyPilot task as a job: `setup`, then `run`, on each of its nodes, with the files it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from translator.field import Field, Fields
from translator.intake.kinds import TASK_KEYS
from translator.kinds.command_job import CommandJob, job_name
from translator.kinds.gangs.addresses import ALL_ADDRESSES
from translator.kinds.local_files import LocalFiles, WantedPath
from translator.kinds.overrides import Overrides
from translator.kinds.prelude import MOUNTS, WORK, Prelude
from translator.kinds.sky.resources import read_resources
from translator.manifests.arrays import read_span

#: Files whose patterns SkyPilot applies to a workdir: the first that is there.
IGNORE_FILES = (".skyignore", ".gitignore", ".starburstignore")
MAX_NODES = 1000

TASK = Fields(
    "a SkyPilot task",
    read=("name", "workdir", "num_nodes", "resources", "file_mounts", "setup", "run", "envs", "secrets"),
    harmless=("_metadata", "experimental"),
    noted={
        "config": "SkyPilot's own config is that of Starburst's cloud",
        "event_callback": "callbacks are not run; starburst events -f tells what happens",
        "inputs": "estimates of data are not used",
        "outputs": "estimates of data are not used",
    },
    refused={
        "api_server": "is of SkyPilot's own config; remove it",
        "file_mounts_mapping": "is written by SkyPilot alone; remove it",
        "pool": "pools are SkyPilot's; start it with sky jobs pool",
        "service": "Starburst runs jobs that end; start services with sky serve",
        "volume_mounts": "volumes of SkyPilot are not mounted; write a Job with volumes",
        "volumes": "volumes of SkyPilot are not mounted; write a Job with volumes",
    },
)
_BUCKETS = (
    "s3://",
    "gs://",
    "r2://",
    "cos://",
    "oci://",
    "nebius://",
    "azblob://",
    "https://",
    "coreweave://",
)
#: A variable in the path of a file (sky/task.py of 0.14.1, _fill_in_env_vars).
_REFERENCE = re.compile(r"\$\{?\b([a-zA-Z_][a-zA-Z0-9_]*)\b\}?")
_RUN = 'bash -c "$1" setup || exit; shift; exec bash -c "$1" run'
#: Variables that SkyPilot gives; the addresses of other nodes come from the job's gang.
_ENVIRONMENT = """\
export SKYPILOT_NODE_RANK="${STARBURST_RANK:-0}" SKYPILOT_NUM_NODES="${STARBURST_WORLD_SIZE:-1}"
export SKYPILOT_NODE_IPS="${SKYPILOT_NODE_IPS:-127.0.0.1}" SKYPILOT_TASK_ID="$STARBURST_JOB"
"""


def is_task(document: Field) -> bool:
    """Whether a document is a SkyPilot task: it has keys of one, and neither kind nor apiVersion."""
    value = document.value
    has_kind = isinstance(value, dict) and (value.get("kind") is not None or value.get("apiVersion"))
    if not isinstance(value, dict) or has_kind:
        return False
    found = TASK_KEYS & value.keys()
    # A list of resources alone is that of a kustomization.
    return bool(found - {"resources"} if isinstance(value.get("resources"), list) else found)


def read_task(task: Field, local: LocalFiles, overrides: Overrides) -> CommandJob:
    """The job of a task; problems and notes go to its report."""
    task.check(TASK)
    resources = read_resources(task.at("resources"))
    setup, run = task.at("setup").text(), task.at("run").text()
    if task.at("run").value in (None, ""):
        task.at("run").refuse("is missing; write the commands of the task")
    if overrides.array:
        read_span(Field(overrides.array, "--array", task.report))
    nodes = task.at("num_nodes").whole(1, MAX_NODES) or 1
    job = overrides.applied(
        CommandJob(
            name=job_name(task.at("name").text() or "", _stem(task.report.source)),
            command=("/bin/bash", "-c", _RUN, "run", setup, run or "")
            if setup
            else ("/bin/bash", "-c", run or "true", "run"),
            env=_variables(task, local, overrides),
            image=resources.image,
            gpus=resources.gpus.count,
            gpu_type=resources.gpus.type,
            cpus=resources.cpus,
            memory=resources.memory,
            tasks=nodes,
            hints=resources.machine_hints | ({"array": overrides.array} if overrides.array else {}),
        )
    )
    per_node = f'export SKYPILOT_NUM_GPUS_PER_NODE="{job.gpus}"\n'
    addresses = ALL_ADDRESSES if job.tasks > 1 else ""
    named = _filled_in(task, job.env)
    prelude = _with_files(Prelude(lines=addresses + _ENVIRONMENT + per_node), named, local)
    return replace(job, command=prelude.wrap(job.command), env={**job.env, **prelude.env})


def without_files(task: Field) -> Field:
    """A task without the files of the machine that submits it, with a note on each."""
    mounts = task.at("file_mounts")
    paths = mounts.entries() if isinstance(mounts.value, dict) else {}
    local = [
        field
        for field in (task.at("workdir"), *paths.values())
        if isinstance(field.value, str) and not field.value.startswith(_BUCKETS)
    ]
    for field in local:
        field.note("stays where it is; starburst submit takes it along")
    if not local or not isinstance(task.value, dict):
        return task
    here = {field.path for field in local}
    rest = {place: each.value for place, each in paths.items() if each.path not in here}
    value = {key: each for key, each in task.value.items() if task.at(key).path not in here}
    return replace(task, value={**value, "file_mounts": rest} if paths else value)


def _stem(file: str) -> str:
    return job_name(file.rpartition("/")[2].rpartition(".")[0], "sky-task")


def _variables(task: Field, local: LocalFiles, overrides: Overrides) -> dict[str, str]:
    """`envs` and `secrets`; those without a value are given on the command line, as sky launch has it."""
    found: dict[str, str] = {}
    for section in ("envs", "secrets"):
        for name, value in task.at(section).entries().items():
            if isinstance(value.value, (dict, list)):
                value.refuse("must be text", show=False)
            elif value.value is not None:
                found[name] = str(value.value)  # True is "True", as SkyPilot has it
            elif name not in overrides.env:
                value.refuse(f"has no value; give it with --env {name}, from your own, or --env {name}=VALUE")
    secrets = task.at("secrets")
    if secrets.value:
        secrets.note("are variables of the job, which its store and its pods keep in clear")
    return found


def _filled_in(task: Field, env: Mapping[str, str]) -> Field:
    """The task with the values of its variables in the paths of `workdir` and `file_mounts`."""

    def fill(path: object) -> object:
        known = isinstance(path, str)
        return _REFERENCE.sub(lambda found: env.get(found[1], found[0]), str(path)) if known else path

    value = task.value if isinstance(task.value, dict) else {}
    changed = {"workdir": fill(value.get("workdir"))}
    mounts = value.get("file_mounts")
    if isinstance(mounts, dict):
        changed["file_mounts"] = {fill(place): fill(path) for place, path in mounts.items()}
    return replace(task, value={**value, **changed})


def _with_files(prelude: Prelude, task: Field, local: LocalFiles) -> Prelude:
    """The prelude with the task's `workdir` and `file_mounts`."""
    wanted: list[WantedPath] = []
    places: list[str] = []
    workdir = task.at("workdir")
    if isinstance(workdir.value, dict):
        workdir.refuse("repositories are not fetched; clone it in setup", show=False)
    elif workdir.text() and _is_here(workdir, local):
        wanted.append(WantedPath(str(workdir.value), WORK, IGNORE_FILES))
    for place, source in task.at("file_mounts").entries().items():
        path = source.value
        if isinstance(path, dict) or (isinstance(path, str) and path.startswith(_BUCKETS)):
            mend = "buckets are not mounted; read it in run, or write a Job with a volume"
            source.refuse(f"{mend} that cloud.volumes maps", show=False)
        elif source.text() and _is_here(source, local):
            wanted.append(WantedPath(str(path), f"{MOUNTS}/{len(places)}", IGNORE_FILES))
            places.append(place)
    if not wanted or task.report.errors:
        return prelude
    has_work = wanted[0].target == WORK
    return replace(prelude, archive=local.packed(wanted), has_work=has_work, mounts=tuple(places))


def _is_here(path: Field, local: LocalFiles) -> bool:
    """Whether there are files to take along; a server has none of its users'."""
    if local.reads:
        return True
    path.refuse("is a path of the machine that submits; submit it there with starburst submit")
    return False
