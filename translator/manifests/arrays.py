"""Job arrays: the annotation starburst.io/array."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from starburst.domain.array import MAX_INDEX
from starburst.domain.job import Member
from translator.field import Field

MAX_MEMBERS = MAX_INDEX + 1

_SPAN = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?:%([0-9]{1,9}))?")
_HOW = "write the first and last index, such as 0-99, and %10 behind it for at most 10 jobs at a time"
#: The annotation and label in which pods of an Indexed Job have their index.
_INDEX = "batch.kubernetes.io/job-completion-index"
_READ_INDEX = (
    "is of an Indexed Job, and the jobs of an array are none; read $JOB_COMPLETION_INDEX in the command"
)
_READ_JOB = "read $STARBURST_JOB in the command, of which each job has its own"
_OF_INDEXES = (
    "is of the indexes of one Job, and here each of them is a job of an array; remove it, and write "
    "starburst.io/retries for each, or parallelism equal to completions to run all at once as one Job"
)


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The indices of an array, and the largest number of its jobs that may be queued or running at a time."""

    first: int
    last: int
    at_once: int | None = None

    def first_member(self, array: str) -> Member:
        """The first member of an array with this id."""
        return Member(array, self.first, self.last - self.first + 1, self.at_once)


def judge_indexes(spec: Field, tasks: int, *, noted: bool) -> None:
    """Refuse what a Job says or asks of its indexes where each of them is a job of an array, and note what
    counts for each; `noted` is false where the user asked for an array. Each of its jobs has so many tasks.
    """
    template = spec.at("template")
    for path in paths_of_fields(template.at("spec") if template.value is not None else spec):
        if tasks == 1 and _INDEX in str(path.value):
            path.refuse(_READ_INDEX)
        elif path.value == "metadata.name":
            path.stay("the names of pods", "is one name for all jobs of the array there", _READ_JOB)
    if tasks > 1:
        return
    for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        found = spec.at(key)
        if found.value is not None and (found.report.native or key == "successPolicy"):
            found.refuse(_OF_INDEXES, show=False)
    if noted and spec.at("activeDeadlineSeconds").value is not None:
        spec.at("activeDeadlineSeconds").note(
            "counts for each job of the array, not for all of them together"
        )


def paths_of_fields(pod: Field) -> Iterator[Field]:
    """The `fieldPath` of each variable and file of a pod, but for a variable that Starburst sets itself."""
    for container in pod.at("containers").items():
        for variable in container.at("env").items():
            if variable.at("name").value != "JOB_COMPLETION_INDEX":
                yield variable.at("valueFrom").at("fieldRef").at("fieldPath")
    for volume in pod.at("volumes").items():
        for source in (volume, *volume.at("projected").at("sources").items()):
            for item in source.at("downwardAPI").at("items").items():
                yield item.at("fieldRef").at("fieldPath")


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
