"""Jobs as arguments: what `-o name` prints (`job/ID`), and members of an array (`sweep[3]`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starburst.app.errors import UserError
from starburst.cli.backend.backend import Backend
from starburst.cli.jobs.folding import array_of
from starburst.domain.array import member_id
from starburst.store.errors import StoreError
from starburst.store.listings.row_types import JobRow

_MEMBER = re.compile(r"(.+)\[([0-9]{1,6})\]")


def one_job(backend: Backend, text: str) -> JobRow:
    """The job that an argument names.

    Raises:
        UserError: an array has no job of this index.
        StoreError: no job or several jobs have this name.
    """
    name = _name(text)
    member = _MEMBER.fullmatch(name)
    if member is None:
        return _alone(backend, name)
    array, index = member[1], int(member[2])
    found = _member(backend, member_id(array, index))
    if found is None:  # the array is named by its beginning, or a job has the name of its job
        found = next((row for row in backend.named([array]) if row.id.endswith(f"-{index}")), None)
    if found is None:
        raise UserError(f"{array} has no job with the index {index}")
    return found


def _member(backend: Backend, name: str) -> JobRow | None:
    """The job of an array with this very id or name."""
    try:
        row = backend.job(name)
    except (StoreError, UserError):
        return None
    return row if name in (row.id, row.name) and array_of(row.id, row.name) else None


def _alone(backend: Backend, name: str) -> JobRow:
    """The job of this name.

    Raises:
        UserError: it is an array.
        StoreError: no job or several jobs have this name.
    """
    try:
        return backend.job(name)
    except (StoreError, UserError):
        rows = backend.named([name])  # raises the same if there is no array either
    if len(rows) == 1:
        return rows[0]
    raise UserError(
        f"{name} is an array of {len(rows):,} jobs; name one, such as '{name}[{_index(rows[0])}]'"
    )


def _index(row: JobRow) -> str:
    return row.id.rpartition("-")[2]


def job_ids(backend: Backend, texts: Iterable[str]) -> list[str]:
    """The arguments as ids and names that the backend knows; the name of an array is kept."""
    names = [_name(text) for text in texts]
    return [one_job(backend, name).id if _MEMBER.fullmatch(name) else name for name in names]


def _name(text: str) -> str:
    """A job's name without what `-o name` prints before it.

    Raises:
        UserError: it names a CronJob.
    """
    if text.startswith("cronjob/"):
        raise UserError(f"{text}: is a CronJob; name one of its jobs, which starburst cronjobs lists")
    return text.removeprefix("job/")
