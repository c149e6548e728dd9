"""A server that refuses a run: what passes is waited out, what does not fails at once, in its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.clusters.kubernetes.refusals import is_final, is_full
from starburst.core.model.events import RunEnded
from starburst.kube.errors import ApiError, ApiUnreachableError
from tests.clusters.kubernetes.scene import Scene, a_pod, play

#: As servers of 1.20 and 1.36 say it.
QUOTA = (
    'jobs.batch "a-1" is forbidden: exceeded quota: few, requested: count/jobs.batch=1, '
    "used: count/jobs.batch=0, limited: count/jobs.batch=0"
)
PASSES = [
    QUOTA,
    'jobs.batch "a-1" is forbidden: status unknown for quota: few, resources: count/jobs.batch',
    'pods "p" is forbidden: not yet ready to handle request',
    'jobs.batch is forbidden: User "ada" cannot create resource "jobs" in API group "batch" in the namespace '
    '"team": RBAC: clusterrole.rbac.authorization.k8s.io "starburst" not found',
    'users "ada" is forbidden: User "starburst" cannot impersonate resource "users" in API group ""',
]
NEVER = [
    (403, 'jobs.batch is forbidden: User "ada" cannot create resource "jobs" in API group "batch"'),
    (403, 'pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged'),
    (403, 'jobs.batch "a" is forbidden: failed quota: few: must specify limits.cpu'),
    (400, 'admission webhook "validate.kyverno.svc" denied the request: no'),
    (404, 'namespaces "nope" not found'),
    (413, "etcdserver: request is too large"),
    (422, 'Job.batch "a" is invalid: spec.template.spec.containers[0].image: Required value'),
]
OUTAGES = [
    (500, 'Internal error occurred: failed calling webhook "kyverno.svc": dial tcp: connection refused'),
    (503, "the server is currently unable to handle the request"),
    (504, "the server was unable to return a response in the time allotted"),
    (429, "too many requests"),
    (401, "Unauthorized"),
    (404, "the server could not find the requested resource"),
    (409, "Operation cannot be fulfilled on resourcequotas"),
]


@pytest.mark.parametrize("message", PASSES)
def test_what_is_full_or_not_ready_passes(message: str) -> None:
    error = ApiError(403, "Forbidden", message)
    assert (is_final(error), is_full(error)) == (False, True)


@pytest.mark.parametrize(("status", "message"), NEVER)
def test_what_is_wrong_with_the_object_or_the_rights_never_passes(status: int, message: str) -> None:
    error = ApiError(status, "", message)
    assert (is_final(error), is_full(error)) == (True, False)


@pytest.mark.parametrize(("status", "message"), OUTAGES)
def test_what_is_wrong_with_the_server_is_neither(status: int, message: str) -> None:
    error = ApiError(status, "", message)
    assert (is_final(error), is_full(error)) == (False, False)


def last(scene: Scene) -> RunEnded:
    end = scene.reports[-1]
    assert isinstance(end, RunEnded)
    return end


@pytest.mark.parametrize("adopted", ["", "Job", "Pod"])
def test_a_full_quota_says_that_it_was_not_started_and_the_next_run_starts(
    tmp_path: Path, adopted: str
) -> None:
    async def act(scene: Scene) -> None:
        name = "a"
        if adopted:
            name = await scene.adopt(a_pod() if adopted == "Pod" else None)
        else:
            scene.submit()
        method = "PATCH" if adopted else "POST"
        of = (
            "/api/v1/namespaces/team/pods/alone"
            if adopted == "Pod"
            else "/apis/batch/v1/namespaces/team/jobs"
        )
        places = "starburst.io/nodes" if adopted else ""  # not what is only shown on the object
        scene.world.fail(f"{method} {of}", says=places, **quota())
        await scene.start(name, "n0")
        assert scene.ends == [(name, 1, "not-started")]
        assert last(scene).message == f"the cluster refuses it: {QUOTA}"
        assert not last(scene).outage
        await scene.start(name, "n0")
        await scene.until(lambda: scene.ends[1:] == [(name, 2, "exited")])
        assert len(scene.world.ran) == 1

    play(tmp_path, act)


def quota() -> dict[str, Any]:
    return {"status": 403, "reason": "Forbidden", "message": QUOTA}


def test_a_quota_that_is_full_of_this_very_run_refuses_nothing(tmp_path: Path) -> None:
    """The answer to the first call was lost, though its Job was made."""

    async def act(scene: Scene) -> None:
        scene.submit()
        run = scene.place("a", "n0")
        scene.world.fail("POST /apis/batch/v1", done=True, times=1)
        with pytest.raises(ApiUnreachableError):
            await scene.cluster.start(run)
        scene.world.fail("POST /apis/batch/v1", **quota())
        await scene.cluster.start(run)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]
        assert scene.world.ran == [("a-1", "1", "n0")]

    play(tmp_path, act)


def test_rights_that_are_missing_fail_the_job_at_once_in_the_servers_words(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        _, message = NEVER[0]
        scene.world.fail("POST /apis/batch/v1", status=403, reason="Forbidden", message=message)
        await scene.start("a", "n0")
        assert scene.ends == [("a", 1, "refused")]
        assert message in last(scene).message

    play(tmp_path, act)


@pytest.mark.parametrize(("status", "message"), OUTAGES)
def test_a_server_out_of_order_is_left_to_whoever_tries_again(
    tmp_path: Path, status: int, message: str
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        scene.world.fail("POST /apis/batch/v1", status=status, reason="X", message=message, times=99)
        with pytest.raises(ApiError, match=str(status)):
            await scene.start("a", "n0")
        assert not scene.ends
        await scene.cluster.stop("a", 1, 0.0)  # as the performer does
        assert scene.ends == [("a", 1, "stopped")]

    play(tmp_path, act)
