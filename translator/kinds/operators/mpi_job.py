"""Reads an MPIJob (kubeflow.org/v2beta1, and v1): the launcher's program, in the first worker's place.

mpirun of Open MPI reaches the other workers by a program of ours in place of ssh, which tasks do not have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from translator.field import Field, Fields
from translator.kinds.gangs import carried
from translator.kinds.gangs.carried import LAUNCHER, secret, with_launcher
from translator.kinds.operators.roles import RoleJob, TaskRole, marked, own_text, quoted
from translator.kinds.operators.run_policy import RUN_POLICY, job_spec
from translator.kinds.operators.words import with_words
from translator.kinds.prelude import Prelude
from translator.kinds.read_kind import ReadKind
from translator.manifests.hints import refuse_hints
from translator.manifests.manifest import MAX_TASKS

RSH = "starburst-rsh"
_TOP = Fields("an MPIJob", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_OWN = ("mpiImplementation", "mpiReplicaSpecs", "runLauncherAsWorker", "runPolicy", "slotsPerWorker")
_SPEC = Fields(
    "an MPIJob spec",
    read=(*RUN_POLICY.read, *_OWN),
    harmless=("launcherCreationPolicy", "sshAuthMountPath", "ttlSecondsAfterFinished"),
)
_SPECS = Fields("the mpiReplicaSpecs", read=("Launcher", "Worker"))
_REPLICAS = Fields("a replica spec", read=("replicas", "restartPolicy", "template"))
_SSH = (
    "reaches several workers by ssh, which tasks do not have, where OpenMPI takes a program of ours instead; "
    "give one worker all slots (replicas: 1), or use OpenMPI"
)
_WHERE = "the launcher runs in the pod of the first worker"
#: Of the launcher's program, and what else of its pod and container is looked at elsewhere or has no effect.
_PROGRAM = ("args", "command", "workingDir")
_OF_POD = ("containers", "restartPolicy")
_OF_CONTAINER = (*_PROGRAM, "env", "image", "imagePullPolicy", "name", "stdin", "tty")
#: Words of sh before the launcher's program, which is given as arguments.
_SEVERAL = """\
starburst_hostfile="$STARBURST_PROGRAMS/hostfile"
task=0
while [ "$task" -lt "$STARBURST_WORLD_SIZE" ]; do
  echo "starburst-task-$task slots={slots}"
  task=$((task + 1))
done >"$starburst_hostfile"
export OMPI_MCA_orte_default_hostfile="$starburst_hostfile"
export PRTE_MCA_prte_default_hostfile="$starburst_hostfile"
export OMPI_MCA_plm_rsh_agent=starburst-rsh PRTE_MCA_plm_ssh_agent=starburst-rsh
export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1
export OMPI_MCA_orte_keep_fqdn_hostnames=true K_MPI_JOB_ROLE=launcher
"""
#: Where the operator has the hostfile.
_HOSTFILE = "/etc/mpi/hostfile"
#: A command that starts others by ssh itself, at the begin of a line of a shell.
_BY_SSH = re.compile(r"(?:^|[;&|]\s*)(horovodrun|deepspeed|pdsh|ssh)(?:\s|$)", re.MULTILINE)


def read_mpi_job(document: Field) -> ReadKind:
    """An MPIJob as a gang of its workers; problems and notes go to its report."""
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
        refuse_hints(each.at("template").at("metadata"))
    if launcher.at("template").value is None:
        launcher.refuse("is missing; write the launcher, whose program is mpirun")
    launcher.at("replicas").whole(1, 1)
    workers = worker.at("replicas").whole(0, MAX_TASKS)
    workers = 1 if workers is None else workers
    if spec.at("runLauncherAsWorker").flag() and workers:
        spec.at("runLauncherAsWorker").note("the launcher is one more task, with the pod of a worker")
        workers += 1
    slots = spec.at("slotsPerWorker").whole(1) or 1
    job = job_spec(policy, [launcher.at("restartPolicy")])
    if workers > 1 and spec.at("mpiImplementation").value not in (None, "OpenMPI"):
        spec.at("mpiImplementation").refuse(_SSH)
    template, with_worker = (
        launcher.at("template"),
        bool(_container(worker.at("template")).entries() and workers),
    )
    if with_worker:
        template = _in_first_worker(template, worker.at("template"))
    name = str(document.at("metadata").at("name").value or "")
    first = 1 if spec.at("runLauncherAsWorker").value is True else 0
    names = _LauncherNames(name, first) if workers > 1 and with_worker else _LauncherNames("", 0)
    template = with_words(template, names.changed)
    if workers > 1 and with_worker:
        template = _on_all_workers(template, slots)
        return RoleJob(document, [TaskRole("worker", workers, template)], spec=job).read()
    return RoleJob(document, [TaskRole("launcher", 1, template)], _lines(slots), job).read()


def _in_first_worker(launcher: Field, worker: Field) -> Field:
    """The worker's template with the launcher's program; what is lost of either is noted or refused."""
    ours, theirs = _container(worker), _container(launcher)
    if theirs.at("image").value != ours.at("image").value:
        theirs.at("image").refuse(f"differs from that of the workers: {_WHERE}; make them equal")
    if not theirs.at("command").value:
        theirs.at("command").refuse("is missing; write out the program of the image, such as mpirun")
    for each in (ours.at("command"), ours.at("args")):
        if each.value:
            each.note("is not run: mpirun starts its program on the workers")
    specs = launcher.at("spec").entries(), worker.at("spec").entries()
    for mine, other, apart in ((*specs, _OF_POD), (theirs.entries(), ours.entries(), _OF_CONTAINER)):
        for key, each in mine.items():
            if key not in apart and each.value and (key not in other or each.value != other[key].value):
                each.note(f"is not used: {_WHERE}")
    for each in launcher.at("spec").at("containers").items()[1:]:
        each.note(f"is not used: {_WHERE}")
    named = [each.at("name").value for each in theirs.at("env").items()]
    env = [each.value for each in ours.at("env").items() if each.at("name").value not in named]
    own = {key: each.value for key, each in ours.entries().items() if key not in ("args", "command", "env")}
    given = {key: each.value for key in _PROGRAM if (each := theirs.at(key)).value is not None}
    container = {**own, **given, "env": [*env, *(each.value for each in theirs.at("env").items())]}
    return _with_container(worker, container)


@dataclass(frozen=True, slots=True)
class _LauncherNames:
    """What the operator gives the hostfile and the workers for names, in the words of the launcher."""

    job: str
    #: The task that is the first worker.
    first: int

    def changed(self, word: str) -> str:
        """A word with our names in place of them."""
        word = word.replace(_HOSTFILE, marked("$starburst_hostfile"))
        if not self.job:
            return word
        begin = rf"(?<![\w.-])(?:(?<=//)|(?<!/)){re.escape(self.job)}-worker-"
        name = rf"{begin}([0-9]{{1,9}})(?:\.[a-z0-9.-]+)?(?![\w-])"
        return re.sub(name, lambda found: f"starburst-task-{int(found[1]) + self.first}", word)


def _on_all_workers(template: Field, slots: int) -> Field:
    """The template whose tasks meet, and whose program runs in the first of them with a hostfile of all."""
    container = _container(template)
    given = [each for key in ("command", "args") for each in container.at(key).items()]
    program = [each.text() or "" for each in given]
    for number, word in enumerate(program):
        found = _BY_SSH.search(word) if not number or " " in word else None
        if found is not None:
            mend = "reaches the workers by ssh, which tasks do not have; start the program by mpirun"
            given[number].refuse(f"{found[1]} {mend}", show=False)
    prelude = with_launcher(Prelude(programs={RSH: _rsh()}))
    shell, option, script, *_ = prelude.wrap((LAUNCHER,))
    own, env = own_text(_SEVERAL.format(slots=slots)), list[Any]()
    for entry in (each.value for each in container.at("env").items()):
        if isinstance(entry, dict) and "\0" in str(entry.get("value")):
            own += f"export {entry.get('name')}={quoted(str(entry['value']))}\n"
        else:
            env.append(entry)
    own += f"exec {' '.join(map(quoted, program))}\n"
    words = [shell, option, own_text(script), "starburst", LAUNCHER, "/bin/sh", "-c", own, "mpi"]
    env += [{"name": name, "value": value} for name, value in secret().items()]
    kept = {key: each.value for key, each in container.entries().items() if key != "args"}
    return _with_container(template, {**kept, "command": words, "env": env})


def _with_container(template: Field, container: dict[str, Any]) -> Field:
    spec = {key: each.value for key, each in template.at("spec").entries().items()}
    spec["containers"] = [
        container,
        *(each.value for each in template.at("spec").at("containers").items()[1:]),
    ]
    whole = {key: each.value for key, each in template.entries().items()}
    return Field({**whole, "spec": spec}, template.path, template.report)


@cache
def _rsh() -> str:
    return (Path(carried.__file__).parent / "rsh.sh").read_text(encoding="utf-8").rstrip("\n")


def _container(template: Field) -> Field:
    found = template.at("spec").at("containers").items()
    return found[0] if found else Field(None, template.path, template.report)


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
