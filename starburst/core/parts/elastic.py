"""An elastic gang that lost a node or a machine starts again at once with the tasks that still fit there.

Its size is that of the attempt, its number of slots: the job keeps its tasks, and its next attempt begins
with all of them if they fit. Only the first pass after a loss makes a gang smaller. A gang that waits for its
first start is placed as a whole, and so is one that lost its whole instance: as much is rented again. Where
an instance of several machines lost some of them, the gang goes on on the others (`slots_left`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.passes import Start
from starburst.core.parts.queue import ShapeQueue
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import Job, Site
from starburst.domain.resources import total
from starburst.policy.packing.gangs import seat


def slots_left(job: Job, instance: InstanceRecord) -> tuple[Slot, ...]:
    """Slots for the first tasks of an elastic gang on the machines that are left of its instance.

    As many as fit beside the other jobs there; () if those are fewer than it needs, it is not elastic, or the
    instance lost no machine or takes no work.
    """
    if not (job.least_tasks and instance.lost) or instance.unfit_since is not None:
        return ()
    if instance.phase is not InstancePhase.READY:
        return ()
    machine, others = instance.offer.resources, instance.held_on.keys() - {job.id}
    rooms = {
        node: machine - total(held for name, held in instance.held_of(node).items() if name in others)
        for node in range(instance.offer.nodes)
        if node not in instance.lost
    }
    for count in range(len(job.tasks), job.least_tasks - 1, -1):
        nodes = seat(job.tasks[:count], rooms, machine, spread=job.spread)
        if nodes is not None:
            places = enumerate(zip(job.tasks, nodes, strict=False))
            return tuple(Slot(rank, instance.id, demand, node) for rank, (demand, node) in places)
    return ()


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
