"""An elastic gang whose run the cluster took away starts again at once with the tasks that still fit there.

Its size is that of the attempt, its number of slots: the job keeps its tasks, and its next attempt begins
with all of them if they fit. Only the first pass after a loss makes a gang smaller. A gang that waits for its
first start is placed as a whole, and so is one that was lost in the cloud: as much is rented there again.
"""

from __future__ import annotations

from collections.abc import Iterator

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.state import State
from starburst.domain.job import Site


def note_loss(state: State, record: JobRecord) -> None:
    """Remember an elastic gang that was lost on the cluster for the next pass."""
    if record.job.least_tasks and record.site is Site.CLUSTER:
        state.lost_elastic.append(record)


def smaller(state: State) -> Iterator[tuple[JobRecord, tuple[Slot, ...]]]:
    """The gangs of which some tasks fit but not all, with slots for those; as of a walk, they must be taken
    before the next one is asked for.
    """
    noted, state.lost_elastic = state.lost_elastic, []
    for record in noted:
        if record.id in state.queue:
            slots = state.capacity.place_first(record.job)
            if record.job.least_tasks <= len(slots) < len(record.job.tasks):
                yield record, slots
