"""A user's Job or Pod that was taken runs where the core puts it: stopped, displaced, and run again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from starburst.core.model.events import LeaveRuled
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.errors import ApiUnreachableError
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.kinds import KINDS, an_object
from tests.clusters.kubernetes.scene import NS, Scene, a_job, a_pod, play


@KINDS
def test_a_stop_ends_its_run_and_another_one_can_follow(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, _ = an_object(kind, "20", "0")
        job_id = await scene.adopt(item)
        for attempt, node in ((1, "n0"), (2, "n1")):
            await scene.start(job_id, node)
            await scene.until(lambda attempt=attempt: len(scene.world.ran) == attempt)
            if attempt == 1:
                await scene.cluster.stop(job_id, 1, 5.0)
                await scene.until(lambda: scene.ends)
                assert scene.pods() == []
        await scene.until(lambda: len(scene.ends) == 2)
        assert scene.ends == [(job_id, 1, "stopped"), (job_id, 2, "exited")]
        assert [node for _, _, node in scene.world.ran] == ["n0", "n1"]
        assert scene.cancels == []

    play(tmp_path, act)


@KINDS
@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_called_succeeded_and_never_ran_is_made_anew(
    tmp_path: Path, kind: str, restarted: bool
) -> None:
    async def act(scene: Scene) -> None:
        item, _ = an_object(kind, "500", "0")
        job_id = await scene.adopt(item)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        if restarted:
            await scene.die()
        main = {"name": "main", "state": {"terminated": {"exitCode": 0, "startedAt": None}}}
        told = {"status": {"phase": "Succeeded", "containerStatuses": [main]}}
        scene.world.change(PODS, NS, scene.pods()[0]["metadata"]["name"], told)
        if restarted:
            await scene.watch()
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "lost")], [])
        with suppress(RuntimeError):  # as the scheduler does, it is asked again after a pause
            await scene.start(job_id, "n1")
        await scene.until(lambda: len(scene.world.ran) == 2)
        assert [node for _, _, node in scene.world.ran] == ["n0", "n1"]
        assert len(scene.pods()) == 1

    play(tmp_path, act)


def test_a_bare_pod_is_stopped_even_if_the_watch_has_not_seen_it_yet(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("500", "0")))
        scene.world.fail("WATCH", times=10**6)
        scene.world.cut_watches()
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await scene.cluster.stop(job_id, 1, 5.0)
        await scene.until(lambda: not scene.pods())
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "stopped")], [])

    # The world itself hears of nothing without its watches, so it is nudged.
    async def nudged(scene: Scene) -> None:
        nudging = asyncio.create_task(_nudge(scene))
        await act(scene)
        nudging.cancel()

    play(tmp_path, nudged)


async def _nudge(scene: Scene) -> None:
    while True:
        await asyncio.sleep(0.2)
        scene.world.nudge()


def test_an_evicted_pod_is_made_anew_for_its_next_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_pod(args=("20", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.end_pod(scene.pods()[0], 0, "Evicted")
        await scene.until(lambda: scene.ends)
        await scene.start(job_id, "n1")
        await scene.until(lambda: scene.desk.records[job_id].phase is Phase.RUNNING)
        await scene.restart()
        assert scene.cancels == [], "its object is another one now, but nobody deleted it"
        await scene.until(lambda: len(scene.ends) == 2)
        assert scene.ends == [(job_id, 1, "displaced"), (job_id, 2, "exited")]
        assert [node for _, _, node in scene.world.ran] == ["n0", "n1"]
        assert scene.cancels == []

    play(tmp_path, act)


@pytest.mark.parametrize("reason", ["Evicted", "OutOfnvidia.com/gpu"])
def test_a_job_that_kubernetes_calls_failed_for_a_pod_that_was_taken_is_made_anew(
    tmp_path: Path, reason: str
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("20", "0"), activeDeadlineSeconds=600))
        first = scene.the(JOBS, "train")["metadata"]["uid"]
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.end_pod(scene.pods()[0], 0, reason)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "displaced")]
        assert any(isinstance(told, LeaveRuled) and told.why for told in scene.reports), "it cannot leave now"
        await scene.restart()
        await scene.start(job_id, "n1")
        await scene.until(lambda: scene.ends[-1] == (job_id, 2, "exited"))
        job = scene.the(JOBS, "train")
        assert job["metadata"]["uid"] != first
        assert job["spec"]["activeDeadlineSeconds"] == 600
        assert "Complete" in scene.conditions("train")
        assert [node for _, _, node in scene.world.ran] == ["n0", "n1"]
        await scene.restart()
        assert scene.cancels == []

    play(tmp_path, act)


def test_one_that_somebody_withdraws_by_hand_is_displaced_after_a_while(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.change(JOBS, NS, "train", {"spec": {"parallelism": 0}})
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "displaced")]

    play(tmp_path, act)


def test_a_placement_that_comes_through_too_late_is_taken_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        late = scene.place(job_id, "n0")
        await scene.cluster.stop(job_id, 1, 1.0)
        assert scene.ends == [(job_id, 1, "stopped")]
        await scene.cluster.start(late)
        await scene.until(lambda: scene.marks("train").get(names.NODES) == "")
        await scene.until(lambda: not scene.running())
        assert scene.cancels == []

    play(tmp_path, act)


@KINDS
def test_a_start_whose_answer_is_lost_is_repeated_without_harm(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind)
        job_id = await scene.adopt(item)
        placed = scene.place(job_id, "n0")
        await scene.until(lambda: scene.conditions("train", resource) == ["starburst.io/Placed"])
        await scene.pass_time(20)
        scene.world.fail(f"PATCH {resource.path(NS, 'train')}", done=True)
        with pytest.raises(ApiUnreachableError):
            await scene.cluster.start(placed)
        await scene.cluster.start(placed)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, len(scene.world.ran)) == ([(job_id, 1, "exited")], 1)

    play(tmp_path, act)
