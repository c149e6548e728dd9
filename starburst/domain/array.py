"""Job arrays: one submission for many jobs, which differ in their index only.

An array is submitted whole: a submission under the array's own id, with the place of its first job. Its jobs
are made of it one by one, when the scheduler takes them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # listings that start fast import this, and not what a job is
    from starburst.domain.job import Job, Submission

MAX_INDEX = 99_999
#: Longest id of an array, such that its jobs' ids, with a dash and the index appended, are valid labels.
MAX_ID = 63 - len(f"-{MAX_INDEX}")

_MEMBER = re.compile(r"(.+)-(0|[1-9][0-9]{0,4})", re.DOTALL)


def array_id(job_id: str) -> str:
    """An id for an array: the end of this one, short enough to append an index."""
    return job_id[-MAX_ID:].lstrip("-.")


def member_id(array: str, index: int) -> str:
    """The id or name of a job, of the id or name of its array."""
    return f"{array}-{index}"


def place_of(job_id: str) -> tuple[str, int] | None:
    """The array and the index in an id or name, if it has the form of that of an array's job."""
    found = _MEMBER.fullmatch(job_id)
    return None if found is None else (found[1], int(found[2]))


def arrays_of(job_ids: Iterable[str]) -> dict[str, list[int]]:
    """The indices by array, of those ids or names that have the form."""
    found: dict[str, list[int]] = {}
    for place in filter(None, map(place_of, job_ids)):
        found.setdefault(place[0], []).append(place[1])
    return found


def is_whole(job: Job) -> bool:
    """Whether this stands for all jobs of an array."""
    return job.array is not None and job.id == job.array.array


def jobs_in(item: Submission) -> int:
    """The number of jobs of a submission; those of a CronJob at each tick."""
    return item.job.array.size if item.job.array is not None and is_whole(item.job) else 1


def member_ids(item: Submission) -> list[str]:
    """The ids of the jobs of a submission; a CronJob has its own."""
    job, place = item.job, item.job.array
    if place is None or not is_whole(job) or item.timing is not None:
        return [job.id]
    return [member_id(job.id, index) for index in range(place.index, place.index + place.size)]


def member(whole: Submission, index: int) -> Submission:
    """The job of an array with this index."""
    job, place = whole.job, whole.job.array
    assert place is not None  # else it is no array
    return replace(
        whole,
        job=replace(
            job,
            id=member_id(job.id, index),
            name=member_id(job.name, index),
            array=replace(place, index=index),
        ),
    )


def members(item: Submission) -> list[Submission]:
    """The jobs of a submission: those of the array if it stands for one, else itself, as a CronJob is."""
    place = item.job.array
    if place is None or not is_whole(item.job) or item.timing is not None:
        return [item]
    return [member(item, index) for index in range(place.index, place.index + place.size)]
