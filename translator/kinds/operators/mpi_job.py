"""Reads an MPIJob (kubeflow.org/v2beta1, and v1): the launcher's program, in the first worker's place.

mpirun reaches other machines by ssh, which tasks do not have. So an MPIJob of one worker, whose processes
share its machine, is run; one of several is refused.
"""

from __future__ import annotations

from typing import Any

from translator.field import Field, Fields
from translator.kinds.operators.roles import RoleJob, TaskRole
from translator.kinds.operators.run_policy import RUN_POLICY, job_spec
from translator.kinds.read_kind import ReadKind
from translator.manifests.manifest import MAX_TASKS

_TOP = Fields("an MPIJob", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_OWN = ("mpiReplicaSpecs", "runPolicy", "slotsPerWorker")
_SPEC = Fields(
    "an MPIJob spec",
    read=(*RUN_POLICY.read, *_OWN),
    harmless=("launcherCreationPolicy", "runLauncherAsWorker", "sshAuthMountPath", "ttlSecondsAfterFinished"),
    noted={"mpiImplementation": "the image's own mpirun is called"},
)
_SPECS = Fields("the mpiReplicaSpecs", read=("Launcher", "Worker"))
_REPLICAS = Fields("a replica spec", read=("replicas", "restartPolicy", "template"))
_SSH = (
    "mpirun reaches its workers by ssh, which tasks do not have; give one worker all slots (replicas: 1), or "
    "start the program with torchrun in a PyTorchJob"
)


def read_mpi_job(document: Field) -> ReadKind:
    """An MPIJob of one worker as one task; problems and notes go to its report."""
    document.check(_TOP)
    spec = document.at("spec")
    spec.check(_SPEC)
    policy = spec.at("runPolicy") if spec.at("runPolicy").value is not None else spec
    if policy is not spec:
        policy.check(RUN_POLICY)
    specs = spec.at("mpiReplicaSpecs")
    specs.check(_SPECS)
    launcher, worker = specs.at("Launcher"), specs.at("Worker")
    for each in (launcher, worker):
        each.check(_REPLICAS)
    if launcher.at("template").value is None:
        launcher.refuse("is missing; write the launcher, whose program is mpirun")
    workers = worker.at("replicas").whole(0, MAX_TASKS)
    if worker.value is not None and workers is not None and workers > 1:
        worker.at("replicas").refuse(_SSH)
    template = launcher.at("template")
    role = TaskRole(
        "launcher", 1, Field(_placed(template, worker.at("template")), template.path, document.report)
    )
    slots = spec.at("slotsPerWorker").whole(1) or 1
    return RoleJob(document, [role], _lines(slots), job_spec(policy, [launcher.at("restartPolicy")])).read()


def _placed(launcher: Field, worker: Field) -> Any:
    """The launcher's template with the worker's resources: its processes are where the worker would be."""
    template, asked = launcher.value, _container(worker).get("resources")
    if not asked or not _container(launcher):
        return template
    others = launcher.at("spec").at("containers").items()[1:]
    container = {**_container(launcher), "resources": asked}
    beside = [each.value for each in others]
    assert isinstance(template, dict)
    return {**template, "spec": {**template["spec"], "containers": [container, *beside]}}


def _container(template: Field) -> dict[str, Any]:
    found = template.at("spec").at("containers").items()
    return found[0].value if found and isinstance(found[0].value, dict) else {}


def _lines(slots: int) -> str:
    """A hostfile with this machine, where the operator has one, for each implementation of MPI."""
    return (
        'starburst_hostfile="${TMPDIR:-/tmp}/starburst-hostfile"\n'
        f'echo "localhost slots={slots}" >"$starburst_hostfile"\n'
        'export OMPI_MCA_orte_default_hostfile="$starburst_hostfile"\n'
        'export PRTE_MCA_prte_default_hostfile="$starburst_hostfile"\n'
        'export OMPI_MCA_plm_rsh_agent="" OMPI_MCA_orte_keep_fqdn_hostnames=true\n'
        "export K_MPI_JOB_ROLE=launcher\n"
    )
