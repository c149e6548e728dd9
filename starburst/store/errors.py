"""Errors of the store; each message is one sentence."""

from __future__ import annotations

from collections.abc import Sequence


class StoreError(Exception):
    """An operation of the store failed."""


class UnusableError(StoreError):
    """The database cannot be used now; it is intact, and acknowledged writes are in it."""

    #: Short description without paths and programs, for answers over HTTP.
    kind = "the store is out of reach"


class BusyError(UnusableError):
    """Other processes held the lock for longer than the busy timeout."""

    kind = "the store is busy"


class DiskFullError(UnusableError):
    """The database cannot grow: the disk is full or a quota is used up."""

    kind = "the disk is full"


class FencedError(StoreError):
    """A write was refused: the process that made it does not lead any more."""


class LostError(UnusableError):
    """The connection to the database was lost; the transaction did not take effect."""


class UnsureError(UnusableError):
    """The connection was lost during a commit, and the database cannot be asked whether it took effect."""

    kind = "it is not known whether the store has taken a write"

    def __init__(self, problem: str, write: object) -> None:
        """`write` names the transaction to the database it was sent to."""
        super().__init__(
            f"{problem}; it is not known whether the last write took effect: look before you repeat it"
        )
        self.write = write


class DamagedError(StoreError):
    """The file is not a database, or is corrupt."""


class DuplicateJobError(StoreError):
    """A job with this id exists already."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is a job {job_id!r} already; give the new one another name")
        self.job_id = job_id


class JobNotFoundError(StoreError):
    """No job has this id, name or prefix."""

    def __init__(self, text: str, close: Sequence[str]) -> None:
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        super().__init__(f"there is no job {text!r}{hint}")
        self.text = text
        self.close = tuple(close)


class RolledUpError(JobNotFoundError):
    """The job ended so long ago that its record was removed."""

    def __init__(self, job_id: str, phase: str) -> None:
        StoreError.__init__(
            self,
            f"job {job_id!r} has {phase} longer ago than home.keep: its record is gone, its bill was kept",
        )
        self.text, self.close = job_id, ()
        #: How it ended.
        self.phase = phase


class CronJobNotFoundError(StoreError):
    """No CronJob has this id, name or prefix."""

    def __init__(self, text: str, known: Sequence[str]) -> None:
        shown = ", ".join(known[:5])
        hint = f"there are {shown}" if known else "there are none; submit one with starburst submit"
        super().__init__(f"there is no CronJob {text!r}; {hint}")


class AmbiguousJobError(StoreError):
    """Several jobs have this name or prefix."""

    def __init__(self, text: str, candidates: Sequence[str], *, is_name: bool = False) -> None:
        """`is_name`: the name of each is the text."""
        shown = ", ".join(candidates[:5])
        more = f" and {len(candidates) - 5} more" if len(candidates) > 5 else ""
        super().__init__(f"{text!r} could be {shown}{more}; give the whole id")
        self.text = text
        self.candidates = tuple(candidates)
        self.is_name = is_name
