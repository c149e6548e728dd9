"""Whether jobs that were found in the cluster may leave it with Starburst's credentials for a cloud.

Kubernetes does not record who made an object, so what is asked about is whom its pods act for: their service
account must be allowed to `use` the queue, a resource that exists for this question alone. Whoever may make
pods in a namespace may use its accounts, so a grant is to all who may.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from starburst.core.model.events import LeaveRuled
from starburst.domain.job import CloudChoice, Submission
from starburst.kube.access import offload_permission
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, UnreachableError
from starburst.kube.reviews import account_may
from starburst.runs.ports import AdoptionPort, Report

#: The ClusterRole of deploy/leave.yaml, which has the right to use every queue.
ROLE = "starburst-leave"
#: Wall seconds between rounds: so long does a grant or its withdrawal take to be heard of.
ROUND_S = 30.0
#: Questions to the server at a time.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class OffloadSubject:
    """All that an answer depends on."""

    namespace: str
    account: str
    queue: str


def offload_subject_of(submission: Submission) -> OffloadSubject | None:
    """Who leaves if an adopted job does; None of jobs that were submitted, or never leave."""
    workload, job = submission.workload, submission.job
    if workload.adopted is None or job.cloud is CloudChoice.NEVER:
        return None
    manifest = json.loads(workload.manifest or "{}")
    spec = manifest.get("spec") or {}
    spec = (spec.get("template") or {}).get("spec") or {} if workload.adopted.kind == "Job" else spec
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    return OffloadSubject(workload.adopted.namespace, str(account), job.queue)


async def why_confined(api: Api, who: OffloadSubject) -> str:
    """Why jobs of this kind stay on the cluster, in a sentence with the mend; "" if they may leave."""
    try:
        if await account_may(api, offload_permission(who.queue), who.namespace, who.account):
            return ""
    except (ApiError, UnreachableError) as error:
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
    """Asks for every adopted job that may still leave, in rounds, and reports what has changed."""

    def __init__(self, api: Api, desk: AdoptionPort, report: Report) -> None:
        self._api = api
        self._desk = desk
        self._report = report
        #: Who leaves, by job.
        self._who: dict[str, OffloadSubject] = {}
        #: The answers of this round.
        self._answers: dict[OffloadSubject, str] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def begin(self) -> None:
        """Ask about every job that is known already."""
        for job_id in self._desk.adopted():
            submission = self._desk.submission(job_id)
            who = None if submission is None else offload_subject_of(submission)
            if who is not None:
                self._who[job_id] = who
        await self._round()

    async def run(self) -> None:
        """Rounds until cancelled, after `begin`."""
        while True:
            await asyncio.sleep(ROUND_S)
            await self._round()

    async def why_confined(self, submission: Submission) -> str:
        """Why a job that was just found stays on the cluster, by an answer that is at most a round old."""
        who = offload_subject_of(submission)
        if who is None:
            return ""
        self._who[submission.job.id] = who
        if who not in self._answers:
            self._answers[who] = await why_confined(self._api, who)
        return self._answers[who]

    async def _round(self) -> None:
        """Ask once about everybody of whom a job may leave, and report what is new about each job."""
        self._answers.clear()
        jobs = self._who_may_leave()
        asked = list(dict.fromkeys(jobs.values()))
        answers = dict(zip(asked, await asyncio.gather(*map(self._ask, asked)), strict=True))
        self._answers.update(answers)
        for job_id, who in jobs.items():
            record = self._desk.record(job_id)
            if record is not None and record.confined != answers[who]:
                self._report(LeaveRuled(job_id, answers[who]))

    async def _ask(self, who: OffloadSubject) -> str:
        async with self._slots:
            return await why_confined(self._api, who)

    def _who_may_leave(self) -> dict[str, OffloadSubject]:
        """By job, of those that have no run."""
        found = {}
        for job_id, who in list(self._who.items()):
            record = self._desk.record(job_id)
            if record is not None and record.phase.is_end:
                del self._who[job_id]
            elif record is not None and not record.alive:
                found[job_id] = who
        return found
