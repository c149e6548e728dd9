"""What `starburst explain` says in the middle of a run is what the store and its decision log say."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.domain.job import is_over
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store

#: Jobs that are asked about at a time.
ASKED = 3


def contradictions(store: Store, draw: Random) -> Iterator[tuple[str, str]]:
    """Some jobs, the ended included, and for each what its explanation has wrong, or ""."""
    rows = [row for row in queries.jobs(store) if row.seq is not None]
    snapshots = SnapshotCache(store)
    for row in draw.sample(rows, min(ASKED, len(rows))):
        yield row.id, _wrong(store, row, snapshots)


def _wrong(store: Store, row: JobRow, snapshots: SnapshotCache) -> str:
    told = snapshots.explanation(row)
    said = f"is {row.phase}, and explained as: {told.sentence}"
    if told.phase != row.phase:
        return said
    log = queries.decisions(store, row.id)
    if is_over(row.phase):
        return "" if row.message in told.sentence and log[-1].reason == row.message else said
    on = row.runs_on.split(", ")
    if row.phase in ("starting", "stopping"):
        return "" if all(name in told.sentence for name in on) else said
    if row.phase == "offloading":
        named = [machine for machine in _machines(store, row) if machine not in told.sentence]
        return said if named else ""
    if row.phase == "running":
        begun = [line for line in log if line.kind == "started"]
        place = "on the cluster" if row.site == "cluster" else "in the cloud"
        named = place in told.sentence and all(name in told.sentence for name in on)
        return "" if named and begun and begun[-1].numbers["attempt"] == row.attempt else said
    return ""


def _machines(store: Store, row: JobRow) -> list[str]:
    """The machines that are launched for a job."""
    there = queries.instance_records(store)
    return [one.id for one in there if row.id in one.job_ids and one.phase.value == "launching"]
