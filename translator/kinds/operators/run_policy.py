"""What the kinds of Kubeflow say of a whole job: limits, retries, what becomes of its pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from translator.field import Field, Fields

#: Retries of a job whose pods are restarted without end, which no job of Starburst is: a Job's own default.
RESTARTS = 6
_RESTARTING = ("Always", "OnFailure", "ExitCode")

RUN_POLICY = Fields(
    "a run policy",
    read=("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "suspend"),
    harmless=("ttlSecondsAfterFinished",),
    noted={
        "managedBy": "Starburst runs it",
        "schedulingPolicy": "Starburst starts all tasks together; name a queue with starburst.io/queue",
    },
)


def job_spec(policy: Field, restart_policies: Iterable[Field]) -> dict[str, Any]:
    """The fields of a Job's spec that a run policy sets, and how often it is run again."""
    policies = list(restart_policies)
    restarting = [each for each in policies if each.choice([*_RESTARTING, "Never"]) in _RESTARTING]
    limit = policy.at("backoffLimit").whole(0)
    if limit is not None:  # a limit that is said is meant, also where no policy is
        restarting += [each for each in policies if each.value is None]
    if restarting and limit is None:
        restarting[0].note(
            f"a failed task ends the run; the job is run again as a whole, at most {RESTARTS} times"
        )
    spec: dict[str, Any] = {"backoffLimit": (RESTARTS if limit is None else limit) if restarting else 0}
    limit_s = policy.at("activeDeadlineSeconds").whole(1)
    if limit_s is not None:
        spec["activeDeadlineSeconds"] = limit_s
    if policy.at("suspend").flag():
        spec["suspend"] = True
    return spec
