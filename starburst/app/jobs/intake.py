"""What a cluster in which users put jobs down may ask of the scheduler."""

from __future__ import annotations

import time

from starburst.core.model.jobs import JobRecord
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Adopted, Submission
from starburst.runs.ports import AdoptionPort, QueueFullError
from starburst.store import queries
from starburst.store.errors import DuplicateJobError
from starburst.store.quota import Quota, QuotaError
from starburst.store.store import Store


class JobIntake(AdoptionPort):
    """The store, and the scheduler that runs on it."""

    def __init__(self, store: Store, intake: Store, scheduler: Scheduler, quota: Quota | None = None) -> None:
        """`intake` is another connection to the same database: the controller hears of what others write."""
        self._quota = quota
        self._store = store
        self._intake = intake
        self._scheduler = scheduler

    def submission(self, job_id: str) -> Submission | None:
        """What was submitted under this id."""
        return self._store.submission(job_id)

    def record(self, job_id: str) -> JobRecord | None:
        """How a job stands; also one that is over. None if the scheduler has not taken it up yet."""
        return self._scheduler.jobs.get(job_id) or queries.record(self._store, job_id)

    def adopted(self) -> dict[str, Adopted]:
        """Every job that is not over and was found in the cluster, by id."""
        return queries.adopted(self._store)

    def submit(self, submission: Submission) -> None:
        """Hand in a job that was found; doing it twice is doing it once.

        Raises:
            QueueFullError: more jobs would wait than may.
        """
        try:
            self._intake.submit([submission], time.time(), self._quota)
        except DuplicateJobError:
            return
        except QuotaError as error:
            raise QueueFullError(str(error)) from None
