"""The status of a user's Job or Pod whose job runs elsewhere: what its controller would write."""

from __future__ import annotations

from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Phase
from starburst.kube.objects import JobView
from starburst.kube.operator_kinds import OperatorKind
from starburst.kube.resources import Object

#: Reasons and messages of the Job controller (batch/v1).
COMPLETED = ("CompletionsReached", "Reached expected number of succeeded pods")
FAILED = "BackoffLimitExceeded"


def job_status(view: JobView, record: JobRecord, tasks: int, now: str, run: JobView | None = None) -> Object:
    """The end of a Job as its controller would write it, with the condition before it that 1.31 asks for.

    `run`: of a managed Job, that of its last run, if it is there: its end has the same reason.
    """
    done = record.phase is Phase.SUCCEEDED
    before, end = ("SuccessCriteriaMet", "Complete") if done else ("FailureTarget", "Failed")
    reason, message = _why_ended(view, record, run)
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }
        for kind in (before, end)
    ]
    status: Object = {"conditions": conditions, "active": 0}
    if view.managed:
        status["ready"] = 0
    # Servers from 1.32 on refuse a status that counts fewer pods than were counted here before.
    if done:
        status.update({"succeeded": max(tasks, view.succeeded), "completionTime": now})
    else:
        status["failed"] = max(1, view.failed)
    if view.started_at is None:
        status["startTime"] = now
    return status


def _why_ended(view: JobView, record: JobRecord, run: JobView | None) -> tuple[str, str]:
    if record.phase is Phase.CANCELLED:
        return "Cancelled", record.message
    if not view.managed:
        return f"RanIn{site_of(record).title()}", record.message
    if record.phase is Phase.SUCCEEDED:
        return COMPLETED
    if run is not None and run.end == "Failed" and run.end_reason:
        return run.end_reason, run.end_message
    return FAILED, record.message


def live_status(view: JobView, record: JobRecord, tasks: int, now: str) -> Object:
    """What is to be changed in the status of a managed Job whose job has not ended; empty: nothing."""
    active = tasks if record.alive and record.started_at is not None else 0
    status: Object = {}
    if view.active != active:
        status = {"active": active, "ready": active}
    if active and view.started_at is None:
        status["startTime"] = now
    return status


def operator_status(kind: OperatorKind, status: Object, record: JobRecord, now: str) -> Object:
    """What is to be changed in the status of an operator's object, so that it has ended as its job did.

    Operators leave what has ended alone. Each of them knows its own words only, which are used here.
    """
    done = record.phase is Phase.SUCCEEDED
    message = f"{record.message}; ran in the {site_of(record)}"
    if not kind.succeeded[0]:  # RayJob
        ended = "SUCCEEDED" if done else "STOPPED" if record.phase is Phase.CANCELLED else "FAILED"
        deployment = "Complete" if done else "Failed"
        found = {"jobStatus": ended, "jobDeploymentStatus": deployment, "message": message, "endTime": now}
        return found if done else {**found, "reason": "AppFailed"}
    end, reason = kind.succeeded if done else kind.failed
    times = {"lastTransitionTime": now}
    changes: Object = {}
    if kind.resource.api_version.startswith("kubeflow.org/"):
        times["lastUpdateTime"] = now
        changes = {"completionTime": now, "replicaStatuses": status.get("replicaStatuses") or {}}
    elif kind.name == "JobSet":
        changes = {"terminalState": end}
    known = [each for each in status.get("conditions") or () if each["type"] != end]
    condition = {"type": end, "status": "True", "reason": reason, "message": message, **times}
    return {**changes, "conditions": [*known, condition]}


def pod_status(record: JobRecord) -> Object:
    """The end of a Pod that no kubelet ran."""
    phase = "Succeeded" if record.phase is Phase.SUCCEEDED else "Failed"
    return {"phase": phase, "reason": f"RanIn{site_of(record).title()}", "message": record.message}


def site_of(record: JobRecord) -> str:
    return "cluster" if record.site is None else record.site.value
