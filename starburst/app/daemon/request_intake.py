"""What users ask for, as events of a step: requests, and jobs out of arrays.

An array is one row of the store until its jobs are taken up, so many a step. Of one with a limit these are
the jobs whose turn is near, and no others until some of them are over. A job that a request is about, or that
a new job comes after, is taken up first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import inf

from starburst.core.model.events import (
    CancelRequested,
    EditRequested,
    EnterRequested,
    Event,
    HoldRequested,
    JobSubmitted,
    ReleaseRequested,
    RequeueRequested,
)
from starburst.core.scheduler import Scheduler
from starburst.domain.clock import Pace
from starburst.domain.job import Job, Submission
from starburst.store.arrays import ArrayJobs, TakenJobs
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.store.user_requests import UserRequest

#: Largest number of requests per step, and of jobs out of arrays; beside requests these are a fifth at least.
PER_STEP = 500
#: How many jobs of an array with a limit are taken up beyond it: the next ones to have a turn.
AHEAD = 100

#: Events of requests about known jobs, by kind.
WISHES: dict[str, Callable[..., Event]] = {
    "cancel": CancelRequested,
    "cancel-now": partial(CancelRequested, now=True),
    "hold": HoldRequested,
    "release": ReleaseRequested,
    "requeue": RequeueRequested,
    "enter": EnterRequested,
}


@dataclass(frozen=True, slots=True)
class Intake:
    """What a step takes up: events with what the store must know of them."""

    events: Sequence[Event] = ()
    request_seqs: Sequence[int] = ()
    arrays: Sequence[TakenJobs] = ()
    submissions: dict[str, Submission] = field(default_factory=dict)


class RequestIntake:
    """Reads what is asked of one scheduler and no step has taken up."""

    def __init__(self, store: Store, scheduler: Scheduler, pace: Pace) -> None:
        self._store = store
        self._scheduler = scheduler
        self._pace = pace
        self._seen_version = -1
        #: At the last look for cancellations: the store's version, and how much had been decided.
        self._looked_at = (-1, -1)
        #: The limits of the arrays that have jobs left, by id.
        self._arrays: dict[str, int | None] = {}

    def read(self) -> Intake:
        """The oldest requests and jobs; must be taken up by the next step."""
        version = self._store.data_version()
        if version == self._seen_version and not any(map(self._room, self._arrays, self._arrays.values())):
            return Intake()
        requests = self._store.requests(PER_STEP)
        all_read = len(requests) < PER_STEP
        jobs = self._store.array_jobs(
            max(PER_STEP - len(requests), PER_STEP // 5),
            self._room,
            [name for request in requests for name in self._unknown(request)],
            before=inf if all_read else requests[-1].seq + 1,
        )
        events = list(self._events(requests, jobs))
        submissions = {item.job.id: item for item in jobs.submissions}
        submissions |= {it.job_id: it.submission for it in requests if it.submission is not None}
        self._arrays = dict(jobs.left)
        if all_read:
            self._seen_version = version
        return Intake(events, [request.seq for request in requests], jobs.taken, submissions)

    def read_cancellations(self) -> Intake:
        """While the cluster has not synced: only what spares money, and does not depend on the cluster.

        These are cancellations of jobs with machines in the cloud, once the cloud has synced: one that ended
        before the restart has ended as it did. All other requests wait, and keep their order.
        """
        state = self._scheduler.state
        looks_at = self._store.data_version(), state.decided
        if state.cloud_unlisted or looks_at == self._looked_at:
            return Intake()
        self._looked_at = looks_at
        machines = state.fleet.instances.values()
        requests = self._store.cancellations(list(dict.fromkeys(chain(*(it.job_ids for it in machines)))))
        return Intake([self._event(request) for request in requests], [request.seq for request in requests])

    def _events(self, requests: Sequence[UserRequest], jobs: ArrayJobs) -> Iterator[Event]:
        """Jobs of arrays before the requests that name them, others last; none before what it comes after."""
        left = {item.job.id: item.job for item in jobs.submissions}
        submitted_at = {name: self._pace.scheduler_time(at) for name, at in jobs.created_at.items()}

        def taken(names: Iterable[str]) -> Iterator[Event]:
            for name in names:
                if (job := left.pop(name, None)) is not None:
                    yield from taken(job.comes_after)
                    yield self._submitted(job, submitted_at[job.array.array] if job.array else None)

        for request in requests:
            yield from taken(self._unknown(request))
            yield self._event(request)
        yield from taken(item.job.id for item in jobs.submissions)

    def _room(self, array: str, at_once: int | None) -> int:
        """How many more jobs of an array may be taken up."""
        if at_once is None:
            return PER_STEP
        return max(0, at_once + AHEAD - self._scheduler.state.turns.known(array))

    def _unknown(self, request: UserRequest) -> list[str]:
        """The jobs that a request is about, or its new job comes after, and that the core does not hold."""
        names = (request.job_id,) if request.submission is None else request.submission.job.comes_after
        return [name for name in names if name not in self._scheduler.state.jobs]

    def _event(self, request: UserRequest) -> Event:
        if request.edit is not None:
            return EditRequested(request.job_id, request.edit)
        if request.submission is None:
            return WISHES[request.kind](request.job_id, by=request.by)
        return self._submitted(request.submission.job)

    def _submitted(self, job: Job, at: float | None = None) -> JobSubmitted:
        """The arrival of a job, with the phases of ended prerequisites that the core no longer holds."""
        others = [name for name in job.comes_after if name not in self._scheduler.state.jobs]
        return JobSubmitted(job, queries.ended(self._store, others), at)
