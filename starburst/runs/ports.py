"""The two ports of the shell, a cluster and a cloud: adapters implement them, the controller calls them.

Calls begin something and return; what comes of it is reported as an event. Every call may be repeated, since
the controller replays the actions of a stored step after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starburst.core.model.actions import Slot
from starburst.core.model.events import Event
from starburst.core.model.jobs import JobRecord
from starburst.core.state import Changes
from starburst.domain.cloud import Instance, Offer
from starburst.domain.job import Adopted, Job, Submission, Workload


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job, with everything needed to start it."""

    job: Job
    attempt: int
    slots: tuple[Slot, ...]
    workload: Workload

    @property
    def is_gang(self) -> bool:
        """Whether its job has several tasks, though an elastic one may have one left in this attempt."""
        return len(self.job.tasks) > 1

    def indices(self, rank: int) -> dict[str, str]:
        """Variables with a task's index: its rank in a gang, else that of its job in an array."""
        place = self.job.array
        index = rank if place is None or self.is_gang else place.index
        return {"JOB_COMPLETION_INDEX": str(index), **self.place_in_array}

    @property
    def place_in_array(self) -> dict[str, str]:
        """Variables with the index of its job in an array; none without one."""
        place = self.job.array
        if place is None:
            return {}
        return {"STARBURST_ARRAY": place.array, "STARBURST_ARRAY_INDEX": str(place.index)}


#: Receives what happens at a site; called in the event loop, must not block.
Report = Callable[[Event], None]


class RunSite(Protocol):
    """A place where runs live."""

    async def start(self, run: Run) -> None:
        """Start a run, unless it was started before. RunStarted and RunEnded tell what becomes of it."""

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """Begin to end a run. RunEnded comes once nothing of it is alive, also for a run that never was."""

    def newest(self, job_id: str) -> int | None:
        """The last attempt of a job that may be alive there, as far as the site was seen; 0 if none may.

        None: it was not listed yet, and may have runs that the store does not know.
        """

    async def watch(self, report: Report) -> None:
        """List the site, then watch it, until cancelled.

        The listing is capacity and every known run, ended ones included, and one SiteSynced after it; then
        every change is reported. A report may come twice; none may be missing.
        """

    def nudge(self) -> None:
        """Look for changes now rather than at the next poll, if the site is polled. Returns at once.

        A hint without any promise: it may come at any time, and often.
        """


class Cluster(RunSite, Protocol):
    """On-prem nodes. Reports NodesChanged, and CancelRequested where users can end jobs by its means."""

    def judged(self, submissions: Mapping[str, Submission]) -> Sequence[Event]:
        """What the cluster knows of new jobs, by id, as events of the step in which they are submitted."""

    def told(self, changes: Changes) -> None:
        """A step was stored: sites that show users their jobs show the changes. Returns at once."""


class QueueFullError(Exception):
    """More jobs would wait than the quota allows; the message says how many, and which setting."""


class AdoptionPort(Protocol):
    """What a cluster in which users create jobs may ask the scheduler, and where it submits them."""

    def submission(self, job_id: str) -> Submission | None:
        """What was submitted under this id; None if nothing was."""

    def workload(self, job_id: str) -> Workload | None:
        """Its workload alone, which is read in less time."""

    def record(self, job_id: str) -> JobRecord | None:
        """A job's record, also after its end; None if the scheduler has not read the submission yet."""

    def living(self, job_id: str) -> JobRecord | None:
        """The same of a job that is not over, from memory."""

    def may_lack_runs(self) -> bool:
        """Whether the store was put back from a backup: there may be runs that it does not know."""

    def past(self, job_id: str) -> JobRecord | None:
        """When, where and how a job ended whose record is kept no longer; None of any other."""

    def knows(self, job_id: str) -> bool:
        """Whether there is or ever was a job with this id, as far as the store goes back."""

    def adopted(self) -> dict[str, Adopted]:
        """Jobs that were found in the cluster and are not over, by id."""

    def adopted_workloads(self) -> Mapping[str, Workload]:
        """The workloads of these jobs. Thread-safe."""

    def on_cluster(self) -> list[str]:
        """Every job that has a run on the cluster, by id."""

    def claiming(self) -> list[str]:
        """Every job with claims (`Job.volume_affinity`) that is not over, by id."""

    def submit(self, submissions: Sequence[Submission]) -> Mapping[str, str]:
        """Submit jobs that were found, together; may be repeated, also in part.

        Returns why jobs were not submitted, by id: those that may not wait besides all others.
        """


class Cloud(RunSite, Protocol):
    """Rented machines. Reports OffersChanged, InstanceReady, InstanceFailed and InstanceGone."""

    async def launch(self, instance_id: str, offer: Offer) -> None:
        """Rent a machine under this intent, or adopt the one that was rented; one intent never makes two."""

    async def prepare(self, run: Run) -> None:
        """Have what a run needs brought to its instances while they come up, as far as that can be done.

        A hint: the start comes later and does what was not done.
        """

    async def terminate(self, instance_id: str) -> None:
        """Begin to terminate a machine. InstanceGone comes when the cloud confirms, also if it never was."""

    async def renew(self, instance_ids: list[str]) -> None:
        """Extend the leases of these machines, whose dead-man switches end them otherwise."""

    async def owned(self) -> list[Instance]:
        """Every machine that carries the owner's tag, claimed by the store or not: the reaper's truth."""
