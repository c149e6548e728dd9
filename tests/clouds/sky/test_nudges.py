"""A nudge has machines with tasks looked at now, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starburst.core.model.events import Progress, RunStarted
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import Life, play, ready, run_of
from tests.clouds.sky.test_progress import said, task

#: More than an exchange takes, and less than a round.
SOON_S = 1.0


def test_a_nudge_brings_news_at_once(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 500))
        await life.heard(RunStarted)
        await asyncio.sleep(20)
        calls = sky.calls["ssh"]
        while sky.calls["ssh"] == calls:  # until a round has just been made
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.5)
        task(sky, "a/1/0").report = said(10)
        began = wall()
        life.cloud.nudge()
        await life.heard(Progress)
        assert wall() - began < SOON_S

    play(tmp_path, story)


def test_however_often_it_is_nudged_a_machine_is_asked_every_two_seconds_and_skypilot_not_at_all(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 500))
        await life.heard(RunStarted)
        await asyncio.sleep(60)
        before = dict(sky.calls)
        for _ in range(2000):
            life.cloud.nudge()
            await asyncio.sleep(0.01)
        assert 8 <= sky.calls["ssh"] - before["ssh"] <= 12
        more = {name for name, count in sky.calls.items() if count != before[name]}
        assert more <= {"ssh", "status", "sight"}
        assert sky.calls["status"] - before["status"] <= 1

    play(tmp_path, story)


def test_machines_without_tasks_are_let_be(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await asyncio.sleep(60)
        before = sky.calls["ssh"]
        for _ in range(10):
            life.cloud.nudge()
            await asyncio.sleep(1)
        assert sky.calls["ssh"] - before <= 1

    play(tmp_path, story)
