"""Images of jobs on instances: what is there, what its pull takes, and pulls ahead of a start."""

from __future__ import annotations

from collections.abc import Mapping

from starburst.core.model.actions import PrepareRun, Slot
from starburst.core.model.events import ImagesReported
from starburst.core.model.jobs import JobRecord
from starburst.core.state import State
from starburst.domain.cloud import Offer
from starburst.domain.job import Job


def images_reported(state: State, event: ImagesReported) -> None:
    """Record the images of an instance, and learn from the pulls that are new."""
    instance = state.fleet.instances.get(event.instance_id)
    if instance is None:
        state.ignore(event, "no such machine, or it has ended")
        return
    known = instance.images or ()
    for image, seconds in event.images:
        if seconds is not None and image not in known:
            state.fleet.speeds.pulls.observe(image, seconds)
            state.changes.speeds = state.fleet.speeds.snapshot()
    instance.images = tuple(sorted({image for image, _ in event.images}))
    state.touch_instance(instance)


def prepare(state: State, record: JobRecord, slots: tuple[Slot, ...]) -> None:
    """Have a job's image pulled on instances that come up, on which its next attempt will start."""
    if record.job.image:
        state.do(PrepareRun(record.id, record.attempt + 1, slots))


def pull_s(state: State, job: Job, place: str, new: Mapping[str, Offer]) -> float:
    """Seconds for which a job that moves waits for its image; `new` are places that are yet to be rented."""
    fleet = state.fleet
    if place not in new:
        return fleet.pull_s(job, fleet.instances[place])
    return max(0.0, fleet.speeds.pulls.expected_s(job.image) - new[place].ready_s) if job.image else 0.0
