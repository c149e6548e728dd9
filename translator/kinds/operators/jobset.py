"""Reads a JobSet (jobset.x-k8s.io): the pods of all its Jobs as the tasks of one gang.

Source: JobSet's documentation, API v1alpha2. Its pods are named by a headless Service of the operator,
`SET-JOB-INDEX-POD.SUBDOMAIN`; where a program's words or variables have such a name, the address of that task
stands in for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from translator.field import Field, Fields
from translator.kinds.operators.environment import name_lines
from translator.kinds.operators.part_names import check_names
from translator.kinds.operators.roles import RoleJob, TaskRole, marked, own_text
from translator.kinds.operators.words import fill_in, with_words
from translator.kinds.read_kind import ReadKind
from translator.manifests.hints import refuse_hints
from translator.manifests.manifest import MAX_TASKS

_TOP = Fields("a JobSet", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_SPEC = Fields(
    "a JobSet spec",
    read=(
        *("coordinator", "failurePolicy", "network", "replicatedJobs", "startupPolicy", "successPolicy"),
        "suspend",
    ),
    harmless=("ttlSecondsAfterFinished",),
    noted={"managedBy": "Starburst runs it"},
    refused={
        "volumeClaimPolicies": "claims are not made; make them with kubectl, and name them in volumes",
    },
)
_REPLICATED = Fields(
    "a replicated Job",
    read=("name", "replicas", "template"),
    harmless=("groupName",),
    refused={
        "dependsOn": "all tasks start together; submit what comes first by itself, with starburst.io/after-ok"
    },
)
_JOB = Fields(
    "the spec of a replicated Job",
    read=(
        "activeDeadlineSeconds",
        "backoffLimit",
        "completionMode",
        "completions",
        "parallelism",
        "template",
    ),
    harmless=("podReplacementPolicy", "suspend", "ttlSecondsAfterFinished"),
    noted={
        "backoffLimitPerIndex": "a failed task ends the run, and the set is run again as a whole",
        "podFailurePolicy": "a failed task ends the run, and the set is run again as a whole",
    },
    refused={"successPolicy": "is of one Job of several; write the successPolicy of the set"},
)
_JOB_TEMPLATE = Fields("a Job template", read=("metadata", "spec"))
_NETWORK = Fields(
    "a network", read=("enableDNSHostnames", "subdomain"), harmless=("publishNotReadyAddresses",)
)
_FAILURE = Fields(
    "a failure policy",
    read=("maxRestarts",),
    harmless=("restartStrategy",),
    noted={"rules": "the set is run again as a whole after any failure, maxRestarts times at most"},
)
_SUCCESS = Fields("a success policy", read=("operator", "targetReplicatedJobs"))
_STARTUP = Fields("a startup policy", read=("startupPolicyOrder",))
#: The labels and annotations that the operator writes on pods.
_WRITTEN = "jobset.sigs.k8s.io/"
_COORDINATORS = f"{_WRITTEN}coordinator"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_COORDINATOR = Fields("a coordinator", read=("jobIndex", "podIndex", "replicatedJob"))


@dataclass(frozen=True, slots=True)
class _ReplicatedJob:
    """Equal Jobs of a set; its tasks are those of the first Job, then those of the second."""

    name: str
    replicas: int
    pods: int
    template: Field
    first_rank: int

    @property
    def size(self) -> int:
        return self.replicas * self.pods


def read_jobset(document: Field) -> ReadKind:
    """A JobSet as a gang; problems and notes go to its report."""
    document.check(_TOP)
    spec = document.at("spec")
    spec.check(_SPEC)
    _note_topology(document, spec)
    jobs = _replicated_jobs(spec)
    if not jobs:
        spec.at("replicatedJobs").refuse("is missing; write at least one, with a name and a template")
        return ReadKind({})
    name = str(document.at("metadata").at("name").value or "")
    names = _PodNames(name, spec.at("network"), jobs, _coordinator(spec.at("coordinator"), jobs))
    deciding = _deciding(spec.at("successPolicy"), jobs)
    size = sum(job.size for job in jobs)
    roles = [
        TaskRole(
            job.name,
            job.size,
            names.addressed(job.template),
            _index_lines(job) if len(jobs) > 1 or job.replicas > 1 else "",
            job.size if job.name in deciding else 0,
        )
        for job in jobs
    ]
    startup = spec.at("startupPolicy")
    startup.check(_STARTUP)
    if startup.at("startupPolicyOrder").choice(("AnyOrder", "InOrder")) == "InOrder" and len(jobs) > 1:
        startup.note("all tasks start together; a program that needs another one has to wait for it")
    return RoleJob(document, roles, name_lines(names.used, size), _job_spec(spec)).read()


def _note_topology(document: Field, spec: Field) -> None:
    """Say that Jobs do not have a part of the cluster each, as the operator's annotation asks."""
    for owner in (document, *(each.at("template") for each in spec.at("replicatedJobs").items())):
        wish = owner.at("metadata").at("annotations").at(_EXCLUSIVE)
        if wish.value is not None:
            wish.note("Starburst chooses the nodes; starburst.io/spread: node gives each task one of its own")


def _replicated_jobs(spec: Field) -> list[_ReplicatedJob]:
    found, rank = list[_ReplicatedJob](), 0
    check_names(spec.at("replicatedJobs").items())
    for entry in spec.at("replicatedJobs").items():
        entry.check(_REPLICATED)
        job = entry.at("template")
        job.check(_JOB_TEMPLATE)
        refuse_hints(job.at("metadata"))
        job.at("spec").check(_JOB)
        replicas, pods = entry.at("replicas").whole(0, MAX_TASKS), _pods(job.at("spec"))
        name, template = entry.at("name").text(), job.at("spec").at("template")
        if not name:
            entry.at("name").refuse("is missing; give the Job a name")
        if template.value is None:
            template.refuse("is missing; write the pod template of its tasks")
        one = _ReplicatedJob(name or "", 1 if replicas is None else replicas, pods, template, rank)
        rank += one.size
        found.append(one)
    return found


def _coordinator(coordinator: Field, jobs: Sequence[_ReplicatedJob]) -> int:
    """The rank of the task whose address is that of the coordinator."""
    coordinator.check(_COORDINATOR)
    if coordinator.value is None:
        return 0
    job = next((job for job in jobs if job.name == coordinator.at("replicatedJob").value), None)
    index, pod = (coordinator.at(key).whole(0) or 0 for key in ("jobIndex", "podIndex"))
    if job is None or index >= job.replicas or pod >= job.pods:
        coordinator.refuse("names no pod of the set; write replicatedJob, jobIndex and podIndex of one")
        return 0
    return job.first_rank + index * job.pods + pod


def _pods(spec: Field) -> int:
    """The pods of one Job, which run at the same time."""
    parallelism, completions = spec.at("parallelism").whole(1, MAX_TASKS), spec.at("completions").whole(1)
    if completions is not None and completions > (parallelism or 1):
        spec.at("completions").refuse(
            f"must equal parallelism, which is {parallelism or 1}: all tasks run at once"
        )
    return min(parallelism or 1, completions or MAX_TASKS)


def _deciding(policy: Field, jobs: Sequence[_ReplicatedJob]) -> set[str]:
    """The names of the Jobs whose success is that of the set."""
    policy.check(_SUCCESS)
    known = {job.name for job in jobs}
    named = {str(each.value) for each in policy.at("targetReplicatedJobs").items()}
    if named - known:
        policy.at("targetReplicatedJobs").refuse(
            f"{min(named - known)} is not among {', '.join(sorted(known))}"
        )
    targets = named or known
    several = sum(job.replicas for job in jobs if job.name in targets) > 1
    if policy.at("operator").choice(("All", "Any")) == "Any" and several:
        policy.at("operator").refuse(
            "of several Jobs all have to succeed; write All, or name one that decides"
        )
    return targets


def _job_spec(spec: Field) -> dict[str, Any]:
    """The Job's own fields: how often the set is run again, and for how long."""
    failure = spec.at("failurePolicy")
    failure.check(_FAILURE)
    found: dict[str, Any] = {"backoffLimit": failure.at("maxRestarts").whole(0) or 0}
    parents = [entry.at("template").at("spec") for entry in spec.at("replicatedJobs").items()]
    limits_s = [limit for limit in (each.at("activeDeadlineSeconds").whole(1) for each in parents) if limit]
    if limits_s:
        found["activeDeadlineSeconds"] = min(limits_s)
    again = [each.at("backoffLimit") for each in parents if each.at("backoffLimit").value not in (None, 0)]
    if again and not found["backoffLimit"]:
        again[0].note(
            "a failed task ends the run; for the set to be run again give failurePolicy.maxRestarts"
        )
    if spec.at("suspend").flag():
        found["suspend"] = True
    return found


def _index_lines(job: _ReplicatedJob) -> str:
    """The index of its Job, and that of its pod in it."""
    return own_text(
        f"starburst_job=$((starburst_index / {job.pods}))\n"
        f"export JOB_COMPLETION_INDEX=$((starburst_index % {job.pods}))\n"
    )


class _PodNames:
    """The operator's names of pods, and what it writes on them, in the words of programs."""

    def __init__(self, jobset: str, network: Field, jobs: Sequence[_ReplicatedJob], coordinator: int) -> None:
        network.check(_NETWORK)
        self._coordinator = coordinator
        self._jobset, self._jobs = jobset, {job.name: job for job in jobs}
        known = "|".join(sorted(map(re.escape, self._jobs), key=len, reverse=True))
        subdomain = network.at("subdomain").text() or jobset
        # a name alone is that of a pod only with the subdomain behind it: programs have other words like it
        self._name = re.compile(
            rf"{re.escape(jobset)}-({known})-([0-9]{{1,9}})-([0-9]{{1,9}})\.{re.escape(subdomain)}\b"
        )
        #: The ranks whose addresses stand in words.
        self.used: set[int] = set()

    def addressed(self, template: Field) -> Field:
        """A pod template whose program finds addresses and indexes where the operator's names were."""
        return with_words(
            template, lambda word: self._marked(word, template), lambda entry: self._tell(entry, template)
        )

    def _tell(self, entry: dict[str, Any], template: Field) -> None:
        """A variable from what the operator writes on a pod, as a plain one."""
        job = next(job for job in self._jobs.values() if job.template.path == template.path)
        if fill_in(entry, self._written(job)) == _COORDINATORS:
            self.used.add(self._coordinator)

    def _written(self, job: _ReplicatedJob) -> dict[str, str]:
        """What the operator writes on the pods of a Job, by key, as a shell in a task knows it."""
        before = sum(each.replicas for each in self._jobs.values() if each.first_rank < job.first_rank)
        own, of_set = "${starburst_job:-0}", sum(each.replicas for each in self._jobs.values())
        values = {
            "global-replicas": str(of_set),
            "job-global-index": marked(f"$(({before} + {own}))"),
            "job-index": marked(own),
            "jobset-name": self._jobset,
            "replicatedjob-name": job.name,
            "replicatedjob-replicas": str(job.replicas),
            "restart-attempt": marked("$((${STARBURST_ATTEMPT:-1} - 1))"),
        }
        return {
            _COORDINATORS: marked(f"$starburst_host_{self._coordinator}"),
            "batch.kubernetes.io/job-completion-index": marked("${JOB_COMPLETION_INDEX:-0}"),
            **{f"{_WRITTEN}{key}": value for key, value in values.items()},
        }

    def _marked(self, word: str, template: Field) -> str:
        return self._name.sub(lambda found: self._address(found, template), word)

    def _address(self, found: re.Match[str], template: Field) -> str:
        job, index, pod = self._jobs[found[1]], int(found[2]), int(found[3])
        if index >= job.replicas or pod >= job.pods:
            template.refuse(f"{found[0]}: there is no such pod", show=False)
            return found[0]
        rank = job.first_rank + index * job.pods + pod
        self.used.add(rank)
        return marked(f"$starburst_host_{rank}")
