"""Runs on a Kubernetes that lives (see `world.py`): started once, ended for sure, never lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from starburst.core.events import CancelRequested, NodesChanged, RunStarted, SiteSynced
from starburst.domain.job import Phase, Site
from starburst.kube import names
from starburst.kube.api import JOBS, NODES, PODS
from starburst.kube.errors import UnreachableError
from starburst.runs.ports import Run
from tests.clusters.kubernetes.scene import ME, NS, Scene, a_job, play


def test_a_run_is_a_job_that_chakra_binds_and_its_end_is_reported(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("5", "3"))
        await scene.start("a", "n1")
        await scene.until(lambda: scene.ends)
        assert scene.reports[-2:-1] == [RunStarted("a", 1)]
        assert scene.ends == [("a", 1, "exited")]
        assert scene.reports[-1].exit_code == 3  # type: ignore[union-attr]
        assert scene.world.ran == [("a-1", "1", "n1")]
        assert "starts on n1" in scene.marks("a-1")[names.DECISION]

    play(tmp_path, act)


def test_a_gang_goes_to_its_nodes_and_ends_as_one(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(tasks=2)
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.ends)
        assert sorted(scene.world.ran) == [("a-1", "1", "n0"), ("a-1", "1", "n1")]
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act)


@pytest.mark.parametrize("watching", [True, False], ids=["watching", "before-the-watch"])
def test_starting_twice_is_starting_once(tmp_path: Path, watching: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        placed = await scene.start("a", "n0")
        await scene.cluster.start(placed)
        assert scene.jobs() == ["a-1"]

    play(tmp_path, act, watching=watching)


@pytest.mark.parametrize("fault", [{"done": True}, {"done": False}], ids=["answer-lost", "call-lost"])
def test_a_creation_of_which_nobody_heard_is_repeated_without_harm(
    tmp_path: Path, fault: dict[str, bool]
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        scene.world.fail("POST /apis/batch/v1", **fault)
        with pytest.raises(UnreachableError):
            await scene.start("a", "n0")
        await scene.cluster.start(scene_run(scene))
        await scene.until(lambda: scene.ends)
        assert scene.world.ran == [("a-1", "1", "n0")]

    play(tmp_path, act)


def scene_run(scene: Scene, job_id: str = "a") -> Any:
    """The run of a job's record, as the performer makes it anew."""
    record = scene.desk.records[job_id]
    return Run(record.job, record.attempt, record.slots, scene.desk.submissions[job_id].workload)


def test_a_crash_between_creating_and_noting_it_ends_in_one_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        await scene.start("a", "n0")
        await scene.die()
        await scene.cluster.start(scene_run(scene))
        await scene.watch()
        assert scene.synced[-1].known == {("a", 1)}
        await scene.until(lambda: scene.ends)
        assert scene.world.ran == [("a-1", "1", "n0")]

    play(tmp_path, act)


def test_somebody_elses_job_of_that_name_refuses_the_run_and_is_left_alone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        theirs = a_job("a-1", suspend=None)
        del theirs["metadata"]["labels"]
        before = scene.world.add(JOBS, theirs)["metadata"]["uid"]
        scene.submit()
        await scene.start("a", "n0")
        assert scene.ends == [("a", 1, "refused")]
        await scene.cluster.stop("a", 1, 1.0)
        assert scene.the(JOBS, "a-1")["metadata"]["uid"] == before
        assert "deletionTimestamp" not in scene.the(JOBS, "a-1")["metadata"]

    play(tmp_path, act)


@pytest.mark.parametrize("status", [400, 404, 422])
def test_what_the_server_will_never_take_is_refused_in_its_words(tmp_path: Path, status: int) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        scene.world.fail("POST /apis/batch/v1", status=status, reason="Invalid")
        await scene.start("a", "n0")
        assert scene.ends == [("a", 1, "refused")]
        assert "as ordered" in scene.reports[-1].message  # type: ignore[union-attr]

    play(tmp_path, act)


def test_a_stop_ends_the_pod_within_its_grace_and_is_told_when_it_is_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.cluster.stop("a", 1, 7.5)
        graces = [c.body["gracePeriodSeconds"] for c in scene.world.asked if is_pod_deletion(c)]
        assert graces in ([], [8])
        assert scene.ends == []
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.pods(), scene.cancels) == ([("a", 1, "stopped")], [], [])

    play(tmp_path, act)


def is_pod_deletion(call: Any) -> bool:
    return bool(call.method == "DELETE" and "/pods/" in call.path)


def test_no_grace_is_a_second_for_with_none_at_all_a_pod_is_forgotten_while_it_lives(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.controller = False  # so that it is we who delete the pod
        await scene.cluster.stop("a", 1, 0.0)
        graces = [c.body["gracePeriodSeconds"] for c in scene.world.asked if is_pod_deletion(c)]
        assert graces == [1]
        scene.world.controller = True

    play(tmp_path, act)


@pytest.mark.parametrize("watching", [True, False], ids=["watching", "before-the-watch"])
def test_a_stop_of_a_run_that_never_was_says_so(tmp_path: Path, watching: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.submit()
        scene.place("a", "n0")
        await scene.cluster.stop("a", 1, 1.0)
        if not watching:
            await scene.watch()
        assert scene.ends == [("a", 1, "stopped")]

    play(tmp_path, act, watching=watching)


def test_a_creation_that_comes_through_after_its_stop_is_taken_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        late = scene.place("a", "n0")
        await scene.cluster.stop("a", 1, 1.0)
        assert scene.ends == [("a", 1, "stopped")]
        await scene.cluster.start(late)
        await scene.until(lambda: not scene.jobs())
        await scene.until(lambda: not scene.pods())

    play(tmp_path, act)


def test_pods_that_outlive_their_job_are_ended_before_the_run_counts_as_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.die()
        scene.world.controller = False
        scene.world.remove(JOBS, NS, "a-1")  # deleted, its pods orphaned
        await scene.watch()
        assert scene.synced[-1].known == {("a", 1)}, "it is not lost: its pod lives"
        assert scene.ends == []
        await scene.until(lambda: scene.ends)
        assert (scene.pods(), scene.ends) == ([], [("a", 1, "stopped")])

    play(tmp_path, act)


def test_a_job_that_its_user_deletes_is_cancelled(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.delete(JOBS, NS, "a-1")
        await scene.until(lambda: scene.ends)
        assert (scene.cancels, scene.ends) == (["a"], [("a", 1, "stopped")])

    play(tmp_path, act)


def test_a_drained_node_displaces_its_run_once_chakra_finds_no_room_for_long_enough(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.cordoned.add("n0")
        (pod,) = scene.pods()
        began = asyncio.get_running_loop().time()
        scene.world.delete(PODS, NS, pod["metadata"]["name"])  # as an eviction does
        await scene.until(lambda: scene.ends)
        assert asyncio.get_running_loop().time() - began > 30
        assert (scene.ends, scene.jobs(), scene.cancels) == ([("a", 1, "displaced")], [], [])

    play(tmp_path, act)


def test_a_job_whose_pods_cannot_be_made_does_not_hold_its_place_for_ever(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.controller = False  # as if a quota did not let it
        scene.submit()
        await scene.start("a", "n0")
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.jobs()) == ([("a", 1, "displaced")], [])

    play(tmp_path, act)


def test_a_pod_that_the_kubelet_throws_out_displaces_its_run_at_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.world.end_pod(scene.pods()[0], 0, "Evicted")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "displaced")]
        await scene.start("a", "n1")
        await scene.until(lambda: len(scene.world.ran) == 2)

    play(tmp_path, act)


def test_what_was_only_half_stopped_when_the_server_went_away_is_stopped_later(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        scene.world.cordoned.add("n0")
        await scene.start("a", "n0")
        scene.world.fail("DELETE /apis/batch", times=1, status=500)
        await scene.until(lambda: names.STOPPING in scene.marks("a-1"))
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "displaced")]

    play(tmp_path, act)


def test_when_a_gang_loses_a_pod_the_others_are_ended_before_it_fails(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"), tasks=2)
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.running() == 2)
        scene.world.end_pod(scene.pods()[0], 7)
        await scene.until(lambda: scene.ends)
        assert (scene.running(), scene.ends) == (0, [("a", 1, "exited")])
        assert scene.reports[-1].exit_code == 7  # type: ignore[union-attr]

    play(tmp_path, act)


def test_a_pod_that_the_job_controller_makes_again_is_the_same_run(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("20", "0"), tasks=2, backoffLimit=3)
        await scene.start("a", "n0", "n1")
        await scene.until(lambda: scene.running() == 2)
        scene.world.end_pod(scene.pods()[0], 7)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, len(scene.world.ran)) == ([("a", 1, "exited")], 3)
        assert scene.reports.count(RunStarted("a", 1)) == 1
        assert scene.reports[-1].exit_code == 0  # type: ignore[union-attr]

    play(tmp_path, act)


def test_a_sync_lists_all_there_is_once_and_last(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        for job_id, code in (("a", "0"), ("b", "1")):
            scene.submit(job_id, args=("1", code))
            await scene.start(job_id, "n0")
        scene.submit("c", args=("500", "0"))
        await scene.start("c", "n1")
        await scene.until(lambda: len(scene.ends) == 2 and scene.running() == 1)
        await scene.die()
        scene.reports.clear()
        await scene.watch()
        sync = scene.reports.index(scene.synced[0])
        told = scene.reports[:sync]
        assert scene.synced == [
            SiteSynced(Site.CLUSTER, frozenset({("a", 1), ("b", 1), ("c", 1)})),
        ]
        assert isinstance(told[0], NodesChanged)
        assert sorted(scene.ends) == [("a", 1, "exited"), ("b", 1, "exited")]
        await scene.pass_time(20)
        assert scene.synced == scene.synced[:1]
        assert len(scene.jobs()) == 3, "finished Jobs are no strays"

    play(tmp_path, act)


def test_finished_jobs_cost_the_desk_nothing_while_time_passes(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("1", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: scene.ends)
        scene.desk.asked.clear()
        await scene.pass_time(60)
        assert scene.desk.asked == []

    play(tmp_path, act)


def test_nodes_are_told_with_what_others_left_of_them(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        assert [(n.name, n.capacity.gpus) for n in scene.nodes.nodes] == [("n0", 4), ("n1", 4)]
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        other = a_job("other")
        del other["metadata"]["labels"]
        template = other["spec"]["template"]["spec"]
        scene.world.add(
            PODS, {"metadata": {"name": "o", "namespace": "x"}, "spec": {**template, "nodeName": "n1"}}
        )
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [4, 3])
        await scene.until(scene.running)
        scene.world.change(NODES, "", "n0", {"spec": {"unschedulable": True}})
        await scene.until(lambda: not scene.nodes.nodes[0].schedulable)
        assert [n.capacity.gpus for n in scene.nodes.nodes] == [4, 3], "our own pods are the core's to count"

    play(tmp_path, act)


def test_a_pod_that_is_heard_of_before_its_job_takes_no_room_from_us_once_that_is_known(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.pass_time(20)
        scene.world.fail("WATCH /apis/batch", times=4)  # the watch of Jobs comes back late
        for watcher in scene.world.watchers:
            if watcher.within.plural == "jobs" and watcher.selector:
                watcher.queue.put_nowait(b"")
        await scene.start(job_id, "n0")
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [3, 4])
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [4, 4])

    play(tmp_path, act)


def test_a_run_that_the_core_gives_up_while_its_pod_lives_takes_room_as_any_other(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        record = scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        record.phase, record.slots = Phase.QUEUED, ()
        scene.world.fail("DELETE", times=10**6, status=500)  # so that it lives on
        scene.told(record)
        await scene.until(lambda: [n.capacity.gpus for n in scene.nodes.nodes] == [3, 4])

    play(tmp_path, act)


def test_a_restart_that_takes_long_to_hear_of_all_pods_takes_no_run_back_for_want_of_them(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.die()
        scene.world.fail("GET /api/v1/pods", times=10**6)
        scene.start_watching()
        await scene.pass_time(100)
        assert len(scene.synced) == 1, "it has not heard of all pods"
        assert names.STOPPING not in scene.marks("a-1")
        scene.world.heal()
        await scene.until(lambda: RunStarted("a", 1) in scene.reports[-3:])
        assert scene.ends == []

    play(tmp_path, act)


def test_a_cluster_without_nodes_says_so(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        for name in ("n0", "n1"):
            scene.world.remove(NODES, "", name)
        await scene.watch()
        assert scene.nodes == NodesChanged(())

    play(tmp_path, act, watching=False)


def test_a_server_that_is_not_there_yet_is_waited_for_and_nothing_is_lost_meanwhile(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("GET", times=40)
        scene.start_watching()
        await scene.pass_time(5)
        assert scene.reports == []
        await scene.until(lambda: scene.synced)

    play(tmp_path, act, watching=False)


def test_while_the_server_is_gone_nothing_is_reported_and_afterwards_all_of_it(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("30", "0"))
        await scene.start("a", "n0")
        await scene.until(lambda: RunStarted("a", 1) in scene.reports)
        before = list(scene.reports)
        scene.world.fail("", times=10**6)
        scene.world.cut_watches()
        await scene.pass_time(100)
        assert scene.reports == before
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]

    play(tmp_path, act)


async def restarted(scene: Scene, owed: Run) -> None:
    """Killed, and come back with a start that is still owed."""
    await scene.die()
    await scene.cluster.start(owed)
    await scene.watch()


@pytest.mark.parametrize("moment", range(6))
def test_a_restart_at_any_moment_of_a_run_changes_nothing(tmp_path: Path, moment: int) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("2", "0"))
        placed = scene.place("a", "n0")
        steps = 0

        async def step() -> None:
            nonlocal steps
            if steps == moment:
                await restarted(scene, placed)
            steps += 1

        await step()
        await scene.cluster.start(placed)
        await step()
        await scene.until(scene.pods)
        await step()
        await scene.until(lambda: scene.running() or scene.ends)
        await step()
        await scene.until(lambda: scene.the(JOBS, "a-1").get("status", {}).get("conditions"))
        await step()
        await scene.until(lambda: scene.ends)
        await step()
        assert set(scene.ends) == {("a", 1, "exited")}
        assert scene.world.ran == [("a-1", "1", "n0")]

    play(tmp_path, act)


@pytest.mark.parametrize("moment", range(5))
def test_a_restart_at_any_moment_of_a_stop_changes_nothing(tmp_path: Path, moment: int) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("500", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        scene.desk.records["a"].phase = Phase.STOPPING
        if moment == 1:
            scene.world.fail("PATCH", done=True)
        if moment == 2:
            scene.world.fail("DELETE", done=True)
        if moment:
            try:
                await scene.cluster.stop("a", 1, 5.0)
            except UnreachableError:
                assert moment in (1, 2)
        if moment == 4:
            await scene.until(lambda: scene.ends)
        await scene.die()
        await scene.cluster.stop("a", 1, 5.0)  # still owed
        await scene.watch()
        await scene.until(lambda: scene.ends)
        assert set(scene.ends) == {("a", 1, "stopped")}
        assert (scene.cancels, scene.jobs(), scene.pods()) == ([], [], [])

    play(tmp_path, act)


def test_telling_it_of_a_step_takes_no_time(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("", silent=True, times=10**6)
        record = scene.submit()
        before = asyncio.get_running_loop().time()
        for _ in range(1000):
            scene.told(record)
        assert asyncio.get_running_loop().time() == before

    play(tmp_path, act)


def test_objects_of_another_scheduler_are_not_touched(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        theirs = a_job("theirs")
        theirs["metadata"]["labels"] |= {names.JOB: "a", names.CONTROLLER: "store-2"}
        theirs["metadata"]["annotations"] = {names.ATTEMPT: "1", names.ADOPTED: "true"}
        scene.world.add(JOBS, theirs)
        await scene.until(scene.pods)
        scene.submit("a")
        scene.away("a")
        await scene.pass_time(60)
        scene.end("a", Phase.SUCCEEDED, 0)
        await scene.pass_time(60)
        scene.world.delete(JOBS, NS, "theirs")
        await scene.pass_time(5)
        written = [call.path for call in scene.world.asked if call.method not in ("GET",)]
        assert (written, scene.ends, scene.cancels) == ([], [], [])
        assert ME != "store-2"

    play(tmp_path, act)


def test_a_cancel_of_a_job_that_the_core_does_not_know_yet_is_said_again_when_it_does(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.add(JOBS, a_job())
        await scene.until(lambda: names.ADOPTED in scene.marks("train"))
        (job_id,) = scene.desk.submissions
        scene.world.delete(JOBS, NS, "train")
        await scene.until(lambda: scene.cancels)
        assert scene.cancels == [job_id]
        scene.take_up(job_id)
        assert scene.cancels == [job_id] * 2
        assert CancelRequested(job_id) in scene.reports

    play(tmp_path, act)
