"""The interface between commands and a Starburst, local or remote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from starburst.app.jobs.job_keys import Keys
    from starburst.app.jobs.serializers import InstanceRow
    from starburst.app.logs.sites import LogPart
    from starburst.app.reading.sources import ManifestText
    from starburst.domain.job import JobEdit
    from starburst.store.listings.costs import CostRow
    from starburst.store.listings.row_types import DecisionRow, JobRow


class JobLister(Protocol):
    """The part of a `Backend` that lists jobs. Times are scheduler seconds."""

    @property
    def poll_s(self) -> float:
        """Wall seconds between two polls of a watching command."""

    def now(self) -> float:
        """The present on the scheduler's clock."""

    def note_if_down(self) -> None:
        """Print a note if no scheduler runs: listings do not change, and requests wait."""

    def jobs(
        self,
        *,
        phases: Collection[str] | None = None,
        user: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[JobRow]:
        """Jobs in order of arrival."""


class Backend(JobLister, Protocol):
    """Operations of a Starburst. Jobs are named by id, name or unique prefix."""

    def is_away(self, error: Exception) -> bool:
        """Whether an error says that the store or the server cannot be asked at present."""

    def job(self, text: str) -> JobRow:
        """One job."""

    def named(self, names: Sequence[str]) -> list[JobRow]:
        """The jobs with these names; the name of an array stands for all of its jobs."""

    def explain(self, row: JobRow) -> Keys:
        """The keys of `starburst explain` except `id`."""

    def decisions(
        self, subject: str | None = None, *, after_seq: int = 0, last: int | None = None
    ) -> list[DecisionRow]:
        """Decisions, or the part about one job or machine by id."""

    def instances(self, *, include_ended: bool = False) -> list[InstanceRow]:
        """The rented machines."""

    def cost(self, by: str) -> list[CostRow]:
        """The cloud's bill."""

    def caps(self) -> list[Keys]:
        """The spending caps and their present state."""

    def nodes(self) -> list[Keys]:
        """The nodes of the cluster and their free capacity."""

    def queues(self) -> list[Keys]:
        """The queues and the numbers of their jobs by phase."""

    def cron_jobs(self) -> list[Keys]:
        """The CronJobs."""

    def cron_job(self, name: str) -> Keys:
        """One CronJob."""

    def steer_cron_job(self, how: str, name: str) -> Keys:
        """Cancel, hold or release (`how`) a CronJob, as it was before."""

    def log(
        self,
        row: JobRow,
        part: LogPart,
        write: Callable[[str], None],
        *,
        follow: bool,
        note: Callable[[str], None],
    ) -> bool:
        """Write a job's log, with `follow` until the job ends; whether there was any log."""

    def submit(
        self,
        sources: Sequence[ManifestText],
        *,
        dry_run: bool,
        hold: bool = False,
        allow_unsatisfiable: bool = False,
    ) -> list[Keys]:
        """Submit all or nothing, possibly held; the keys of `starburst submit`, or of its dry run.

        `allow_unsatisfiable`: also what no node and no offer could ever hold.
        """

    def cancel(self, names: Sequence[str], *, now: bool = False) -> list[JobRow]:
        """Request cancellation, possibly without a grace; the jobs as they were before."""

    def hold(self, names: Sequence[str]) -> list[JobRow]:
        """Request that pending jobs be held; the jobs as they were before."""

    def release(self, names: Sequence[str]) -> list[JobRow]:
        """Request that held jobs be released; the jobs as they were before."""

    def requeue(self, names: Sequence[str]) -> list[JobRow]:
        """Request that runs be stopped and their jobs queue again; the jobs as they were before."""

    def edit(self, names: Sequence[str], edit: JobEdit) -> list[JobRow]:
        """Request changes of jobs that wait; the jobs as they were before."""
