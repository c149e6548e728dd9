"""Whether adopted jobs may be offloaded to a cloud, which costs money on Starburst's credentials.

Kubernetes does not record the creator of an object. So the right is that of the service account of its pods:
it must be allowed to `use` the queue, a resource that exists for this question alone. Every user who may
create pods in a namespace may use its accounts, so a grant is to all of them.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from starburst.aio import in_thread
from starburst.core.model.events import LeaveRuled
from starburst.domain.job import CloudChoice, Job, Submission, Workload
from starburst.kube.access import offload_permission
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.reviews import account_may
from starburst.runs.ports import AdoptionPort, Report

#: The ClusterRole of deploy/leave.yaml, which has the right to use every queue.
ROLE = "starburst-leave"
#: Wall seconds between rounds of reviews: the delay until a grant or its withdrawal counts.
ROUND_S = 30.0
#: Questions to the server at a time.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class OffloadSubject:
    """What the answer of a review depends on."""

    namespace: str
    account: str
    queue: str


def offload_subject_of(job: Job, workload: Workload) -> OffloadSubject | None:
    """The subject of an adopted job; None for jobs that were submitted, or that never leave."""
    if workload.adopted is None or job.cloud is CloudChoice.NEVER:
        return None
    manifest = json.loads(workload.manifest or "{}")
    spec = manifest.get("spec") or {}
    spec = (spec.get("template") or {}).get("spec") or {} if workload.adopted.kind != "Pod" else spec
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    return OffloadSubject(workload.adopted.namespace, str(account), job.queue)


async def why_confined(api: Api, who: OffloadSubject) -> str:
    """Why jobs of this subject stay on the cluster, in a sentence with the remedy; "" if they may leave."""
    try:
        if await account_may(api, offload_permission(who.queue), who.namespace, who.account):
            return ""
    except (ApiError, ApiUnreachableError) as error:
        asked = f"whether service account {who.account} of {who.namespace} may use queue {who.queue}"
        return f"the cluster does not say {asked}: {error}"
    account = f"--serviceaccount={who.namespace}:{who.account}"
    grant = (
        f"kubectl create rolebinding {ROLE}-{who.account} -n {who.namespace} --clusterrole={ROLE} {account}"
    )
    return (
        f"service account {who.account} of namespace {who.namespace} may not use queue {who.queue} in the "
        f"cloud; to let it: {grant}"
    )


class OffloadRights:
    """Reviews the rights of all adopted jobs that may still leave, in rounds, and reports changes."""

    def __init__(self, api: Api, desk: AdoptionPort, report: Report) -> None:
        self._api = api
        self._desk = desk
        self._report = report
        #: The subject of each job.
        self._who: dict[str, OffloadSubject] = {}
        #: The answers of this round.
        self._answers: dict[OffloadSubject, str] = {}
        #: Why jobs stay on the cluster whatever their rights are.
        self._kept: dict[str, str] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def begin(self) -> None:
        """Review the jobs that are known already."""
        workloads = await in_thread(self._desk.adopted_workloads)  # a second or two for many thousands
        for job_id, workload in workloads.items():
            job = self._job(job_id)
            who = None if job is None else offload_subject_of(job, workload)
            if who is not None:
                self._who[job_id] = who
        await self._round()

    def _job(self, job_id: str) -> Job | None:
        """A job, also one that the core has not taken up yet."""
        found = self._desk.record(job_id) or self._desk.submission(job_id)
        return None if found is None else found.job

    def keep(self, job_id: str, why: str) -> None:
        """Let a job stay on the cluster from now on for this reason; with "" its rights decide again."""
        if self._kept.get(job_id, "") == why:
            return
        if not why:
            del self._kept[job_id]
        else:
            self._kept[job_id] = why
            self._report(LeaveRuled(job_id, why))

    async def run(self) -> None:
        """Rounds until cancelled, after `begin`."""
        while True:
            await asyncio.sleep(ROUND_S)
            await self._round()

    async def why_confined(self, submission: Submission) -> str:
        """Why a job that was just adopted stays on the cluster, by an answer at most one round old."""
        who = offload_subject_of(submission.job, submission.workload)
        if who is None:
            return ""
        self._who[submission.job.id] = who
        if who not in self._answers:
            self._answers[who] = await why_confined(self._api, who)
        return self._answers[who]

    async def _round(self) -> None:
        """Review each subject once, and report changes for each job."""
        self._answers.clear()
        jobs = self._who_may_leave()
        asked = list(dict.fromkeys(jobs.values()))
        answers = dict(zip(asked, await asyncio.gather(*map(self._ask, asked)), strict=True))
        self._answers.update(answers)
        for job_id, who in jobs.items():
            record = self._desk.record(job_id)
            why = self._kept.get(job_id, answers[who])
            if record is not None and record.confined != why:
                self._report(LeaveRuled(job_id, why))

    async def _ask(self, who: OffloadSubject) -> str:
        async with self._slots:
            return await why_confined(self._api, who)

    def _who_may_leave(self) -> dict[str, OffloadSubject]:
        """The subjects of jobs that have no run."""
        found = {}
        for job_id, who in list(self._who.items()):
            record = self._desk.record(job_id)
            if record is not None and record.phase.is_end:
                del self._who[job_id]
                self._kept.pop(job_id, None)
            elif record is not None and not record.alive:
                found[job_id] = who
        return found
