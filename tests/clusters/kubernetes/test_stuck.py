"""Runs that hold GPUs and cannot use them give them back, and say why."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.clusters.kubernetes.runs.complaints import Complaint
from starburst.clusters.kubernetes.runs.identity import RunIdentity
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.stalls import RunSurroundings, StartLimits, why_stalled
from starburst.core.model.events import RunEnded, RunStalled, RunStarted
from starburst.kube import names
from starburst.kube.objects import NodeView
from starburst.kube.resources import EVENTS, JOBS, PODS
from tests.clusters.kubernetes.scene import BIND_LIMIT_S, NS, START_LIMIT_S, FakeDesk, Scene, play
from tests.clusters.kubernetes.scene import a_job as users_job
from tests.clusters.kubernetes.views import ME, a_job, a_node, a_pod
from tests.kube_unit.store import Object

LIMITS = StartLimits(60.0, 1800.0)


def judged(said: Complaint | None = None, n0: NodeView | None = None, **pod: Any) -> tuple[str, float]:
    """What is said of a Job with one such pod, and how long that is tolerated."""
    book, job = RunRegistry(RunIdentity(FakeDesk(), ME, NS)), a_job()
    book.job_changed(None, job)
    book.pod_changed(None, a_pod(job=job, **pod))
    (unit,) = book
    stall = why_stalled(unit, RunSurroundings(LIMITS, lambda name: n0 or a_node(name), 1000.0, said))
    return ("", 0.0) if stall is None else (stall.why, stall.limit_s)


@pytest.mark.parametrize(
    ("reason", "message", "told"),
    [
        ("ErrImagePull", "not found", ("its container waits: ErrImagePull: not found", 60.0)),
        ("ImagePullBackOff", "", ("its container waits: ImagePullBackOff", 60.0)),
        ("CreateContainerConfigError", 'secret "s" not found', None),
        ("ContainerCreating", "", ("its container is not up: kubectl describe pod p says why", 1800.0)),
        ("", "", ("its container is not up: kubectl describe pod p says why", 1800.0)),
        ("PodInitializing", "", ("", 0.0)),
        ("CrashLoopBackOff", "", ("", 0.0)),
    ],
)
def test_what_a_bound_pod_waits_for(reason: str, message: str, told: tuple[str, float] | None) -> None:
    found = judged(node="n0", reason=reason, message=message)
    assert found == (told or (f"its container waits: {reason}: {message}", 60.0))


def test_the_words_of_an_event_are_told_and_a_volume_that_is_not_there_is_not_waited_for_long() -> None:
    missing = Complaint("FailedMount", 'secret "s" not found')
    assert judged(missing, node="n0") == (
        'its container is not up: FailedMount: secret "s" not found',
        60.0,
    )
    slow = Complaint("FailedAttachVolume", "Multi-Attach error")
    assert judged(slow, node="n0")[1] == 1800.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schedulable": False}, "the node n0 is cordoned"),
        ({"ready": False}, "the node n0 does not answer"),
    ],
)
def test_a_pod_that_is_meant_for_a_node_that_is_out_is_not_waited_for(change: Any, why: str) -> None:
    told = f"its place was taken away: {why}"
    assert judged(n0=replace(a_node(), **change), unschedulable="no room") == (told, 0.0)


def test_what_runs_on_a_node_that_is_away_is_told_and_left_alone() -> None:
    away = replace(a_node(), ready=False, unready_since=0.0)
    said, limit_s = judged(n0=away, node="n0", phase="Running")
    assert said.startswith("the node n0 does not answer since ")
    assert said.endswith("repair the node, or delete it: kubectl delete node n0")
    assert limit_s == math.inf


def test_a_pod_that_does_not_go_says_who_keeps_it() -> None:
    going = {"node": "n0", "phase": "Running", "deleting": True, "delete_by": 900.0}
    said, limit_s = judged(**going, finalizers=("example.com/wait",))
    assert said.startswith("its pod p is being deleted and should be gone since ")
    assert said.endswith("the finalizer example.com/wait keeps it")
    assert limit_s == math.inf
    assert judged(**going)[0].endswith("the kubelet of n0 keeps it")
    assert judged(**{**going, "delete_by": 999.0}) == ("", 0.0), "it has its time"


def test_a_pod_that_runs_is_not_stuck_and_one_that_cannot_be_bound_is() -> None:
    assert judged(node="n0", phase="Running") == ("", 0.0)
    assert judged(unschedulable="no room on n0") == ("no room on n0", 60.0)


@pytest.mark.parametrize(
    ("first", "why", "limit_s"),
    [
        ({"reason": "ContainerCreating"}, "its container is not up: kubectl describe pod p0 says why", 1800),
        ({"reason": "ErrImagePull"}, "its container waits: ErrImagePull", 60.0),
        ({"phase": "Running"}, "its pod p1 is not bound to a node: is Chakra at work?", 60.0),
        ({"address": "10.0.0.1"}, "its pod p1 is not bound to a node: is Chakra at work?", 60.0),
        ({"node": ""}, "its pod p0 is not bound to a node: is Chakra at work?", 60.0),
    ],
)
def test_pods_that_wait_for_the_address_of_the_first_have_its_time(
    first: dict[str, Any], why: str, limit_s: float
) -> None:
    book, job = RunRegistry(RunIdentity(FakeDesk(), ME, NS)), a_job(parallelism=2)
    waits = {names.MASTER_ADDR: ""}
    bound = {"node": "n0", "annotations": {**waits, names.RANK: "0"}}
    book.job_changed(None, job)
    book.pod_changed(None, a_pod("p0", job, **{**bound, **first}))
    book.pod_changed(None, a_pod("p1", job, annotations=waits))
    (unit,) = book
    stall = why_stalled(unit, RunSurroundings(LIMITS, a_node, 1000.0))
    assert (("", 0.0) if stall is None else (stall.why, stall.limit_s)) == (why, limit_s)


def test_pods_that_kubernetes_counts_are_made_though_no_watch_has_told_of_them() -> None:
    book = RunRegistry(RunIdentity(FakeDesk(), ME, NS))
    known = RunSurroundings(LIMITS, a_node, 1000.0)
    book.job_changed(None, a_job())
    (unit,) = book
    assert why_stalled(unit, known) is not None
    book.job_changed(a_job(), a_job(active=1))
    assert why_stalled(unit, known) is None


def end_of(scene: Scene) -> RunEnded:
    return next(event for event in scene.reports if isinstance(event, RunEnded))


@pytest.mark.parametrize("adopted", [False, True], ids=["submitted", "adopted"])
def test_an_image_that_is_not_there_is_waited_for_as_long_as_a_binding(tmp_path: Path, adopted: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.world.waits_for = ("ErrImagePull", "manifest unknown")
        name = await scene.adopt() if adopted else scene.submit().id
        began = asyncio.get_running_loop().time()
        await scene.start(name, "n0")
        await scene.until(lambda: scene.ends)
        took = asyncio.get_running_loop().time() - began
        assert BIND_LIMIT_S < took < BIND_LIMIT_S + 20
        assert scene.ends == [(name, 1, "not-started")]
        assert end_of(scene).message == "its container waits: ErrImagePull: manifest unknown"
        assert not scene.pods()
        scene.world.waits_for = None
        await scene.start(name, "n0")
        await scene.until(lambda: scene.ends[1:] == [(name, 2, "exited")])

    play(tmp_path, act)


def test_a_pod_made_anew_that_cannot_start_does_not_hold_its_place_for_ever(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        name = await scene.adopt(users_job(args=("500", "0"), backoffLimit=3))
        await scene.start(name, "n0")
        await scene.until(lambda: RunStarted(name, 1) in scene.reports)
        scene.world.waits_for = ("ErrImagePull", "manifest unknown")
        scene.world.end_pod(scene.pods()[0], 137)  # out of memory; its Job makes another
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(name, 1, "displaced")]
        assert end_of(scene).message == "its container waits: ErrImagePull: manifest unknown"

    play(tmp_path, act)


def test_a_big_image_has_its_time(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.waits_for = ("ContainerCreating", "")
        scene.submit()
        await scene.start("a", "n0")
        await scene.pass_time(START_LIMIT_S - 60)
        assert not scene.ends
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "not-started")]
        assert not any(isinstance(event, RunStarted) for event in scene.reports)

    play(tmp_path, act)


def test_why_it_was_taken_back_survives_a_restart(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.waits_for = ("ErrImagePull", "manifest unknown")
        name = await scene.adopt()
        await scene.start(name, "n0")
        await scene.until(lambda: "starburst.io/stopping" in scene.marks("train"))
        await scene.restart()
        await scene.until(lambda: scene.ends)
        assert end_of(scene).message == "its container waits: ErrImagePull: manifest unknown"

    play(tmp_path, act)


def stalls(scene: Scene) -> list[str]:
    return [event.why for event in scene.reports if isinstance(event, RunStalled)]


def test_why_no_pods_are_made_is_told_in_the_words_of_the_event_while_it_lasts(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.controller = False
        scene.submit()
        await scene.start("a", "n0")
        job = scene.the(JOBS, "a-1")["metadata"]
        scene.world.add(EVENTS, warning(job["uid"], "FailedCreate", "exceeded quota: few"))
        await scene.until(lambda: stalls(scene))
        assert stalls(scene) == ["its pods are not made: FailedCreate: exceeded quota: few"]
        assert not scene.ends
        scene.world.controller = True
        scene.world.nudge()
        await scene.until(lambda: stalls(scene)[1:])
        assert stalls(scene)[1:] == [""]
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act)


def test_a_gang_of_which_only_some_pods_are_made_says_so_and_does_not_hold_its_place_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(scene: Scene) -> None:
        world, make = scene.world, scene.world._make_pod
        has_quota = {"for": 1}

        def within_quota(job: Object) -> None:
            if len(world.pods_of(job)) < has_quota["for"]:
                make(job)

        monkeypatch.setattr(world, "_make_pod", within_quota)
        scene.submit(tasks=2, args=("50", "0"))
        await scene.start("a", "n0", "n1")
        job = scene.the(JOBS, "a-1")["metadata"]
        world.add(EVENTS, warning(job["uid"], "FailedCreate", "exceeded quota: few"))
        await scene.until(lambda: scene.ends)
        why = "1 of its 2 pods are not made: FailedCreate: exceeded quota: few"
        assert (stalls(scene), end_of(scene).message) == ([why], why)
        assert (scene.ends, scene.jobs()) == ([("a", 1, "not-started")], [])
        has_quota["for"] = 2
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.ends[1:])
        assert scene.ends[1:] == [("a", 2, "exited")]

    play(tmp_path, act)


def test_why_a_pod_that_was_taken_away_is_not_made_again_is_told_while_it_lasts(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("50", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: RunStarted("a", 1) in scene.reports)
        scene.world.controller = False
        job = scene.the(JOBS, "a-1")["metadata"]
        scene.world.add(EVENTS, warning(job["uid"], "FailedCreate", "exceeded quota: few"))
        scene.world.delete(PODS, NS, scene.pods()[0]["metadata"]["name"])
        await scene.until(lambda: stalls(scene))
        why = "none of its pods is alive, and no other one is made: FailedCreate: exceeded quota: few"
        assert stalls(scene) == [why]
        await scene.pass_time(START_LIMIT_S + BIND_LIMIT_S)
        assert not scene.ends, "its Job controller may be away, and it may have done its work"
        scene.world.controller = True
        scene.world.nudge()
        await scene.until(lambda: scene.ends)
        assert (stalls(scene), scene.ends) == ([why, ""], [("a", 1, "exited")])

    play(tmp_path, act)


def warning(uid: str, reason: str, message: str) -> dict[str, Any]:
    """An event of the Job controller or a kubelet."""
    return {
        "metadata": {"name": f"{reason}.{uid}", "namespace": NS},
        "involvedObject": {"uid": uid},
        "type": "Warning",
        "reason": reason,
        "message": message,
    }
