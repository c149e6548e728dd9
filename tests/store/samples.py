"""Things to store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starburst.core.model.events import Event, JobSubmitted, NodesChanged, OffersChanged
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.views.snapshot import facts
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.arrays import TakenJobs
from starburst.store.store import Step, Store

NODE = Node("n1", Resources.of(gpus=2, cpus=16, memory_gib=64))
OFFER = Offer("small", Resources.of(gpus=2, cpus=16, memory_gib=64), Money.of("3.60"), region="eu")


def submission(job_id: str, *, gpus: int = 1, user: str = "ada", **of_job: object) -> Submission:
    """A job that wants GPUs and runs a training script."""
    job = Job(job_id, **{"name": job_id, "tasks": (Resources.of(gpus),), "user": user, **of_job})  # type: ignore[arg-type]
    return Submission(job, Workload(("python", "train.py"), (("SEED", "1"),)), ("an emptyDir was not kept",))


def started() -> Scheduler:
    """A scheduler with one node and one offer."""
    scheduler = Scheduler(Settings())
    scheduler.handle([NodesChanged((NODE,)), OffersChanged((OFFER,))], 0.0)
    return scheduler


def step(
    scheduler: Scheduler,
    events: Sequence[Event] = (),
    now: float = 0.0,
    *,
    submissions: Iterable[Submission] = (),
    request_seqs: Sequence[int] = (),
    arrays: Sequence[TakenJobs] = (),
) -> Step:
    """Let the scheduler handle these and new jobs at `now`."""
    new = {item.job.id: item for item in submissions}
    batch = [*events, *(JobSubmitted(item.job) for item in new.values())]
    if batch:
        scheduler.handle(batch, now)
    return Step(
        now=now,
        changes=scheduler.take_changes(),
        facts=facts(scheduler.state),
        events=batch,
        request_seqs=request_seqs,
        arrays=arrays,
        submissions=new,
        nodes=scheduler.state.capacity.nodes,
        offers=list(scheduler.state.fleet.offers.values()),
    )


def take_up(store: Store, scheduler: Scheduler, now: float) -> None:
    """What the controller does with new jobs."""
    requests = store.requests(100)
    jobs = [request.submission for request in requests if request.submission]
    store.commit(step(scheduler, (), now, submissions=jobs, request_seqs=[r.seq for r in requests]))
