"""Arrays in a listing of jobs: one row with counts stands for the jobs of an array."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from starburst.domain.phase import Phase
from starburst.store.listings.row_types import SUBMITTED, JobRow

ORDER = (SUBMITTED, *(phase.value for phase in Phase))


def array_of(job_id: str, name: str) -> str:
    """The id of the array that a job belongs to, by the form of its id and name; "" if to none."""
    base, dash, index = name.rpartition("-")
    array = job_id.removesuffix(f"-{index}")
    is_member = base and dash and index.isdigit() and array != job_id
    return array if is_member and job_id != name and not job_id.startswith(f"{name}-") else ""


def folded(rows: Sequence[JobRow]) -> list[JobRow]:
    """The rows, with one for the jobs of an array at the place of the first of them.

    That row has the id `ARRAY[FIRST-LAST]`, the counts of phases as its phase, and the sum of the bills.
    """
    members: dict[str, list[JobRow]] = {}
    for row in rows:
        members.setdefault(array_of(row.id, row.name) or row.id, []).append(row)
    return [_array(array, found) if len(found) > 1 else found[0] for array, found in members.items()]


def array_members(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Rows with the keys `id` and `name`, grouped by array; a row that is of none, or has no id, is alone."""
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for place, row in enumerate(rows):
        array = array_of(str(row["id"]), str(row["name"])) if "id" in row else ""
        groups.setdefault(array or place, []).append(row)
    return list(groups.values())


def phase_counts(rows: Sequence[JobRow]) -> str:
    """The number of jobs in each phase: "95 queued, 4 running"."""
    counts = Counter(row.phase for row in rows)
    return ", ".join(f"{counts[phase]} {phase}" for phase in ORDER if counts[phase])


def array_title(job_ids: Sequence[str]) -> str:
    """The jobs of an array as one name: `sweep-x7k2p[0-99]`."""
    array = job_ids[0].rpartition("-")[0]
    indices = sorted(int(job_id.rpartition("-")[2]) for job_id in job_ids)
    return f"{array}[{indices[0]}-{indices[-1]}]"


def _array(array: str, rows: Sequence[JobRow]) -> JobRow:
    ends = [row.ended_at for row in rows]
    return replace(
        rows[0],
        id=array_title([row.id for row in rows]),
        name=array,
        phase=phase_counts(rows),
        runs_on="",
        deadline=None,
        submitted_at=min(row.submitted_at for row in rows),
        started_at=min((row.started_at for row in rows if row.started_at is not None), default=None),
        ended_at=None if None in ends else max(end for end in ends if end is not None),
        exit_code=None,
        message="",
        cloud_micro_usd=sum(row.cloud_micro_usd for row in rows),
    )
