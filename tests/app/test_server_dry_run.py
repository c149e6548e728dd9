"""Submission asks the API server whether it would take a job's object, and what comes of the answer."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from starburst.app.jobs.server_dry_run import DryRunAnswer, server_dry_run
from starburst.domain.job import Submission, Submitter
from starburst.kube.errors import KubeCredentialsError
from starburst.kube.resources import JOBS
from tests.kube_unit.server import Asked, FakeServer, Fault
from tests.translator.manifests import GOOD_JOB, pod, read_one
from translator.manifests.tenancy import Tenancy

BAD = Fault(
    "POST",
    status=422,
    reason="Invalid",
    message="Job.batch is invalid: [...]",
    causes=(
        "spec.template.spec.containers[0].image: Required value",
        'spec.template.labels: Invalid value: "a b"',
    ),
)


def asked(
    *faults: Fault, manifest: Any = GOOD_JOB, submitter: Submitter | None = None, limit_s: float = 10.0
) -> tuple[DryRunAnswer, list[Asked], int]:
    """The answer on a job, the writes that were asked for, and how many Jobs there are then."""
    item = read_one(manifest, native=True)
    if submitter is not None:
        item = Submission(item.job, with_submitter(item, submitter))

    async def play() -> tuple[DryRunAnswer, list[Asked], int]:
        async with FakeServer("31") as server:
            for fault in faults:
                server.fail(
                    fault.of,
                    **{f.name: getattr(fault, f.name) for f in dataclasses.fields(fault) if f.name != "of"},
                )

            async def connect() -> Any:
                return server.api()

            answer = await server_dry_run(connect, Tenancy("papers"), [item], limit_s)
            async with server.api() as api:
                left = len(await api.list(JOBS, "papers"))
            return answer, [call for call in server.asked if call.method == "POST"], left

    return asyncio.run(play())


def with_submitter(item: Submission, submitter: Submitter) -> Any:
    return dataclasses.replace(item.workload, submitter=submitter)


def test_a_job_that_the_server_would_take_is_taken_and_nothing_is_made() -> None:
    answer, calls, left = asked()
    assert answer == DryRunAnswer(((),))
    assert [call.path.rpartition("/")[2] for call in calls] == ["jobs", "pods"]
    assert all(call.query == {"dryRun": "All", "fieldValidation": "Strict"} for call in calls)
    assert left == 0


def test_each_cause_is_a_line() -> None:
    answer, calls, _ = asked(BAD)
    assert answer.refusals == (BAD.causes,)
    assert len(calls) == 1


def test_the_causes_of_a_pod_are_fields_of_the_pod_that_was_submitted() -> None:
    answer, _, _ = asked(BAD, manifest=pod())
    assert answer.refusals[0][0] == "spec.containers[0].image: Required value"


def test_admission_of_pods_is_asked_too() -> None:
    words = 'pods "dry-run-x" is forbidden: error looking up service account papers/robot: not found'
    answer, _, _ = asked(Fault("POST /api/v1/namespaces/papers/pods", status=403, message=words))
    assert answer.refusals == ((f"the cluster refuses it: {words}",),)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "exceeded quota: small, requested: count/jobs.batch=1"),
        (400, "admission webhook x does not support dry run"),
        (403, 'pods is forbidden: User "starburst" cannot create resource "pods" in API group ""'),
        (500, "failed calling webhook"),
    ],
)
def test_what_may_pass_or_is_of_the_dry_run_itself_refuses_no_job(status: int, words: str) -> None:
    answer, _, _ = asked(Fault("POST", status=status, message=words, times=9))
    assert answer.refusals == ((),)


def test_it_is_asked_in_the_submitters_own_name() -> None:
    _, calls, _ = asked(submitter=Submitter(kubernetes_user="ada", kubernetes_groups=("lab",)))
    assert calls[0].headers["Impersonate-User"] == "ada"


@pytest.mark.parametrize("fault", [Fault("GET /version", silent=True, times=9)])
def test_a_server_that_does_not_answer_refuses_nothing_in_bounded_time(fault: Fault) -> None:
    answer, _, _ = asked(fault, limit_s=0.1)
    assert answer == DryRunAnswer(((),), "no answer within 0.1 s")


def test_without_a_kubeconfig_nobody_is_asked() -> None:
    async def connect() -> Any:
        raise KubeCredentialsError("there is no such kubeconfig")

    item = read_one(json.loads(json.dumps(GOOD_JOB)), native=True)
    answer = asyncio.run(server_dry_run(connect, Tenancy(), [item]))
    assert answer == DryRunAnswer(((),), "there is no such kubeconfig")
