"""Reads a TrainJob of Kubeflow's trainer (trainer.kubeflow.org/v1alpha1): equal nodes of one trainer.

Its runtime lies in a cluster. What a TrainJob does not say itself, such as the image, is asked for.
"""

from __future__ import annotations

from typing import Any

from translator.field import Field, Fields
from translator.kinds.operators.environment import processes_per_node, pytorch_lines
from translator.kinds.operators.roles import RoleJob, TaskRole
from translator.kinds.read_kind import ReadKind
from translator.manifests.manifest import MAX_TASKS

_TOP = Fields("a TrainJob", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_OVERRIDES = "overrides of a runtime are not applied; write it as a batch/v1 Job with parallelism"
_SPEC = Fields(
    "a TrainJob spec",
    read=("activeDeadlineSeconds", "annotations", "labels", "runtimeRef", "suspend", "trainer"),
    noted={"managedBy": "Starburst runs it"},
    refused={
        "initializer": "data and model are not fetched first; fetch them in the trainer's command",
        "podSpecOverrides": _OVERRIDES,
        "podTemplateOverrides": _OVERRIDES,
        "runtimePatches": _OVERRIDES,
    },
)
_TRAINER = Fields(
    "a trainer", read=("args", "command", "env", "image", "numNodes", "numProcPerNode", "resourcesPerNode")
)


def read_train_job(document: Field) -> ReadKind:
    """A TrainJob as a gang of its nodes; problems and notes go to its report."""
    document.check(_TOP)
    spec = document.at("spec")
    spec.check(_SPEC)
    trainer, runtime = spec.at("trainer"), spec.at("runtimeRef").at("name").value
    trainer.check(_TRAINER)
    whence = f"the runtime {runtime} is in a cluster, and is not read"
    for key in ("image", "command"):
        if not trainer.at(key).value:
            trainer.at(key).refuse(f"is missing; {whence}: write it out")
    spec.at("runtimeRef").note(f"{whence}; the trainer has the variables of torchrun (PET_…)")
    nodes = trainer.at("numNodes").whole(1, MAX_TASKS) or 1
    processes = processes_per_node(trainer.at("numProcPerNode"))
    role = TaskRole("node", nodes, Field(_template(spec, trainer), trainer.path, document.report))
    job: dict[str, Any] = {"backoffLimit": 0, **({"suspend": True} if spec.at("suspend").flag() else {})}
    if (limit_s := spec.at("activeDeadlineSeconds").whole(1)) is not None:
        job["activeDeadlineSeconds"] = limit_s
    found = RoleJob(document, [role], pytorch_lines(nodes, processes, {}), job, scales=True).read()
    return ReadKind(found.manifest, {"spec.template.spec.containers[0]": "spec.trainer"})


def _template(spec: Field, trainer: Field) -> dict[str, Any]:
    """The pod template of each node."""
    fields = {
        "image": "image",
        "command": "command",
        "args": "args",
        "env": "env",
        "resourcesPerNode": "resources",
    }
    given = {ours: trainer.at(theirs).value for theirs, ours in fields.items()}
    container = {"name": "trainer", **{key: value for key, value in given.items() if value is not None}}
    metadata = {key: spec.at(key).value for key in ("annotations", "labels") if spec.at(key).value}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}}
