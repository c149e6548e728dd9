"""Translates a Kubernetes Job or Pod to a SkyPilot task (schema of 0.14), with a fidelity report."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from starburst.domain.job import CloudChoice, Job
from translator.carried import CloudStorage
from translator.fidelity import Fidelity, Translation
from translator.field import ONLY_THE_CLUSTER, Field, ManifestReport
from translator.intake.kinds import has_kind
from translator.manifests.hints import PREFIX, JobHints, read_hints
from translator.manifests.manifest import submission
from translator.manifests.references import UNASKED, Lookup, Resolve
from translator.tasks.containers.pull import read_pull_secrets
from translator.tasks.downward import FIRST_ADDRESS, NODE_RANK, NODES, Downward
from translator.tasks.environment import RANK, Environment, read_environment
from translator.tasks.execution import (
    read_command,
    read_grace_s,
    read_limit_s,
    read_retries,
    read_working_dir,
)
from translator.tasks.machine import read_machine
from translator.tasks.manifest_parts import ManifestParts, split_manifest
from translator.tasks.shell import NodeScript, ShellExpression, ShellWord, is_changed, script
from translator.tasks.storage.volumes import Mounting
from translator.tasks.untranslated import report_untranslated

_NO_STORES: Mapping[str, CloudStorage] = {}
#: Rank variables. Kubernetes sets an index for Indexed Jobs only, Starburst a rank for every gang.
_RANKS: Mapping[str, ShellWord] = {
    RANK: (NODE_RANK,),
    "STARBURST_RANK": (NODE_RANK,),
    "STARBURST_WORLD_SIZE": (NODES,),
}
#: What Starburst gives the tasks of a gang, and SkyPilot by itself does not.
_PEERS: Mapping[str, ShellWord] = {
    "MASTER_ADDR": (FIRST_ADDRESS,),
    "MASTER_PORT": ("29500",),  # PyTorch's default
    "WORLD_SIZE": (NODES,),
    "RANK": (NODE_RANK,),
    "LOCAL_RANK": ("0",),
    "NNODES": (NODES,),
    "NODE_RANK": (NODE_RANK,),
}
#: Images without bash or apt, by the last part of their names or by their tags.
_NOT_DEBIAN = re.compile(
    r"(^|/)(busybox|alpine|pause|agnhost|scratch|static-debian\d*|base-debian\d*)(:|@|$)|:.*(alpine|busybox)|distroless/"
)
#: SkyPilot refuses names with three separators in a row (0.14.1, sky/task.py).
_SEPARATORS = re.compile(r"([._-]{2})[._-]+")


def to_skypilot(
    manifest: Mapping[str, Any],
    *,
    volumes: Mapping[str, CloudStorage] = _NO_STORES,
    resolve: Resolve | None = None,
    namespace: str = "default",
    unasked: str = UNASKED,
) -> Translation:
    """A batch/v1 Job or v1 Pod as a SkyPilot task.

    `volumes` is the result of `read_stores` for the config's cloud.volumes. `resolve` looks up ConfigMaps and
    Secrets, in `namespace` if the manifest names none; without `resolve`, references to them are refused with
    `unasked` as the reason. Values of Secrets occur in the task's `secrets` only.
    """
    fidelity = Fidelity()
    parts = split_manifest(manifest)
    job = _job(parts, fidelity)
    task: dict[str, Any] = {}
    if job is not None:
        lookup = Lookup(resolve, parts.metadata.at("namespace").text() or namespace, fidelity, unasked)
        task = _task(parts, job, volumes, lookup)
    fidelity.errors(parts.root.report.errors)
    return Translation(task, fidelity.in_order_of(parts.root))


def _job(parts: ManifestParts, fidelity: Fidelity) -> Job | None:
    """The job as read for the cluster, with cloud: never; None if the manifest is invalid even there."""
    staying: Any = copy.deepcopy(parts.root.value)
    metadata = staying.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations") or {}, dict):
        never = {f"{PREFIX}cloud": CloudChoice.NEVER.value}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **never}
    report = ManifestReport("", 0, native=True)
    manifest = Field(staying, "", report)
    found = submission(manifest, lambda: "", "") if has_kind(manifest) else None
    if found is not None and found.job.array is not None and not report.errors:
        by_hint = manifest.at("metadata").at("annotations").at(f"{PREFIX}array")
        where = by_hint if by_hint.value is not None else manifest.at("spec").at("completions")
        where.refuse(f"a task is one job; starburst submit makes {found.job.array.size} of it")
    fidelity.errors(report.errors)
    return None if found is None or report.errors else found.job


def _task(
    parts: ManifestParts, job: Job, volumes: Mapping[str, CloudStorage], lookup: Lookup
) -> dict[str, Any]:
    fidelity = lookup.fidelity
    hints = read_hints(parts.metadata)
    report_untranslated(parts, hints, fidelity)
    environment = _environment(parts, job, lookup)
    storage = Mounting(volumes, lookup, fidelity).read(parts.spec, parts.container)
    resources = read_machine(parts, job.tasks[0], hints.machine, fidelity)
    resources |= read_retries(parts, fidelity) | _image(parts.container, hints, fidelity)
    run = NodeScript(
        command=read_command(parts.container, environment, fidelity),
        exports=(*_of_gang(environment), *environment.exports),
        beside=environment.beside,
        directories=tuple(storage.directories),
        files=tuple(storage.files),
        forgotten=tuple(storage.secrets),
        working_dir=read_working_dir(parts.container, fidelity),
        limit_s=read_limit_s(parts, fidelity),
        grace_s=read_grace_s(parts, fidelity),
    )
    secrets = environment.secrets | storage.secrets | read_pull_secrets(parts.spec, parts.container, lookup)
    for name in [name for name, value in secrets.items() if value and is_changed(value)]:
        fidelity.refused(
            parts.container, f"the secret {name} has a line that begins with ^, which SkyPilot changes"
        )
    task = {
        "name": _name(parts.metadata, job.name, fidelity),
        "num_nodes": _nodes(parts, len(job.tasks), fidelity),
        "resources": resources,
        "envs": environment.envs,
        "secrets": secrets,
        "file_mounts": storage.file_mounts,
        "volumes": storage.volumes,
        "run": script(run) if run.command else "",
    }
    return {key: value for key, value in task.items() if value}


def _environment(parts: ManifestParts, job: Job, lookup: Lookup) -> Environment:
    downward = Downward(
        name=job.name,
        names_pods=parts.names_pods,
        namespace=lookup.namespace,
        metadata=parts.template.at("metadata"),
        spec=parts.spec,
        container=parts.container,
        indexed=parts.indexed,
    )
    names = [*_RANKS] if parts.indexed or len(job.tasks) > 1 else []
    names += _PEERS if len(job.tasks) > 1 else ()
    runtime: dict[str, ShellWord] = {name: (ShellExpression(f"${{{name}}}"),) for name in names}
    return read_environment(parts.container, downward, lookup, runtime)


def _of_gang(environment: Environment) -> tuple[tuple[str, ShellWord], ...]:
    """The exports of rank and size of a gang, except variables that the manifest sets."""
    return tuple(
        (name, word)
        for name, word in {**_RANKS, **_PEERS}.items()
        if name in environment.values and name not in environment.names
    )


def _name(metadata: Field, name: str, fidelity: Fidelity) -> str:
    taken = _SEPARATORS.sub(r"\1", name)
    generated = metadata.at("name").value is None
    field = metadata.at("generateName" if generated else "name")
    if taken == name and not generated:
        fidelity.kept(field, "as name")
    else:
        fidelity.approximated(field, f"as name: {taken}")
    return taken


def _nodes(parts: ManifestParts, tasks: int, fidelity: Fidelity) -> int | None:
    completions = parts.job.at("completions").value
    in_turn = isinstance(completions, int) and completions > tasks
    for key in ("parallelism", "completions"):
        if parts.job.at(key).value is None:
            continue
        if in_turn:
            fidelity.refused(parts.job.at(key), f"a task runs all at once; {ONLY_THE_CLUSTER}")
        elif tasks > 1:  # sky/backends/task_codegen.py of 0.14.1: get_or_fail
            told = f"as num_nodes: {tasks}, a machine each; if one fails, SkyPilot ends them all"
            fidelity.approximated(parts.job.at(key), told)
        else:
            fidelity.kept(parts.job.at(key), "as one node")
    if parts.job.at("completionMode").value is not None:
        how = f"{RANK} is the rank of the node" if parts.indexed else "no task is told its number by it"
        fidelity.kept(parts.job.at("completionMode"), how)
    return tasks if tasks > 1 else None


def _image(container: Field, hints: JobHints, fidelity: Fidelity) -> dict[str, str]:
    image = container.at("image")
    name = image.text()
    if not name:
        fidelity.approximated(image, "is missing; the command runs on the machine itself")
        return {}
    if hints.machine.runtime == "host":
        fidelity.dropped(image, f"the command runs on the machine itself, by {PREFIX}runtime: host")
        return {}
    if _NOT_DEBIAN.search(name):
        mend = f"set {PREFIX}runtime: host, or name another"
        fidelity.refused(
            image, f"SkyPilot needs an image of Debian's kind, with bash, and this is none; {mend}"
        )
    else:
        fidelity.kept(image, "as image_id; SkyPilot needs one of Debian's kind, with bash")
    return {"image_id": f"docker:{name}"}
