"""Events that cannot be read hold up the runs that they would tell of, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.clusters.kubernetes.runs.complaints import UNREAD
from starburst.core.model.events import RunStalled
from starburst.domain.job import Phase
from starburst.kube.resources import EVENTS, JOBS, PODS
from tests.clusters.kubernetes.scene import NS, Scene, a_pod, play
from tests.kube_unit.store import Object

UNREADABLE = f"GET /api/v1/namespaces/{NS}/events"


async def gone_unseen(scene: Scene, kind: str) -> str:
    """A run of a job of this kind whose object went while Starburst was down; no event can be read."""
    if kind == "submitted":
        job_id, resource, name = scene.submit(args=("500", "0")).id, JOBS, "a-1"
    elif kind == "Job":
        job_id, resource, name = await scene.adopt(), JOBS, "train"
    else:
        job_id, resource, name = await scene.adopt(a_pod(args=("500", "0"))), PODS, "alone"
    await scene.start(job_id, "n0")
    await scene.until(lambda: scene.desk.records[job_id].phase is Phase.RUNNING)
    await scene.die()
    for pod in scene.pods():
        scene.world.remove(PODS, NS, pod["metadata"]["name"])
    if resource is JOBS:
        scene.world.remove(JOBS, NS, name)
    scene.world.fail(UNREADABLE, times=10**6, status=500)
    await scene.watch()
    return job_id


def an_event(kind: str, name: str, reason: str) -> Object:
    about = {"kind": kind, "name": name, "namespace": NS}
    return {
        "metadata": {"name": "e", "namespace": NS},
        "involvedObject": about,
        "reason": reason,
        "message": "m",
    }


def stalls(scene: Scene) -> list[RunStalled]:
    return [event for event in scene.reports if isinstance(event, RunStalled)]


@pytest.mark.parametrize(
    ("kind", "event", "ends", "cancelled"),
    [
        ("submitted", ("Job", "a-1", "Completed"), ["exited"], False),
        ("submitted", None, ["lost"], False),
        ("Job", None, ["lost"], True),
        ("Pod", ("Pod", "alone", "Killing"), ["displaced"], False),
        ("Pod", None, ["lost"], True),
    ],
)
def test_a_start_goes_on_without_them_and_how_a_run_ended_is_told_when_they_can_be_read(
    tmp_path: Path, kind: str, event: tuple[str, str, str] | None, ends: list[str], cancelled: bool
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await gone_unseen(scene, kind)
        assert scene.synced[-1].known == {(job_id, 1)}, "whether it ended is not known"
        assert (scene.ends, scene.cancels) == ([], [])
        await scene.until(lambda: stalls(scene))
        assert stalls(scene) == [RunStalled(job_id, 1, UNREAD)]
        scene.submit("b", args=("1", "0"))
        await scene.start("b", "n1")
        await scene.until(lambda: scene.ends == [("b", 1, "exited")])
        if event is not None:
            scene.world.add(EVENTS, an_event(*event))
        scene.world.heal()
        await scene.until(lambda: scene.reports_of(job_id))
        await scene.pass_time(10)
        assert [end.end.value for end in scene.reports_of(job_id)] == ends
        assert scene.cancels == ([job_id] if cancelled else [])

    play(tmp_path, act)


@pytest.mark.parametrize("kind", ["submitted", "Job", "Pod"])
def test_such_a_run_can_be_stopped_and_its_job_go_on(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        job_id = await gone_unseen(scene, kind)
        await scene.cluster.stop(job_id, 1, 1.0)
        assert scene.ends == [(job_id, 1, "stopped")]
        scene.place(job_id, "n1")
        scene.world.heal()
        await scene.pass_time(30)
        assert scene.cancels == [], "the object that was missing was that of an earlier run"

    play(tmp_path, act)


def test_one_that_its_user_deletes_meanwhile_waits_for_them_and_says_so(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.fail(UNREADABLE, times=10**6, status=500)
        scene.world.controller = False
        scene.world.remove(JOBS, NS, "a-1")
        await scene.until(lambda: stalls(scene))
        assert (stalls(scene), scene.cancels) == ([RunStalled("a", 1, UNREAD)], [])
        scene.world.heal()
        await scene.until(lambda: scene.cancels)

    play(tmp_path, act)
