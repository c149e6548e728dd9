"""An elastic gang whose run the cluster took away starts again at once with the tasks that still fit there.

Its size is that of the attempt, its number of slots: the job keeps its tasks, and its next attempt begins
with all of them if they fit. Only the first pass after a loss makes a gang smaller. A gang that waits for its
first start is placed as a whole, and so is one that was lost in the cloud: as much is rented there again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.passes import Start
from starburst.core.parts.queue import ShapeQueue
from starburst.domain.job import Site


class ElasticLosses:
    """Elastic gangs that were lost on the cluster since the last pass."""

    def __init__(self) -> None:
        self._lost: list[JobRecord] = []

    def note(self, record: JobRecord) -> None:
        """The run of a job was lost."""
        if record.job.least_tasks and record.site is Site.CLUSTER:
            self._lost.append(record)

    def starts(self, queue: ShapeQueue, capacity: Capacity, whole: Iterable[Start]) -> Iterator[Start]:
        """The lost gangs of which some tasks fit but not all, then the starts of a pass."""
        lost, self._lost = self._lost, []
        for record in lost:
            if record.id in queue:
                slots = capacity.place_first(record.job)
                if record.job.least_tasks <= len(slots) < len(record.job.tasks):
                    yield record, slots, ""
        yield from whole
