"""CronJobs whose schedule is none: each is refused by its field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.translator.kinds.test_operators import problems
from tests.translator.manifests import GOOD_JOB

CRON_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "nightly"},
    "spec": {"schedule": "0 2 * * *", "jobTemplate": {"spec": GOOD_JOB["spec"]}},
}


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        (None, "is missing; write one such as"),
        ("tomorrow", "must be five fields"),
        ("9" * 6000 + " * * * *", "has more than 1000 letters; write ranges"),
        ("@every " + "9" * 6000 + "h", "has more than 1000 letters; write ranges"),
    ],
)
def test_a_schedule_that_is_none_is_refused(schedule: str | None, line: str) -> None:
    document = copy.deepcopy(CRON_JOB)
    assert not problems(document)
    document["spec"]["schedule"] = schedule
    (problem,) = problems(document)
    assert problem.startswith("spec.schedule: ")
    assert line in problem
