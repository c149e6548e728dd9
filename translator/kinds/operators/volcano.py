"""Reads a Volcano Job (batch.volcano.sh/v1alpha1): its tasks as the roles of one gang.

Source: Volcano's documentation of Jobs and of its plugins env, svc and ssh, version 1.10.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from translator.field import Field, Fields
from translator.kinds.operators.environment import master_lines, name_lines, volcano_lines
from translator.kinds.operators.part_names import check_names
from translator.kinds.operators.roles import RoleJob, TaskRole, marked
from translator.kinds.operators.words import HostNames, fill_in, with_words
from translator.kinds.read_kind import ReadKind
from translator.manifests.manifest import MAX_TASKS

GROUP = "batch.volcano.sh/"
_TOP = Fields("a Volcano Job", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_SPEC = Fields(
    "a Volcano Job spec",
    read=("maxRetry", "minAvailable", "plugins", "policies", "tasks"),
    harmless=("schedulerName", "ttlSecondsAfterFinished"),
    noted={
        "minSuccess": "all tasks have to succeed",
        "networkTopology": "Starburst chooses the nodes",
        "priorityClassName": "priorities are numbers; write the annotation starburst.io/priority",
        "runningEstimate": "write the annotation starburst.io/runtime-estimate",
        "queue": "queues of Volcano are not used; name one with starburst.io/queue",
    },
    refused={"volumes": "claims are not made; make them with kubectl, and name them in the tasks' volumes"},
)
_TASK = Fields(
    "a task of a Volcano Job",
    read=("maxRetry", "minAvailable", "name", "policies", "replicas", "template"),
    noted={"topologyPolicy": "NUMA nodes are the kubelet's to choose"},
    refused={
        "dependsOn": "all tasks start together; submit what comes first by itself, with starburst.io/after-ok"
    },
)
_POLICY = Fields("a policy", read=("action", "event", "events"), harmless=("exitCode", "timeout"))
_RESTARTING = ("RestartJob", "RestartTask", "RestartPod", "RestartPartition")
_INDEX = 'export VC_TASK_INDEX="$starburst_index" VK_TASK_INDEX="$starburst_index"\n'
#: Files of the plugin svc with the addresses of a task's pods.
_HOST_FILE = re.compile(r"/etc/volcano/([a-z0-9-]+)\.host\b")
#: Words of programs that start others by ssh.
_BY_SSH = re.compile(r"\b(?:mpirun|mpiexec|horovodrun|ssh|sshd|pdsh|deepspeed)\b")
_NO_SSH = (
    "tasks have no ssh to one another; a program that starts others by ssh, as mpirun does, is run with one "
    "task, or with torchrun in several"
)


def is_volcano_job(document: Field) -> bool:
    """Whether a document is a Job of Volcano."""
    version = document.at("apiVersion").value
    return document.at("kind").value == "Job" and isinstance(version, str) and version.startswith(GROUP)


def read_volcano_job(document: Field) -> ReadKind:
    """A Volcano Job as a gang; problems and notes go to its report."""
    document.check(_TOP)
    spec = document.at("spec")
    spec.check(_SPEC)
    tasks = spec.at("tasks").items()
    if not tasks:
        spec.at("tasks").refuse("is missing; write at least one, with replicas and a template")
    check_names(tasks)
    roles = [_role(task, f"default{index}") for index, task in enumerate(tasks)]
    size = sum(role.replicas for role in roles)
    least = spec.at("minAvailable").whole(0)
    if least not in (None, 0, size) and size:
        spec.at("minAvailable").note(f"all {size} tasks start together, or none")
    plugins = spec.at("plugins")
    _judge_ssh(plugins.at("ssh"), roles, size)
    name = str(document.at("metadata").at("name").value or "")
    roles = [replace(role, template=_filled_in(role, name)) for role in roles]
    roles, lines = _with_hosts(name, roles, size) if "svc" in plugins.entries() else (roles, "")
    lines += _plugins(plugins, size)
    if "env" in plugins.entries():
        roles = [replace(role, lines=_INDEX) for role in roles]
    for policy in spec.at("policies").items():
        if _ends_job(policy) and len(tasks) > 1:
            policy.refuse("of the whole job: write it in the task whose end is that of the job", show=False)
    restarts = any(_restarts(each) for each in (spec, *tasks))
    limit = spec.at("maxRetry").whole(0)
    retries = (3 if limit is None else limit) if restarts else 0
    return RoleJob(document, roles, lines, {"backoffLimit": retries}, "VC_…").read()


def _role(task: Field, unnamed: str) -> TaskRole:
    task.check(_TASK)
    replicas, template = task.at("replicas").whole(0, MAX_TASKS), task.at("template")
    if template.value is None:
        template.refuse("is missing; write the pod template of its tasks")
    count = 1 if replicas is None else replicas
    least = task.at("minAvailable").whole(0)
    if least not in (None, count):
        task.at("minAvailable").note(f"all {count} of them start together with the others, or none")
    name = task.at("name").text() or unnamed
    return TaskRole(name, count, template, deciding=count if _completes(task) else 0)


def _filled_in(role: TaskRole, job: str) -> Field:
    """The template of a task with what Volcano writes on its pods."""
    written = {"job-name": job, "task-index": marked("$starburst_index"), "task-spec": role.name}
    values = {f"volcano.sh/{key}": value for key, value in written.items()}
    return with_words(role.template, lambda word: word, partial(fill_in, values=values))


def _completes(task: Field) -> bool:
    """Whether the job has succeeded when these tasks have."""
    return any(map(_ends_job, _policies(task)))


def _ends_job(policy: Field) -> bool:
    """Whether a policy ends the job with success when all pods of a task have."""
    events = [policy.at("event").value, *(each.value for each in policy.at("events").items())]
    completed = any(event in ("TaskCompleted", "*") for event in events)
    return completed and policy.at("action").value == "CompleteJob"


def _restarts(owner: Field) -> bool:
    """Whether a policy restarts what failed; the job is run again as a whole then."""
    found = False
    for policy in _policies(owner):
        if policy.at("action").value in _RESTARTING:
            policy.note(
                "a failed task ends the run, and the job is run again as a whole, maxRetry times at most"
            )
            found = True
    return found


def _policies(owner: Field) -> Sequence[Field]:
    policies = owner.at("policies").items()
    for policy in policies:
        policy.check(_POLICY)
    return policies


def _judge_ssh(plugin: Field, roles: Sequence[TaskRole], size: int) -> None:
    """Refuse ssh between tasks to programs that name it; others list the plugin by habit."""
    if plugin.value is None or size == 1:
        return
    named = any(_BY_SSH.search(word) for role in roles for word in role.words)
    if named or not all(role.has_command for role in roles):
        plugin.refuse(_NO_SSH, show=False)
    else:
        plugin.note("tasks have no ssh to one another; the commands do not name it")


def _with_hosts(job: str, roles: Sequence[TaskRole], size: int) -> tuple[list[TaskRole], str]:
    """What the plugin svc gives: variables, files with addresses, and names, where words have them."""
    replicas = {role.name: role.replicas for role in roles}
    names, files = HostNames(job, roles, subdomain=job), set[str]()

    def file(found: re.Match[str]) -> str:
        if found[1] not in replicas:
            return found[0]
        files.add(found[1])
        return marked(f"$starburst_hosts/{found[1]}.host")

    changed = [
        replace(
            role,
            template=with_words(role.template, lambda word: _HOST_FILE.sub(file, names.addressed(word))),
        )
        for role in roles
    ]
    return changed, volcano_lines(replicas, files) + name_lines(names.used, size)


def _plugins(plugins: Field, size: int) -> str:
    """The variables that other plugins give; one without which the job would not run is refused."""
    lines = ""
    for name, plugin in plugins.entries().items():
        if name == "pytorch":
            lines = master_lines(size, 23_456)
        elif name not in ("env", "ssh", "svc"):
            plugin.refuse("is a plugin that Starburst does not know; remove it", show=False)
    return lines
