"""Job arrays: one manifest for many jobs, which differ in their index alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from starburst.domain.job import Member, Submission
from translator.field import Field

MAX_MEMBERS = 10_000
MAX_INDEX = 99_999
#: Letters of an array's id, so that those of its jobs, with a dash and the index behind it, are labels.
MAX_ID = 63 - len(f"-{MAX_INDEX}")

_SPAN = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?:%([0-9]{1,9}))?")
_HOW = "write the first and last index, such as 0-99, and %10 behind it for at most 10 jobs at a time"


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The indices of an array, and how many of its jobs may have or wait for a place at a time."""

    first: int
    last: int
    at_once: int | None = None

    def first_member(self, array: str) -> Member:
        """Of an array's jobs, the place of the first."""
        return Member(array, self.first, self.last - self.first + 1, self.at_once)


def read_span(field: Field) -> IndexRange | None:
    """What the annotation starburst.io/array says."""
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
    """The number of jobs of a submission, which may be the first of an array."""
    return 1 if item.job.array is None else item.job.array.size


def members(item: Submission) -> list[Submission]:
    """The jobs of a submission: itself, unless it is the first of an array."""
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
