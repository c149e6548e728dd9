"""Protection against a cluster that refuses all starts.

After several refusals in a row (policy/refusals.py) the cluster counts as shut: one job at a time is tried,
and no job returns from the cloud, until one starts. This avoids placing the whole queue and taking it back.
Only outages of the site count; a full quota or a missing image concerns one job, which pauses by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from starburst.core.parts.passes import Start
from starburst.core.state import State
from starburst.domain.job import Shape, Site
from starburst.policy.refusals import PROBE_S, Refusals


def refused(state: State, message: str) -> None:
    """Count a start that failed because of an outage of the cluster."""
    was_shut = is_shut(state)
    state.refusals = state.refusals.refused(state.now, message, state.settings.unit_s)
    if is_shut(state) and not was_shut:
        count = state.refusals.count
        state.decide(Site.CLUSTER.value, "refusing", count=count, message=message, probe_s=PROBE_S)


def accepted(state: State) -> None:
    """Reset the count after a job has started on the cluster."""
    if is_shut(state):
        state.decide(Site.CLUSTER.value, "accepting", after_s=state.now - state.refusals.first_at)
        state.grew = True
    if state.refusals.count:
        state.refusals = Refusals()


def is_shut(state: State) -> bool:
    """Whether the cluster counts as refusing all starts (policy/refusals.py)."""
    return state.refusals.count > 0 and state.refusals.shut(state.now, state.settings.unit_s)


def reopens_at(state: State) -> float:
    """Time at which cloud runs may return to a shut cluster unless it refuses more starts; or infinity."""
    waits = state.homesick and is_shut(state)
    return state.refusals.forgotten_at(state.settings.unit_s) if waits else inf


def forget(state: State) -> None:
    """Reset the count when the latest refusal is long past; what waited for that is looked at again."""
    if state.refusals.count and state.now >= state.refusals.forgotten_at(state.settings.unit_s):
        state.refusals = Refusals()
        state.grew = True


def probe_at(state: State) -> float:
    """Time of the next trial start on a shut cluster; infinity if it is open or the queue is empty."""
    return state.refusals.next_at if is_shut(state) and len(state.queue) else inf


def probe(state: State) -> Iterator[Start]:
    """The trial start that is due now, if any: among the jobs that fit, the one refused least often."""
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
