"""Arrays in the store: one row, out of which the scheduler takes up the jobs.

A row has the range of indices that are left. Jobs are taken up in order, but for those that a request is
about: within the range, a job that has a row of its own, or is rolled up, is taken up already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from starburst.domain.array import arrays_of, member, member_id, member_ids
from starburst.domain.job import Submission
from starburst.store import codec
from starburst.store.errors import DuplicateJobError
from starburst.store.listings import array_rows
from starburst.store.listings.array_rows import ArrayRow
from starburst.store.rows import TableRow, chunks
from starburst.store.schema import arrays, requests
from starburst.store.statements import asker
from starburst.store.statements import first as any_of

#: How many more jobs of an array may be taken up, of its id and its limit of jobs at a time (None: has none).
Room = Callable[[str, int | None], int]

_insert = insert(arrays)
_newest = select(func.max(requests.c.seq))
_body = select(arrays.c.body).where(arrays.c.id == bindparam("array"))
_advance = (
    update(arrays)
    .where(arrays.c.id == bindparam("array"))
    .values(first_index=bindparam("first"), jobs_left=arrays.c.jobs_left - bindparam("taken"))
)
_empty = delete(arrays).where((arrays.c.jobs_left <= 0) | (arrays.c.first_index > arrays.c.last_index))


@dataclass(frozen=True, slots=True)
class TakenJobs:
    """How many jobs of an array a step takes up, and the first index that may be left then."""

    array: str
    count: int
    first_index: int


@dataclass(frozen=True, slots=True)
class ArrayJobs:
    """Jobs of arrays for a step to take up, none before those that it comes after."""

    submissions: Sequence[Submission]
    taken: Sequence[TakenJobs]
    #: The limits of the arrays that have jobs left then, by id.
    left: Mapping[str, int | None]
    #: When the arrays of the submissions were submitted, by id; wall seconds.
    created_at: Mapping[str, float]


def put(conn: Connection, item: Submission, now_wall: float) -> None:
    """Store an array.

    Raises:
        DuplicateJobError: an array of this id has been taken up.
        IntegrityError: or is there.
    """
    its_first = member_ids(item)[:1]
    for table, column in (("jobs", "id"), ("requests", "job_id"), ("history", "id")):
        if (taken := any_of(conn, table, column, its_first)) is not None:
            raise DuplicateJobError(taken)
    conn.execute(_insert, _row(item, conn.scalar(_newest) or 0, now_wall))


def holder(conn: Connection, job_ids: Iterable[str]) -> str | None:
    """One of these ids that is within an array that has a row."""
    of = arrays_of(job_ids)
    for some in chunks(list(of)):
        for row in array_rows.rows(asker(conn), ids=some):
            for index in of[row.id]:
                if index <= row.last_index:
                    return member_id(row.id, index)
    return None


def submission(conn: Connection, job_id: str) -> Submission | None:
    """A job of an array that is not taken up, by its id."""
    ask, of = asker(conn), arrays_of([job_id])
    for row in array_rows.rows(ask, ids=of) if of else ():
        for index in array_rows.asked(ask, row, of[row.id]):
            return member(_whole(conn, row.id), index)
    return None


def take(conn: Connection, most: int, room: Room, asked: Iterable[str], before: float) -> ArrayJobs:
    """The jobs of arrays to take up next: those `asked` for by id, and at most `most` more.

    These are of arrays that are older than request number `before`: what their jobs may come after is taken
    up. They share `most`, the oldest one has the rest; each as many as there is `room` for. A job in another
    array that one of them comes after is taken up, too, and comes first.
    """
    ask = asker(conn)
    picks = {row.id: _Picks(row) for row in array_rows.rows(ask)}
    wanted = {
        pick.row.id: room(pick.row.id, pick.row.at_once) if pick.row.after_request < before else 0
        for pick in picks.values()
    }
    share = most // max(1, sum(number > 0 for number in wanted.values()))
    spare = most - sum(min(number, share) for number in wanted.values())
    names = list(asked)
    for name, pick in picks.items():
        number = min(wanted[name], share + max(0, spare))
        spare -= max(0, number - share)
        names += pick.next(conn, number)
    while names:
        names = [
            name
            for array, indices in arrays_of(names).items()
            if array in picks
            for name in picks[array].add(conn, indices)
        ]
    return ArrayJobs(
        [job for pick in picks.values() for job in pick.jobs()],
        [TakenJobs(name, len(pick.indices), pick.first) for name, pick in picks.items() if pick.indices],
        {name: pick.row.at_once for name, pick in picks.items() if len(pick.indices) < pick.row.jobs_left},
        {name: pick.row.created_at for name, pick in picks.items() if pick.indices},
    )


def advance(conn: Connection, taken: Sequence[TakenJobs]) -> None:
    """Note that these jobs are taken up; the row of an array without any left is removed."""
    for one in taken:
        conn.execute(_advance, {"array": one.array, "first": one.first_index, "taken": one.count})
    if taken:
        conn.execute(_empty)


class _Picks:
    """The jobs of one array that are taken up now."""

    def __init__(self, row: ArrayRow) -> None:
        self.row = row
        self.indices: dict[int, None] = {}
        #: The first index that may be left then.
        self.first = row.first_index
        self._whole: Submission | None = None

    def next(self, conn: Connection, number: int) -> Sequence[str]:
        """Add the next jobs; what they come after, if they are the first ones."""
        found = list(islice(array_rows.indices(asker(conn), self.row), number))
        self.first = found[-1] + 1 if found else self.first
        return self._added(conn, found)

    def add(self, conn: Connection, indices: Collection[int]) -> Sequence[str]:
        """Add these jobs as far as they are left; what they come after, if they are the first ones."""
        return self._added(conn, array_rows.asked(asker(conn), self.row, indices))

    def jobs(self) -> Iterator[Submission]:
        """The submissions."""
        for index in self.indices:
            assert self._whole is not None
            yield member(self._whole, index)

    def _added(self, conn: Connection, indices: Sequence[int]) -> Sequence[str]:
        self.indices |= dict.fromkeys(indices)
        if not indices or self._whole is not None:
            return ()
        self._whole = _whole(conn, self.row.id)
        return self._whole.job.comes_after


def _whole(conn: Connection, array: str) -> Submission:
    return codec.decode(Submission, conn.scalar(_body, {"array": array}) or "")


def _row(item: Submission, after_request: int, now_wall: float) -> TableRow:
    job, place = item.job, item.job.array
    assert place is not None  # else it is one job
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "need": str(job.resources),
        "at_once": place.at_once,
        "first_index": place.index,
        "last_index": place.index + place.size - 1,
        "jobs_left": place.size,
        "after_request": after_request,
        "body": codec.encode_brief(item),
        "created_at": now_wall,
    }
