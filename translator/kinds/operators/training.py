"""Reads PyTorchJob, TFJob and XGBoostJob of Kubeflow's training operator (kubeflow.org/v1).

Source: the training operator's documentation and API of version 1.8; `spec` may hold the fields of
`runPolicy` itself, as before version 1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from translator.field import Field, Fields
from translator.kinds.operators.environment import (
    name_lines,
    processes_per_node,
    pytorch_lines,
    tf_cluster_lines,
    tf_task_lines,
    xgboost_lines,
)
from translator.kinds.operators.roles import RoleJob, TaskRole, marked
from translator.kinds.operators.run_policy import RUN_POLICY, job_spec
from translator.kinds.operators.words import HostNames, fill_in, with_words
from translator.kinds.read_kind import ReadKind
from translator.manifests.manifest import MAX_TASKS

_TOP = Fields("a training job", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_REPLICA_SPEC = Fields(
    "a replica spec", read=("replicas", "restartPolicy", "template"), harmless=("templateSpec",)
)
_ELASTIC = Fields(
    "an elastic policy",
    read=(
        *("maxReplicas", "maxRestarts", "minReplicas", "nProcPerNode", "rdzvBackend", "rdzvConf", "rdzvHost"),
        *("rdzvId", "rdzvPort", "standalone"),
    ),
    noted={"metrics": "tasks are not added or removed while it runs"},
)


@dataclass(frozen=True, slots=True)
class TrainingKind:
    """What one of the kinds calls its roles, in the order of ranks."""

    replica_specs: str
    roles: tuple[str, ...]
    #: Lines of sh for all tasks, from the spec and the replicas of each role by name.
    lines: Callable[[Field, Sequence[TaskRole]], str]
    #: Fields of its spec besides those of the run policy.
    fields: tuple[str, ...] = ()
    #: Variables without which its programs run too.
    optional: str = ""


def _pytorch(spec: Field, roles: Sequence[TaskRole]) -> str:
    size = sum(role.replicas for role in roles)
    elastic = spec.at("elasticPolicy")
    elastic.check(_ELASTIC)
    processes = processes_per_node(spec.at("nprocPerNode"), elastic.at("nProcPerNode"))
    return pytorch_lines(size, processes, _rendezvous(elastic, size))


def _rendezvous(elastic: Field, size: int) -> dict[str, str]:
    """The variables of torchrun's elastic launch; {} without an elastic policy."""
    if elastic.value is None:
        return {}
    least = elastic.at("minReplicas").whole(1) or size
    most = elastic.at("maxReplicas").whole(1) or size
    if least != most:
        fewer = f"; after a lost node on the cluster with {least} at least" if least < size else ""
        elastic.note(f"it runs with {size} tasks, and none is added or removed while it runs{fewer}")
    found = {}
    found["PET_RDZV_BACKEND"] = elastic.at("rdzvBackend").text() or "c10d"
    found["PET_RDZV_ID"] = elastic.at("rdzvId").text() or "starburst"
    restarts = elastic.at("maxRestarts").whole(0)
    if restarts is not None:
        found["PET_MAX_RESTARTS"] = str(restarts)
    if elastic.at("standalone").flag():
        found["PET_STANDALONE"] = ""
    pairs = [(each.at("key").text(), each.at("value").text()) for each in elastic.at("rdzvConf").items()]
    if pairs:
        found["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in pairs)
    return found | _endpoint(elastic, found["PET_RDZV_BACKEND"])


def _endpoint(elastic: Field, backend: str) -> dict[str, str]:
    """Where tasks meet if it is a service that the policy names; else it is the first task."""
    host, port = elastic.at("rdzvHost"), elastic.at("rdzvPort").whole(1)
    if backend in ("c10d", "static"):
        return {}
    if not host.text():
        host.refuse(f"is missing; write where the service of {backend} is, or use the backend c10d")
        return {}
    host.note(f"must be reached from where the job runs; {backend} is not started, and the cloud has none")
    return {"PET_RDZV_ENDPOINT": f"{host.value}:{port}" if port else str(host.value)}


def _tensorflow(_spec: Field, roles: Sequence[TaskRole]) -> str:
    """TF_CONFIG for several tasks; a single one trains by itself."""
    replicas = {role.name.lower(): role.replicas for role in roles}
    return tf_cluster_lines(replicas) if sum(replicas.values()) > 1 else ""


KINDS = {
    "PyTorchJob": TrainingKind(
        "pytorchReplicaSpecs",
        ("Master", "Worker"),
        _pytorch,
        ("elasticPolicy", "nprocPerNode"),
        "PET_… and PYTHONUNBUFFERED",
    ),
    "TFJob": TrainingKind(
        "tfReplicaSpecs",
        ("Chief", "Master", "Worker", "PS", "Evaluator"),
        _tensorflow,
        ("enableDynamicWorker", "successPolicy"),
    ),
    "XGBoostJob": TrainingKind(
        "xgbReplicaSpecs",
        ("Master", "Worker"),
        lambda _spec, roles: xgboost_lines(sum(role.replicas for role in roles)),
    ),
}


def read_training_job(document: Field) -> ReadKind:
    """A training job as a gang; problems and notes go to its report."""
    document.check(_TOP)
    kind, spec = KINDS[str(document.at("kind").value)], document.at("spec")
    own = [kind.replica_specs, "runPolicy", *kind.fields]
    spec.check(
        replace(RUN_POLICY, owner=f"a {document.at('kind').value} spec", read=[*RUN_POLICY.read, *own])
    )
    policy = spec.at("runPolicy")
    policy.check(RUN_POLICY)
    if policy.value is None:
        policy = spec
    replicas = spec.at(kind.replica_specs)
    replicas.check(Fields(f"the {kind.replica_specs}", read=kind.roles))
    if not replicas.entries():
        replicas.refuse(f"is missing; write {' or '.join(kind.roles)}, with replicas and a template")
    found = [_role(replicas.at(name), name) for name in kind.roles if replicas.at(name).value is not None]
    if kind.replica_specs == "tfReplicaSpecs" and sum(role.replicas for role in found) > 1:
        found = [replace(role, lines=tf_task_lines(role.name.lower())) for role in found]
    roles = _deciding(document, found, cleans=policy.at("cleanPodPolicy").choice(("All", "None", "Running")))
    restarts = [replicas.at(role.name).at("restartPolicy") for role in roles]
    name = str(document.at("metadata").at("name").value or "")
    names = HostNames(name, roles)
    roles = [replace(role, template=_filled_in(role, name, names)) for role in roles]
    size = sum(role.replicas for role in roles)
    job = RoleJob(
        document,
        roles,
        kind.lines(spec, roles) + name_lines(names.used, size),
        job_spec(policy, restarts),
        kind.optional,
        scales=document.at("kind").value == "PyTorchJob",
        least_tasks=spec.at("elasticPolicy").at("minReplicas").whole(1) or 0,
    )
    return job.read()


def _role(spec: Field, name: str) -> TaskRole:
    spec.check(_REPLICA_SPEC)
    replicas = spec.at("replicas").whole(0, 1 if name in ("Master", "Chief") else MAX_TASKS)
    template = spec.at("template")
    if template.value is None:
        template.refuse("is missing; write the pod template of its tasks")
    return TaskRole(name, 1 if replicas is None else replicas, template)


def _filled_in(role: TaskRole, job: str, names: HostNames) -> Field:
    """The template of a role with addresses for names, and what the operator writes on its pods."""
    written = {
        "job-name": job,
        "replica-index": marked("$starburst_index"),
        "replica-type": role.name.lower(),
    }
    values = {f"training.kubeflow.org/{key}": value for key, value in written.items()}
    return with_words(role.template, names.addressed, partial(fill_in, values=values))


def _deciding(document: Field, roles: Sequence[TaskRole], cleans: str | None) -> list[TaskRole]:
    """The roles, with those tasks marked whose success is that of the job.

    A TFJob ends with its chief, or else with its first worker, or with all of them; the others are stopped
    then. The other kinds end with their master, and stop the others if pods are to be cleaned up.
    """
    names = {role.name for role in roles if role.replicas}
    if document.at("kind").value == "TFJob":
        chief = names & {"Chief", "Master"}
        whole = document.at("spec").at("successPolicy").choice(("", "AllWorkers")) == "AllWorkers"
        deciding = dict.fromkeys(chief, 1) if chief and not whole else {"Worker": MAX_TASKS if whole else 1}
    else:
        deciding = {"Master": 1} if cleans in ("All", "Running") else {}
    return [replace(role, deciding=min(role.replicas, deciding.get(role.name, 0))) for role in roles]
