"""What commands ask and tell a Starburst, wherever it is: at home, or behind its HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from starburst.app.jobs.serializers import InstanceRow, Keys
from starburst.app.logs.job_log import LogPart
from starburst.app.reading.sources import ManifestText
from starburst.store.costs import CostRow
from starburst.store.queries import DecisionRow, JobRow


class Backend(Protocol):
    """A JOB is an id, a name, or the beginning of one; times are the scheduler's, in seconds."""

    @property
    def poll_s(self) -> float:
        """Wall seconds between looks for what may have changed."""

    def now(self) -> float:
        """The present on the scheduler's clock."""

    def note_if_down(self) -> None:
        """Say so when no scheduler runs: what is shown stands still, what is asked for waits."""

    def jobs(
        self,
        *,
        phases: Collection[str] | None = None,
        user: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[JobRow]:
        """Jobs in order of arrival."""

    def job(self, text: str) -> JobRow:
        """One job."""

    def named(self, names: Sequence[str]) -> list[JobRow]:
        """All jobs of these names, where that of an array is all of its."""

    def explain(self, row: JobRow) -> Keys:
        """Where a job stands and why: the keys of `starburst explain` but `id`."""

    def decisions(
        self, subject: str | None = None, *, after_seq: int = 0, last: int | None = None
    ) -> list[DecisionRow]:
        """The decision log, or a part of it, by the id of a job or machine."""

    def instances(self, *, include_ended: bool = False) -> list[InstanceRow]:
        """The rented machines."""

    def cost(self, by: str) -> list[CostRow]:
        """The cloud's bill."""

    def caps(self) -> list[Keys]:
        """How the caps on spending stand."""

    def log(
        self,
        row: JobRow,
        part: LogPart,
        write: Callable[[str], None],
        *,
        follow: bool,
        note: Callable[[str], None],
    ) -> bool:
        """Write what a job wrote, with `follow` until it is over; whether there was any log."""

    def submit(self, sources: Sequence[ManifestText], *, dry_run: bool, hold: bool = False) -> list[Keys]:
        """Hand in everything or nothing, perhaps held: the keys of `starburst submit`, or of its dry run."""

    def cancel(self, names: Sequence[str], *, now: bool = False) -> list[JobRow]:
        """Have jobs cancelled, perhaps without a grace: how they stood before."""

    def hold(self, names: Sequence[str]) -> list[JobRow]:
        """Have jobs that wait held: how they stood before."""

    def release(self, names: Sequence[str]) -> list[JobRow]:
        """Have held jobs released: how they stood before."""
