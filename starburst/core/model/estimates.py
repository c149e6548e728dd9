"""Elapsed time, remaining time and expected end of a job's run: the only place that derives them.

All functions use three fields of a `JobRecord`: the work saved by earlier attempts (`saved_s`), the start of
the present attempt (`started_at`), and the end that the run reports (`ends_at`), which takes precedence over
any estimate. The caller supplies `runtime_s`, the estimate of the job's total run time: the user's, the mean
of past jobs of its size (`State.runtime_s`), or None if unknown. An unknown estimate gives an unknown end,
never a default.

Times are scheduler seconds; durations are seconds.
"""

from __future__ import annotations

from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Phase
from starburst.policy.returns import CloudRun


def elapsed_s(record: JobRecord, now: float) -> float:
    """Work done so far: by the present attempt, and by earlier ones if they saved it."""
    return run_s(record, now) + record.saved_s


def run_s(record: JobRecord, now: float) -> float:
    """How long the present attempt has run by itself, without what earlier ones saved."""
    return now - _began_at(record, now)


def ended_by(record: JobRecord, told: float | None, now: float) -> float:
    """When a run ended by its site (`told`; None is now), within what can be.

    Its checkpoints may have come home since. The shares of its machine's bill go on until now: an amount once
    charged never changes.
    """
    began_at = now if record.started_at is None else record.started_at
    return now if told is None else min(max(began_at, told), now)


def unsaved_s(record: JobRecord, runtime_s: float) -> float:
    """Run time of an attempt that begins with the saved work; not negative."""
    return max(0.0, runtime_s - record.saved_s)


def cloud_run(record: JobRecord, now: float, runtime_s: float | None) -> CloudRun:
    """The run as return policies see it.

    `remaining_s` of the result is the estimated remaining time; it equals the elapsed time if there is no
    estimate or the run has outlasted it.
    """
    done_s = elapsed_s(record, now)
    if record.alive and record.ends_at is not None:
        runtime_s = done_s + record.ends_at - now
    return CloudRun(done_s, runtime_s, record.job.checkpoint)


def expected_end(record: JobRecord, now: float, runtime_s: float | None) -> float | None:
    """End of the present attempt, or of one that begins now if none is alive; None if it is unknown.

    A run that has outlasted its estimate has an expected end before `now`.
    """
    if record.alive and record.ends_at is not None:
        return record.ends_at
    return None if runtime_s is None else _began_at(record, now) + unsaved_s(record, runtime_s)


def released_by(
    record: JobRecord, now: float, runtime_s: float, *, mean_s: float, grace_s: float | None, up_at: float
) -> float:
    """Expected time at which a job releases an instance, on the high side; used for reservations of money.

    `grace_s`: the grace of a run that is being stopped and leaves this instance, None for any other run;
    `mean_s`: mean run time of past jobs; `up_at`: expected readiness of the instance, if it is launching.
    A present run is assumed to last at least the mean run time of past jobs and twice its run time so far,
    whatever the user's estimate.
    """
    if grace_s is not None:
        return now + grace_s
    run_s = unsaved_s(record, runtime_s)
    if not record.alive:
        return max(now, up_at) + run_s
    began = _began_at(record, now)
    return max(record.ends_at or 0.0, began + max(run_s, mean_s, 2 * (now - began)))


def certain_end(record: JobRecord, now: float) -> float | None:
    """Expected end by the run's progress report or its user's estimate; None if there is neither.

    A run that is starting or stopping has none. The user's estimate says nothing of an attempt that may have
    resumed from a checkpoint: how much of the work a lost attempt saved is unknown.
    """
    if record.phase is not Phase.RUNNING:
        return None
    estimate_s = None if record.job.checkpoint and record.attempt > 1 else record.job.runtime_estimate_s
    if estimate_s is not None and record.wait is not None:
        estimate_s = min(estimate_s, record.wait.runtime_s)  # corrected when it was given its wait
    return expected_end(record, now, estimate_s)


def _began_at(record: JobRecord, now: float) -> float:
    """Start of the present attempt; `now` if none runs yet."""
    return record.started_at if record.alive and record.started_at is not None else now
