"""Return of cloud runs to the cluster: after T_max, at most once, if it pays, with slots reserved first.

No two attempts of a job are alive at a time: the cloud run is stopped with its grace, and the next attempt
starts on the reserved slots only after the cloud has confirmed the end of the run (`gone` in
core/steps/run_lifecycle.py).
"""

from __future__ import annotations

from starburst.core.model.decisions import where
from starburst.core.model.estimates import cloud_run
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import StopReason
from starburst.core.state import State
from starburst.core.steps.run_lifecycle import stop
from starburst.core.steps.start_refusals import is_shut


def bring_home(state: State, *, room: bool) -> None:
    """Consider the runs that reach T_max now and, if capacity grew (`room`), those that only lacked slots.

    A run that returns is stopped with its grace; its slots on the cluster are reserved before that, unless
    the policy lets it queue. No run returns while the cluster refuses all starts.
    """
    due = list(state.homesick) if room and state.homesick else []
    while (job_id := state.looks.pop_due(state.now)) is not None:
        state.homesick[job_id] = None
        due.append(job_id)
    if due and not is_shut(state):
        for job_id in due:
            _consider(state, state.jobs[job_id])


def _consider(state: State, record: JobRecord) -> None:
    job = record.job
    run = cloud_run(record, state.now, state.run_times.corrected_s(job))
    numbers = {
        "elapsed_s": run.elapsed_s,
        "remaining_s": run.remaining_s,
        "lost_s": 0.0 if job.checkpoint else run.elapsed_s,
    }
    if not state.returns.pays(run):
        del state.homesick[record.id]
        record.look_at = None
        state.decide(record.id, "stays-away", **numbers)
        state.touch(record)
        return
    slot = "it queues again"
    if state.returns.reserves:
        slots = None if record.awaits_volumes else state.capacity.place(job)
        if slots is None:
            return
        state.take(record, slots)
        record.reserved = slots
        slot = f"{where(slots)} is held for it"
    state.decide(record.id, "returning", **numbers, slot=slot)
    stop(state, record, StopReason.RETURN, state.grace_s(job))
