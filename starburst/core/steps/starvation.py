"""Starvation protection for queued jobs without a deadline.

A job with a deadline leaves for the cloud then and cannot starve; one without can, if smaller jobs pass it
again and again. The starts of later arrivals are therefore counted for the oldest job without a deadline.
After `max_passes` of them it becomes first in the queue, and the nodes on which it is expected to fit first
(by estimates, as in EASY backfilling) are reserved for it until it starts. The estimates only choose the
nodes: it starts at the latest when the present runs on them have ended.

One job is protected at a time, with its own count. A start costs O(log n), a choice of nodes one walk over
the runs.
"""

from __future__ import annotations

from heapq import heappop
from math import inf, isinf

from starburst.core.model.actions import places
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.queue import Passed
from starburst.core.state import State
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.fair import fair_key
from starburst.policy.ordering import Candidate


def note_start(state: State, record: JobRecord) -> None:
    """Count a start on the cluster as a pass if it is later than the oldest job without a deadline."""
    oldest = _oldest(state) if state.settings.max_passes else None
    if oldest is None or record.seq < oldest.seq:
        return
    before = state.passed if state.passed.job_id == oldest.id else Passed(oldest.id)
    if state.passed.nodes and before is not state.passed:
        _open(state)
    state.passed = Passed(oldest.id, before.count + 1, before.nodes)


def protects(state: State) -> bool:
    """Whether the settings let nodes be reserved."""
    return bool(state.settings.max_passes) and state.settings.order not in DISCIPLINES


def goes_first(state: State, record: JobRecord) -> bool:
    """Whether nodes are reserved for the job, which keeps the first place if it joins the queue again."""
    return bool(state.passed.nodes) and state.passed.job_id == record.id and isinf(record.deadline)


def order_key(state: State, record: JobRecord) -> float:
    """The job's key under the queue order; below all others if nodes are reserved for it."""
    if goes_first(state, record):
        return -inf
    runtime_s, job = state.runtime_s(record.job), record.job
    return state.order(Candidate(record.seq, runtime_s, record.deadline, job.priority, _tag(state, record)))


def _tag(state: State, record: JobRecord) -> float:
    """The job's key under the order "fair", 0 under other orders; a requeued job keeps its tag."""
    if state.settings.order != "fair":
        return 0.0
    job = record.job
    queue = state.queue_of(job)
    if record.tag is None:
        gpu_s = state.size(job) * state.runtime_s(job)
        record.tag = state.tags.arrive(job.queue, gpu_s, queue.share, alone=not len(state.queue))
    return fair_key(record.tag, queue.priority)


def protect(state: State) -> None:
    """Reserve nodes for a job passed `max_passes` times; release those of a job that no longer waits."""
    if not protects(state):
        return
    passed, oldest = state.passed, _oldest(state)
    same = oldest is not None and oldest.id == passed.job_id
    if passed.nodes and not (same and state.capacity.has(passed.nodes)):
        passed = _open(state)
    if oldest is None or not same or passed.nodes or passed.count < state.settings.max_passes:
        return
    nodes = _nodes_for(state, oldest)
    if nodes:
        state.capacity.keep(oldest.id, nodes)
        state.passed = Passed(oldest.id, passed.count, nodes)
        state.queue.remove(oldest)
        oldest.order_key = -inf
        state.queue.add(oldest)
        state.touch(oldest)
        state.decide(oldest.id, "protected", passes=passed.count, nodes=", ".join(nodes))


def look_again(state: State) -> None:
    """After a change of nodes or volumes: release reserved nodes on which the job would not fit any more."""
    record = state.jobs.get(state.passed.job_id)
    if state.passed.nodes and record and not state.capacity.suffices(state.passed.nodes, record.job):
        _open(state)


def _open(state: State) -> Passed:
    """Release the reserved nodes; the count goes on."""
    state.capacity.keep("", ())
    state.grew = True
    state.passed = Passed(state.passed.job_id, state.passed.count)
    return state.passed


def _oldest(state: State) -> JobRecord | None:
    """The oldest queued job without a deadline."""
    while state.patient:
        _, job_id = state.patient[0]
        record = state.jobs.get(job_id)
        if record is not None and job_id in state.queue and isinf(record.deadline):
            return record
        heappop(state.patient)
    return None


def _nodes_for(state: State, record: JobRecord) -> tuple[str, ...]:
    """Nodes where the job fits first if runs end as expected and nothing else starts; () if it never fits."""
    if not state.capacity.ever(record.job):
        return ()
    then = state.capacity.copy()
    for _, slots in sorted(state.expected_ends(), key=lambda run: run[0]):
        then.give(slots)
        home = then.place(record.job)
        if home is not None:
            return tuple(places(home))
    return ()
