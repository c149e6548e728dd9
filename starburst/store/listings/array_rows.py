"""Arrays with jobs that the scheduler has not taken up, and these jobs, in plain SQL.

An array has one row; its jobs are listed one by one all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from starburst.domain.array import arrays_of, member_id, place_of
from starburst.domain.phase import Phase
from starburst.store.listings.plain_sql import CHUNK, Ask, pace, where
from starburst.store.listings.row_types import SUBMITTED, JobRow

#: How a text may mean a job.
Match = Literal["id", "name", "beginning"]


class ArrayRow(NamedTuple):
    """An array; its jobs that are not taken up are `jobs_left` within the range of indices."""

    seq: int
    id: str
    name: str
    user: str
    queue: str
    need: str
    #: How many of its jobs may queue or run at a time; None is all.
    at_once: int | None
    first_index: int
    last_index: int
    jobs_left: int
    #: Number of the newest request when it was stored: what its jobs come after is no newer.
    after_request: int
    #: Wall seconds.
    created_at: float

    @property
    def phase(self) -> str:
        """The phase of its jobs that are not taken up: those of an array with a limit wait for their turn."""
        return SUBMITTED if self.at_once is None else Phase.BLOCKED.value


_COLUMNS = ", ".join(f'"{name}"' for name in ArrayRow._fields)
_ARRAYS = f"SELECT {_COLUMNS} FROM arrays"


def rows(
    ask: Ask,
    *,
    user: str | None = None,
    queues: Collection[str] | None = None,
    ids: Collection[str] | None = None,
    phases: Collection[str] = (),
) -> list[ArrayRow]:
    """The arrays, in order of arrival; with `phases`, those whose jobs are in one of these."""
    chosen, values = where(('"user"', user), ("queue", queues), ("id", ids))
    found = [ArrayRow(*row) for row in ask(f"{_ARRAYS}{chosen} ORDER BY seq", values)]
    return [row for row in found if not phases or row.phase in phases]


def left(ask: Ask, row: ArrayRow, indices: Sequence[int]) -> list[int]:
    """Those of these indices, all within the row's range, whose jobs are not taken up."""
    if row.jobs_left == row.last_index - row.first_index + 1:
        return list(indices)
    found: list[int] = []
    for at in range(0, len(indices), CHUNK):
        ids = {member_id(row.id, index): index for index in indices[at : at + CHUNK]}
        for table in ("jobs", "history"):
            chosen, values = where(("id", list(ids)))
            for (job_id,) in ask(f"SELECT id FROM {table}{chosen}", values):
                ids.pop(job_id, None)
        found += ids.values()
    return found


def indices(ask: Ask, row: ArrayRow, *, after: int = -1, newest: bool = False) -> Iterator[int]:
    """The indices of the jobs that are not taken up, those above `after`; the newest job is the last one."""
    every = range(max(row.first_index, after + 1), row.last_index + 1)
    if newest:
        every = every[::-1]
    for at in range(0, len(every), CHUNK):
        yield from left(ask, row, every[at : at + CHUNK])


def jobs(
    ask: Ask,
    *,
    phases: Collection[str] = (),
    user: str | None = None,
    ids: Collection[str] | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """The jobs that are not taken up, newest first."""
    wanted = None if ids is None else arrays_of(ids)
    if wanted is not None and not wanted:
        return []
    arrays = rows(ask, user=user, ids=wanted, phases=phases)
    found = (
        (row, index)
        for row in reversed(arrays)
        for index in (
            indices(ask, row, newest=True) if wanted is None else asked(ask, row, wanted[row.id])[::-1]
        )
    )
    clock = pace(ask) if arrays else None
    return [
        JobRow(
            member_id(row.id, index),
            member_id(row.name, index),
            row.user,
            row.queue,
            row.need,
            row.phase,
            row.created_at if clock is None else clock.scheduler_time(row.created_at),
            message=_turn(row),
        )
        for row, index in islice(found, limit)
    ]


def asked(ask: Ask, row: ArrayRow, indices: Collection[int]) -> list[int]:
    """Those of these indices that are in the row and not taken up, ascending."""
    return left(ask, row, sorted({i for i in indices if row.first_index <= i <= row.last_index}))


def matching(ask: Ask, row: ArrayRow, text: str, match: Match) -> list[int]:
    """The indices of the jobs that are not taken up and whose id or name is the text, or begins with it."""
    if match == "beginning":
        begins = tuple(_index_begins(text, base) for base in (row.id, row.name))
        known = tuple(begin for begin in begins if begin is not None)
        return [index for index in indices(ask, row) if str(index).startswith(known)] if known else []
    place = place_of(text)
    if place is None or place[0] != (row.id if match == "id" else row.name):
        return []
    return asked(ask, row, [place[1]])


def _index_begins(text: str, base: str) -> str | None:
    """With what the index begins of a job whose id or name begins with the text; None if none does."""
    before = f"{base}-"
    if before.startswith(text):
        return ""
    return text.removeprefix(before) if text.startswith(before) else None


def _turn(row: ArrayRow) -> str:
    if row.at_once is None:
        return ""
    jobs = "job" if row.at_once == 1 else "jobs"
    return f"waits for its turn: at most {row.at_once} {jobs} of {row.id} at a time"
