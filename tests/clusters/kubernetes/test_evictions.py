"""What the cluster takes away goes back into the queue; what its user deletes is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clusters.kubernetes.runs.evictions import EVICTED
from starburst.core.model.events import RunEnd, RunEnded
from starburst.kube import names
from starburst.kube.resources import EVENTS, JOBS, NODES, PODS
from tests.clusters.kubernetes import views
from tests.clusters.kubernetes.run_reader import Reader, ended
from tests.clusters.kubernetes.scene import NS, Scene, a_job, a_pod, play
from tests.kube_unit.store import Object

BACKOFF = "BackoffLimitExceeded"
INDEXES = ("FailedIndexes", "MaxFailedIndexesExceeded")


def cordon(scene: Scene) -> None:
    scene.world.cordoned.add("n0")
    scene.world.change(NODES, "", "n0", {"spec": {"unschedulable": True}})


def taint(scene: Scene) -> None:
    scene.world.change(NODES, "", "n0", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})


def silence(scene: Scene) -> None:
    scene.world.change(NODES, "", "n0", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})


def lose(scene: Scene) -> None:
    scene.world.remove(NODES, "", "n0")


def mark(scene: Scene) -> None:
    """As servers from 1.26 on do."""
    why = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    scene.world.change(PODS, NS, "alone", {"status": {"conditions": [why]}})


def preempt(scene: Scene) -> None:
    uid = scene.the(PODS, "alone")["metadata"]["uid"]
    about = {"metadata": {"name": "e", "namespace": NS}, "involvedObject": {"uid": uid}}
    scene.world.add(EVENTS, {**about, "type": "Normal", "reason": EVICTED[0], "message": "by x"})


@pytest.mark.parametrize("how", [cordon, taint, silence, lose, mark, preempt])
def test_a_bare_pod_that_the_cluster_takes_away_queues_again(
    tmp_path: Path, how: Callable[[Scene], None]
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("20", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        how(scene)
        scene.world.delete(PODS, NS, "alone")
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "displaced")], [])
        await scene.start(job_id, "n1")
        await scene.until(lambda: scene.ends[-1] == (job_id, 2, "exited"))
        assert (len(scene.world.ran), scene.cancels) == (2, [])

    play(tmp_path, act)


@pytest.mark.parametrize("evicted", [True, False])
def test_so_it_is_of_one_whose_queue_was_stripped_off(tmp_path: Path, evicted: bool) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.change(PODS, NS, "alone", {"metadata": {"labels": {names.QUEUE: None}}})
        await scene.pass_time(5)
        if evicted:
            cordon(scene)
        scene.world.delete(PODS, NS, "alone")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "displaced" if evicted else "stopped")]
        assert set(scene.cancels) == (set() if evicted else {job_id})

    play(tmp_path, act)


def test_the_node_is_asked_for_and_no_answer_decides_nothing(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        cordon(scene)
        scene.world.fail("GET /api/v1/nodes", times=10**6, status=500)
        scene.world.delete(PODS, NS, "alone")
        await scene.pass_time(30)
        assert (scene.ends, scene.cancels) == ([], [])
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "displaced")], [])

    play(tmp_path, act)


def test_a_drain_while_starburst_is_down_is_no_cancellation(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await scene.die()
        cordon(scene)
        scene.world.delete(PODS, NS, "alone")
        await scene.until(lambda: scene.find(PODS, "alone") is None)
        await scene.watch()
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "displaced")], [])

    play(tmp_path, act)


def event(reason: str, at: str, kind: str = "Pod", name: str = "alone", where: str = NS) -> Object:
    """At a minute and second, as a kubelet or a controller writes it."""
    return {
        "metadata": {"name": f"{name}-{reason}-{at}", "namespace": where},
        "involvedObject": {"kind": kind, "name": name, "namespace": where},
        "reason": reason,
        "message": f"{reason} of {name}",
        "lastTimestamp": f"2026-01-01T10:{at}Z",
    }


BEGAN = event("Started", "20:00")
ENDED = event("Killing", "30:00")
CORDON = event("NodeNotSchedulable", "29:00", "Node", "n0", "default")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([BEGAN, event("TaintManagerEviction", "29:00"), ENDED], "TaintManagerEviction of alone"),
        ([BEGAN, CORDON, ENDED], "NodeNotSchedulable of n0"),
        ([BEGAN, ENDED], "nothing says by whom"),
        ([BEGAN, event("NodeNotReady", "10:00", "Node", "n0", "default"), ENDED], "nothing says by whom"),
        ([BEGAN, event("NodeNotReady", "29:00", "Node", "n1", "default")], None),
        ([event("Killing", "10:00"), BEGAN], None),
        ([], None),
    ],
)
def test_of_a_pod_that_went_meanwhile_events_tell(
    tmp_path: Path, events: list[Object], why: str | None
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await scene.die()
        scene.world.delete(PODS, NS, "alone")
        await scene.until(lambda: scene.find(PODS, "alone") is None)
        for each in events:
            scene.world.add(EVENTS, each)
        scene.world.fail("GET /api/v1/namespaces/team/events", times=2, status=500)
        await scene.watch()
        if why is None:
            assert (scene.ends, scene.cancels) == ([], [job_id])
            return
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "displaced")], [])
        assert why in scene.reports_of(job_id)[0].message
        await scene.start(job_id, "n1")
        await scene.until(lambda: len(scene.world.ran) == 2)

    play(tmp_path, act)


@pytest.mark.parametrize("how", [cordon, lose])
def test_a_replacement_does_not_wait_for_a_node_that_takes_no_pods(
    tmp_path: Path, how: Callable[[Scene], None]
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        how(scene)
        scene.world.cordoned.add("n0")
        began = asyncio.get_running_loop().time()
        scene.world.delete(PODS, NS, scene.pods()[0]["metadata"]["name"])
        await scene.until(lambda: scene.ends)
        assert asyncio.get_running_loop().time() - began < 10
        assert (scene.ends, scene.jobs(), scene.cancels) == ([("a", 1, "displaced")], [], [])

    play(tmp_path, act)


def test_a_job_that_has_ended_leaves_nothing_alive(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.controller = False  # it does not know the pod, as after a restart
        failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
        scene.world.change(JOBS, NS, "train", {"status": {"conditions": [failed]}})
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "out-of-time")]
        assert scene.pods() == []

    play(tmp_path, act)


@pytest.mark.parametrize("reason", [BACKOFF, *INDEXES])
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(
    "how", [{"reason": "Evicted"}, {"disruption": "TerminationByKubelet", "exit_code": 137}]
)
def test_a_pod_that_says_that_it_was_evicted_displaces_its_run_whatever_its_restart_policy(
    how: dict[str, object], restarts: bool, reason: str
) -> None:
    job = views.a_job(end="Failed", end_reason=reason)
    pod = replace(views.failed(views.a_pod(job=job), None, ""), **how)  # type: ignore[arg-type]
    killed = views.failed(views.a_pod("beside", job), 143, deleting=True)
    told = Reader(restarts=restarts).see(job, killed, pod)
    assert told[-1] == ended(RunEnd.DISPLACED, None, str(how.get("disruption", "Evicted")))


@pytest.mark.parametrize("reason", [BACKOFF, *INDEXES])
def test_one_that_the_job_controller_deletes_at_its_limit_of_restarts_says_nothing(reason: str) -> None:
    job = views.a_job(end="Failed", end_reason=reason)
    killed = views.failed(views.a_pod(job=job), 143, deleting=True)
    told = Reader(restarts=True).see(job, killed)[-1]
    assert isinstance(told, RunEnded)
    assert told.end is RunEnd.EXITED


@pytest.mark.parametrize(
    ("reason", "how"), [("PodFailurePolicy", RunEnd.EXITED), ("DeadlineExceeded", RunEnd.OUT_OF_TIME)]
)
def test_a_limit_or_rule_of_the_user_stays_a_failure_though_a_pod_was_evicted(
    reason: str, how: RunEnd
) -> None:
    job = views.a_job(end="Failed", end_reason=reason)
    told = Reader().see(job, views.failed(views.a_pod(job=job), None, "Evicted"))[-1]
    assert isinstance(told, RunEnded)
    assert told.end is how


@pytest.mark.parametrize(("limit", "how"), [(0, "displaced"), (1, "exited")])
def test_a_gang_that_fails_for_want_of_a_peer_that_was_evicted_has_not_failed(
    tmp_path: Path, limit: int, how: str
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0"), tasks=2, backoffLimit=limit))
        await scene.start(job_id, "n0", "n1")
        await scene.until(lambda: scene.running() == 2)
        peer, evicted = scene.pods()
        scene.world.end_pod(evicted, 1, "Evicted")
        scene.world.end_pod(peer, 1)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, how)]
        if not limit:
            assert scene.reports_of(job_id)[0].message == "Evicted: low on memory"

    play(tmp_path, act)


@pytest.mark.parametrize("reason", INDEXES)
def test_one_index_that_failed_by_itself_is_enough_for_a_failure(reason: str) -> None:
    job = views.a_job(end="Failed", end_reason=reason)
    pods = views.failed(views.a_pod("one", job), None, "Evicted"), views.failed(views.a_pod("two", job), 7)
    told = Reader().see(job, *pods)[-1]
    assert isinstance(told, RunEnded)
    assert (told.end, told.exit_code) == (RunEnd.EXITED, 7)
