"""The two ports of the shell: a cluster and a cloud. Adapters implement them, the controller calls them."""

from __future__ import annotations

from collections.abc import Callable
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
    """One attempt of a job with all that is needed to start it."""

    job: Job
    attempt: int
    slots: tuple[Slot, ...]
    workload: Workload

    def indices(self, rank: int) -> dict[str, str]:
        """Variables that tell a task which of many it is: of an array's jobs, else of its gang."""
        place = self.job.array
        if place is None:
            return {"JOB_COMPLETION_INDEX": str(rank)}
        index = str(place.index)
        return {"JOB_COMPLETION_INDEX": index, "STARBURST_ARRAY": place.array, "STARBURST_ARRAY_INDEX": index}


Report = Callable[[Event], None]


class RunSite(Protocol):
    """A place where runs live. Every call may be repeated: after a crash the controller does so."""

    async def start(self, run: Run) -> None:
        """Start a run, or find that it was started already. Its fate comes as RunStarted and RunEnded."""

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """Begin to end a run. RunEnded comes once nothing of it is alive, also if it never was."""

    async def watch(self, report: Report) -> None:
        """List, then watch, until cancelled.

        First what is so (capacity, every run known, ended ones too, then one SiteSynced), then every change.
        Reports may repeat themselves; none may be missing.
        """

    def nudge(self) -> None:
        """Look now rather than at the next round, if looking in rounds is what it does. Returns at once.

        A hint and no more: it may come at any time and as often as it likes.
        """


class Cluster(RunSite, Protocol):
    """On-prem nodes. Reports NodesChanged; and CancelRequested, where users can end a job by its means."""

    def told(self, changes: Changes) -> None:
        """A step was stored; for sites that show users what becomes of their jobs. Returns at once."""


class QueueFullError(Exception):
    """More jobs would wait than may; the message says how many, and which setting."""


class AdoptionPort(Protocol):
    """What a cluster in which users put jobs down may ask of the scheduler, and where it hands them in."""

    def submission(self, job_id: str) -> Submission | None:
        """What was submitted under this id."""

    def record(self, job_id: str) -> JobRecord | None:
        """How a job stands; also one that is over. None if the scheduler has not taken it up yet."""

    def adopted(self) -> dict[str, Adopted]:
        """Every job that is not over and was found in the cluster, by id."""

    def submit(self, submission: Submission) -> None:
        """Hand in a job that was found; doing it twice is doing it once.

        Raises:
            QueueFullError: it has to wait outside.
        """


class Cloud(RunSite, Protocol):
    """Rented machines. Reports OffersChanged, InstanceReady, InstanceFailed and InstanceGone."""

    async def launch(self, instance_id: str, offer: Offer) -> None:
        """Rent a machine under this intent, or adopt the one that was; one intent never makes two."""

    async def terminate(self, instance_id: str) -> None:
        """Begin to give a machine back. InstanceGone comes when the cloud confirms, also if it never was."""

    async def renew(self, instance_ids: list[str]) -> None:
        """Put the dead-man switches of these machines off by one lease."""

    async def owned(self) -> list[Instance]:
        """Every machine that carries our tag, whether anybody claims it or not. Truth for the reaper."""
