"""What can go wrong with the store, as one sentence each."""

from __future__ import annotations

from collections.abc import Sequence


class StoreError(Exception):
    """The store cannot do what was asked of it."""


class UnusableError(StoreError):
    """The database cannot be used now; it is whole, and what was acknowledged is in it."""

    #: In a few words, without names of places or programs.
    kind = "the store is out of reach"


class BusyError(UnusableError):
    """Others use it, for longer than was waited for."""

    kind = "the store is busy"


class DiskFullError(UnusableError):
    """It cannot grow: the disk is full, or a quota used up."""

    kind = "the disk is full"


class DamagedError(StoreError):
    """What lies there is no database, or not a whole one."""


class DuplicateJobError(StoreError):
    """A job of this id is there already."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is a job {job_id!r} already; give the new one another name")
        self.job_id = job_id


class JobNotFoundError(StoreError):
    """No job answers to this id, name or prefix."""

    def __init__(self, text: str, close: Sequence[str]) -> None:
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        super().__init__(f"there is no job {text!r}{hint}")
        self.text = text
        self.close = tuple(close)


class AmbiguousJobError(StoreError):
    """Several jobs answer to this name or prefix."""

    def __init__(self, text: str, candidates: Sequence[str]) -> None:
        shown = ", ".join(candidates[:5])
        more = f" and {len(candidates) - 5} more" if len(candidates) > 5 else ""
        super().__init__(f"{text!r} could be {shown}{more}; give the whole id")
        self.text = text
        self.candidates = tuple(candidates)
