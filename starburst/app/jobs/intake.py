"""Intake of jobs that users create in a cluster directly: how a cluster submits them and asks about them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from starburst.core.model.jobs import JobRecord
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Adopted, Site, Submission, Workload
from starburst.runs.ports import AdoptionPort
from starburst.store.errors import DuplicateJobError
from starburst.store.listings import queries
from starburst.store.quota import Quota, QuotaError
from starburst.store.store import Store
from starburst.store.upkeep.restored import was_put_back


class JobIntake(AdoptionPort):
    """Implements the cluster's job registry on the store and the running scheduler."""

    def __init__(self, store: Store, intake: Store, scheduler: Scheduler, quota: Quota | None = None) -> None:
        """`intake` is a second connection to the database: the controller notices only other connections'
        writes.
        """
        self._quota = quota
        self._store = store
        self._intake = intake
        self._scheduler = scheduler
        self._was_put_back = was_put_back(store)

    def submission(self, job_id: str) -> Submission | None:
        """The submission with this id."""
        return self._store.submission(job_id)

    def workload(self, job_id: str) -> Workload | None:
        """The workload of the submission with this id."""
        return self._store.workload(job_id)

    def record(self, job_id: str) -> JobRecord | None:
        """The record of a job, ended or not; None if the scheduler has not taken it up yet."""
        return self._scheduler.state.jobs.get(job_id) or queries.record(self._store, job_id)

    def living(self, job_id: str) -> JobRecord | None:
        """The record of a job that is not over."""
        found = self._scheduler.state.jobs.get(job_id)
        return None if found is None or found.phase.is_end else found

    def may_lack_runs(self) -> bool:
        """Whether the store was put back."""
        return self._was_put_back

    def past(self, job_id: str) -> JobRecord | None:
        """When, where and how a job ended that is rolled up."""
        return queries.past(self._store, job_id)

    def knows(self, job_id: str) -> bool:
        """Whether there is or was such a job, also one that is rolled up."""
        if job_id in self._scheduler.state.jobs or self.submission(job_id) is not None:
            return True
        return bool(queries.ended(self._store, [job_id]))

    def adopted(self) -> dict[str, Adopted]:
        """Adopted jobs that have not ended, by id."""
        return queries.adopted(self._store)

    def adopted_workloads(self) -> dict[str, Workload]:
        """The workloads of these jobs."""
        return queries.adopted_workloads(self._store)

    def on_cluster(self) -> list[str]:
        """Every job that has a run on the cluster, by id."""
        return [
            job.id for job in self._scheduler.state.jobs.values() if job.alive and job.site is Site.CLUSTER
        ]

    def claiming(self) -> list[str]:
        """Every job with claims that is not over, by id."""
        jobs = self._scheduler.state.jobs.values()
        return [record.id for record in jobs if record.job.volume_affinity and not record.phase.is_end]

    def submit(self, submissions: Sequence[Submission]) -> Mapping[str, str]:
        """Submit adopted jobs, in one transaction if nothing is against any of them; idempotent."""
        try:
            self._intake.submit(submissions, time.time(), self._quota)
        except (DuplicateJobError, QuotaError):
            return self._one_by_one(submissions)
        return {}

    def _one_by_one(self, submissions: Sequence[Submission]) -> Mapping[str, str]:
        """Submit each by itself; after one for which there is no room, none of the same user and queue."""
        refused: dict[str, str] = {}
        full: dict[tuple[str, str], str] = {}
        for item in submissions:
            whose = (item.job.user, item.job.queue)
            try:
                if whose not in full:
                    self._intake.submit([item], time.time(), self._quota)
            except DuplicateJobError:
                continue
            except QuotaError as error:
                full[whose] = str(error)
            if whose in full:
                refused[item.job.id] = full[whose]
        return refused
