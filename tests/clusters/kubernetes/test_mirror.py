"""A user's object shows how its job stands: put right when overwritten, written no oftener than needed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play


def test_its_conditions_and_decision_say_how_it_stands(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("500", "0")))
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        assert "waits for 1 GPU" in scene.marks("train")[names.DECISION]
        written = [call.path for call in scene.world.asked if call.method == "PATCH"]
        assert [path.rpartition("/")[2] for path in written] == ["train", "status"], "marks, then both"
        await scene.start(job_id, "n0")
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Placed"])
        assert "starts on n0" in scene.marks("train")[names.DECISION]
        assert [event["reason"] for event in scene.events("Placed")] == ["Placed"]

    play(tmp_path, act)


def test_conditions_that_another_writer_overwrites_come_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        scene.world.change(JOBS, NS, "train", {"status": {"conditions": []}})
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])

    play(tmp_path, act)


def test_an_end_that_another_writer_overwrites_comes_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        scene.away(job_id, Phase.RUNNING)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.until(lambda: names.LOGS in scene.marks("train"))
        scene.world.change(JOBS, NS, "train", {"status": {"conditions": []}})
        await scene.until(lambda: "Complete" in scene.conditions("train"))

    play(tmp_path, act)


def test_a_reason_that_changes_all_the_time_is_written_now_and_then(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        before = len([call for call in scene.world.asked if call.method == "PATCH" and "jobs" in call.path])
        for number in range(80):
            scene.told(scene.desk.records[job_id], "waits", need=f"{number} GPUs", wait_s=None, rule="test")
            await scene.pass_time(0.1)
        after = len([call for call in scene.world.asked if call.method == "PATCH" and "jobs" in call.path])
        assert after - before <= 5, "8 s passed"
        await scene.until(lambda: "79 GPUs" in scene.marks("train")[names.DECISION])

    play(tmp_path, act)


def test_after_a_restart_what_is_shown_as_it_should_be_is_not_written_again(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        await scene.pass_time(30)
        version = scene.world.store.version
        await scene.restart()
        await scene.pass_time(30)
        assert scene.world.store.version == version

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


def test_a_webhook_that_refuses_every_write_is_not_asked_all_the_time(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        await scene.until(lambda: scene.conditions("train") == ["starburst.io/Queued"])
        await scene.pass_time(15.0)
        scene.world.fail("PATCH /apis/batch", status=500, times=10_000)
        before = len(scene.world.asked)
        scene.told(scene.desk.records[job_id], "waits", need="9 GPUs", wait_s=None, rule="test")
        await scene.pass_time(300.0)
        refused = [call for call in scene.world.asked[before:] if call.method == "PATCH"]
        assert 3 <= len(refused) <= 40, "every two seconds it would be more than a hundred"
        scene.world.heal()
        await scene.until(lambda: "9 GPUs" in scene.marks("train")[names.DECISION])

    play(tmp_path, act)
