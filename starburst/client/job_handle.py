"""Handles of jobs that Python started: their state, log, end and result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, overload

from starburst.client.connection import NotFoundError, StarburstError
from starburst.client.job_access import JobAccess, JsonRow

#: Seconds before the end of a job from which on its log is asked for first; a result is its last lines.
_END_S = 60.0


class JobFailedError(StarburstError):
    """The job failed or was cancelled, without an exception that could come back."""


class NoResultError(StarburstError):
    """The job succeeded, and the value of its function did not come back."""


class RemoteTracebackError(Exception):
    """The cause of an exception that a function raised in its job: the traceback there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job; `key` opens the result of its function, "" if it is a command."""

    client: JobAccess = field(repr=False, compare=False)
    id: str
    key: str = field(default="", repr=False)

    @property
    def reference(self) -> str:
        """A text from which `Client.attach` makes this handle again. Its key is a secret."""
        return f"{self.id}:{self.key}" if self.key else self.id

    def status(self) -> JsonRow:
        """The job as `starburst status -o json` has it; `phase` among others.

        Raises:
            NotFoundError: it does not exist, or no more.
        """
        found = self.client.jobs_by_id([self.id])
        if not found:
            raise NotFoundError(404, f"there is no job {self.id!r}, or no more")
        return found[0]

    def logs(
        self, *, follow: bool = False, attempt: int | None = None, rank: int | None = None
    ) -> Iterator[str]:
        """The log in pieces, without the lines of the result; with `follow` until the job ends."""
        texts = self.client.logs(self.id, follow=follow, attempt=attempt, rank=rank)
        if not self.key:
            return texts
        from starburst.client.calls.returned import without_returned  # noqa: PLC0415 - commands do not need it

        return without_returned(texts, bytes.fromhex(self.key))

    def wait(self, timeout_s: float | None = None) -> JsonRow:
        """Wait for the end; the job as it ended.

        Raises:
            TimeoutError: after `timeout_s` wall seconds.
        """
        return self.client.wait([self.id], timeout_s=timeout_s)[0]

    def cancel(self, *, now: bool = False) -> JsonRow:
        """Ask for the cancellation; the job as it was before. `now` gives no grace, and is for admins."""
        return self.client.cancel(self.id, now=now)

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the end; what the function returned, None of a command.

        What the function raised is raised here, with the traceback of the job as its cause.

        Raises:
            JobFailedError: the job failed or was cancelled otherwise.
            NoResultError: it succeeded, and the value is too large, cannot be pickled, or its log is gone.
            TimeoutError: after `timeout_s` wall seconds.
        """
        row = self.wait(timeout_s)
        returned = self._returned(row) if self.key else None
        failed = f"job/{self.id} {row['phase']}: {row['message']}"
        if row["phase"] == "succeeded":
            if not self.key:
                return None
            if returned is None:
                raise NoResultError(
                    f"job/{self.id} succeeded and its log has no result: its process ended before the "
                    "function returned, or the log is kept no more"
                )
            if returned.kind == "unkept":
                raise NoResultError(
                    f"job/{self.id} returned a value that does not come back: {returned.text}"
                )
            return self._loaded(returned)
        if returned is None or returned.kind != "error":
            raise JobFailedError(failed)
        error = self._loaded(returned) if returned.pickled else None
        if not isinstance(error, BaseException):
            raise JobFailedError(f"{failed}\n{returned.text}")
        raise error from RemoteTracebackError(returned.text)

    def _returned(self, row: JsonRow) -> Any:
        """The result in the end of the log, or wherever it is: the end may be noticed late."""
        from starburst.client.calls.returned import read_returned  # noqa: PLC0415 - commands do not need it

        end = datetime.fromisoformat(row["ended_at"]) - timedelta(seconds=_END_S)
        for since in (end.isoformat(), None):
            texts = self.client.logs(self.id, rank=0, since=since)
            found = read_returned(texts, bytes.fromhex(self.key))
            if found is not None:
                return found
        return None

    def _loaded(self, returned: Any) -> Any:
        try:
            return returned.load()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            what = f"job/{self.id}: the {returned.kind} cannot be unpickled here ({why})"
            if returned.kind == "error":
                raise JobFailedError(f"{what}\n{returned.text}") from error
            raise NoResultError(what) from error


@dataclass(frozen=True, slots=True)
class JobArray(Sequence[JobHandle]):
    """The jobs of an array, in the order of their indices; each method does the same for all of them."""

    id: str
    jobs: tuple[JobHandle, ...]

    def __len__(self) -> int:
        return len(self.jobs)

    @overload
    def __getitem__(self, index: int) -> JobHandle: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JobHandle]: ...
    def __getitem__(self, index: int | slice) -> JobHandle | Sequence[JobHandle]:
        return self.jobs[index]

    @property
    def reference(self) -> str:
        """As of a job."""
        key = self.jobs[0].key
        return f"{self.id}:{key}" if key else self.id

    def status(self) -> list[JsonRow]:
        """The jobs."""
        return self._client.jobs_by_id([job.id for job in self.jobs])

    def logs(
        self, *, follow: bool = False, attempt: int | None = None, rank: int | None = None
    ) -> list[Iterator[str]]:
        """The log of each, as of a job."""
        return [job.logs(follow=follow, attempt=attempt, rank=rank) for job in self.jobs]

    def wait(self, timeout_s: float | None = None) -> list[JsonRow]:
        """Wait for the end of all; the jobs as they ended."""
        return self._client.wait([job.id for job in self.jobs], timeout_s=timeout_s)

    def cancel(self, *, now: bool = False) -> list[JsonRow]:
        """Ask for the cancellation of all; the jobs as they were before."""
        return [job.cancel(now=now) for job in self.jobs]

    def result(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for the end of all; what each function returned. The first exception by index is raised."""
        self.wait(timeout_s)
        return [job.result() for job in self.jobs]

    @property
    def _client(self) -> JobAccess:
        return self.jobs[0].client
