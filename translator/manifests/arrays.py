"""Job arrays: one manifest for many jobs, which differ in their index only."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from starburst.domain.job import Member, Submission
from translator.field import Field

MAX_MEMBERS = 10_000
MAX_INDEX = 99_999
#: Longest id of an array, such that its jobs' ids, with a dash and the index appended, are valid labels.
MAX_ID = 63 - len(f"-{MAX_INDEX}")

_SPAN = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?:%([0-9]{1,9}))?")
_HOW = "write the first and last index, such as 0-99, and %10 behind it for at most 10 jobs at a time"


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The indices of an array, and the largest number of its jobs that may be queued or running at a time."""

    first: int
    last: int
    at_once: int | None = None

    def first_member(self, array: str) -> Member:
        """The first member of an array with this id."""
        return Member(array, self.first, self.last - self.first + 1, self.at_once)


def read_span(field: Field) -> IndexRange | None:
    """The value of the annotation starburst.io/array; None if it is absent or invalid."""
    text = field.text()
    if text is None:
        return None
    found = _SPAN.fullmatch(text.replace(" ", ""))
    if found is None:
        field.refuse(_HOW)
        return None
    first, last, at_once = (None if part is None else int(part) for part in found.groups())
    assert first is not None
    assert last is not None
    if first > last or last > MAX_INDEX or last - first >= MAX_MEMBERS or at_once == 0:
        field.refuse(f"{_HOW}; at most {MAX_MEMBERS} jobs, the last index at most {MAX_INDEX}")
        return None
    return IndexRange(first, last, at_once)


def jobs_in(item: Submission) -> int:
    """The number of jobs of a submission: the size of the array if it is a first member, else 1."""
    return 1 if item.job.array is None else item.job.array.size


def members(item: Submission) -> list[Submission]:
    """The jobs of a submission: all members of the array if it is a first member, else itself."""
    job, place = item.job, item.job.array
    if place is None:
        return [item]
    array = place.array[-MAX_ID:].lstrip("-.")
    return [
        replace(
            item,
            job=replace(
                job,
                id=f"{array}-{index}",
                name=f"{job.name}-{index}",
                array=replace(place, array=array, index=index),
            ),
        )
        for index in range(place.index, place.index + place.size)
    ]
