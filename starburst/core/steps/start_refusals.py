"""A cluster that refuses all starts: placing the whole queue there, and taking it back, would help nobody.

After some refusals in a row (policy/refusals.py) one job at a time is tried, and none comes home from the
cloud, until one starts. Only refusals count that are the site's failure: a full quota or an image that is not
there concerns one job, which pauses by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from starburst.core.parts.passes import Start
from starburst.core.state import State
from starburst.domain.job import Shape, Site
from starburst.policy.refusals import PROBE_S, Refusals


def refused(state: State, message: str) -> None:
    """The cluster failed to start a job."""
    was_shut = is_shut(state)
    state.refusals = state.refusals.refused(state.now, message, state.settings.unit_s)
    if is_shut(state) and not was_shut:
        count = state.refusals.count
        state.decide(Site.CLUSTER.value, "refusing", count=count, message=message, probe_s=PROBE_S)


def accepted(state: State) -> None:
    """A job has started on the cluster."""
    if is_shut(state):
        state.decide(Site.CLUSTER.value, "accepting", after_s=state.now - state.refusals.first_at)
        state.grew = True
    if state.refusals.count:
        state.refusals = Refusals()


def is_shut(state: State) -> bool:
    """Whether the cluster refuses all starts, as far as one can tell."""
    return state.refusals.count > 0 and state.refusals.shut(state.now, state.settings.unit_s)


def probe_at(state: State) -> float:
    """When the next job is tried on a cluster that refuses; infinity if none is to be."""
    return state.refusals.next_at if is_shut(state) and len(state.queue) else inf


def probe(state: State) -> Iterator[Start]:
    """The job to try there now, if it is time: of those that fit one that was refused least often."""
    if state.now < probe_at(state):
        return
    state.refusals = state.refusals.probed(state.now, state.settings.unit_s)
    failed: set[Shape] = set()
    for record in sorted(state.queue, key=lambda record: record.refusals):
        shape = record.job.shape
        slots = None if shape in failed else state.capacity.place(record.job)
        if slots is not None:
            yield record, slots, ""
            return
        failed.add(shape)
