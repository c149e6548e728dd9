"""The store was put back to a backup: what lies in the cluster is ahead of what the scheduler knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.core.model.events import RunStarted
from starburst.kube import names
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play


def test_a_run_that_has_ended_before_is_told_again_when_it_is_asked_for(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("5", "3"))
        await scene.start("a", "n0")
        await scene.until(lambda: scene.ends)
        await scene.die()
        scene.take_up("a")  # the backup has it in the queue
        await scene.watch()
        told = len(scene.reports)
        await scene.start("a", "n1")
        await scene.until(lambda: len(scene.ends) == 3)  # before, of the listing, and again
        assert RunStarted("a", 1) in scene.reports[told:]
        assert scene.ends[-1] == ("a", 1, "exited")
        assert len(scene.world.ran) == 1, "its command ran once"

    play(tmp_path, act)


def test_a_run_whose_end_was_not_heard_of_is_not_made_a_second_time(tmp_path: Path) -> None:
    """Its end would be taken for that of the second, and a third begin beside it."""

    async def act(scene: Scene) -> None:
        scene.submit(args=("600", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.die()
        scene.take_up("a")  # the backup has it in the queue
        await scene.watch()
        scene.world.fail("WATCH", times=10**6, status=500)
        scene.world.cut_watches()
        await scene.cluster.stop("a", 1, 5.0)
        await scene.until(lambda: not scene.jobs())
        await scene.start("a", "n1")
        assert not scene.jobs()
        scene.world.heal()
        await scene.until(lambda: scene.ends)
        assert [end[:2] for end in scene.ends] == [("a", 1)]
        await scene.start("a", "n1")
        await scene.until(scene.running)
        assert scene.jobs() == ["a-2"]

    play(tmp_path, act)


def test_what_lives_there_is_not_known_before_the_first_listing(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("600", "0"))
        await scene.start("a", "n0")
        await scene.until(scene.running)
        await scene.die()
        assert scene.cluster.newest("a") == 0, "of a store that knows all of its runs"
        scene.desk.put_back = True
        assert scene.cluster.newest("a") is None
        await scene.watch()
        assert scene.cluster.newest("a") == 1

    play(tmp_path, act)


async def sent_away_and_forgotten(scene: Scene) -> str:
    """A Job was adopted and sent to the cloud; the store that comes back has none of it."""
    job_id = await scene.adopt()
    scene.away(job_id)
    await scene.until(lambda: names.NODES in scene.marks("train"))
    await scene.die()
    scene.desk.records.clear()
    scene.desk.submissions.clear()
    return job_id


def test_an_adopted_job_of_which_the_store_has_nothing_is_taken_in_again_and_runs(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await sent_away_and_forgotten(scene)
        await scene.watch()
        await scene.until(lambda: job_id in scene.desk.submissions)
        assert not scene.desk.submissions[job_id].job.hold
        scene.take_up(job_id)
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]

    play(tmp_path, act)


def test_also_one_that_had_runs_there(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("600", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        await scene.cluster.stop(job_id, 1, 1.0)
        await scene.until(lambda: scene.ends)
        scene.desk.records[job_id].attempt = 3
        await scene.start(job_id, "n1")  # run 4
        await scene.until(scene.running)
        await scene.cluster.stop(job_id, 4, 1.0)
        await scene.until(lambda: len(scene.ends) == 2)
        await scene.die()
        scene.desk.records.clear()
        scene.desk.submissions.clear()
        await scene.watch()
        await scene.until(lambda: job_id in scene.desk.submissions)
        scene.take_up(job_id)
        await scene.start(job_id, "n0")
        await scene.until(lambda: RunStarted(job_id, 1) in scene.reports[-3:])
        assert scene.running() == 1

    play(tmp_path, act)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {names.CONTROLLER: "another"}},
        {"annotations": {names.NODES: "n0"}},
        {"annotations": {names.ADOPTED: None}},
    ],
    ids=["of another Starburst", "placed", "not adopted"],
)
def test_one_that_is_anothers_or_has_a_place_is_left_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    async def act(scene: Scene) -> None:
        job_id = await sent_away_and_forgotten(scene)
        scene.world.change(JOBS, NS, "train", {"metadata": change})
        await scene.watch()
        await scene.pass_time(30.0)
        assert job_id not in scene.desk.submissions

    play(tmp_path, act)


def test_nor_is_one_whose_job_the_store_knows_to_be_over(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await sent_away_and_forgotten(scene)
        scene.desk.over.add(job_id)
        await scene.watch()
        await scene.pass_time(30.0)
        assert job_id not in scene.desk.submissions

    play(tmp_path, act)
