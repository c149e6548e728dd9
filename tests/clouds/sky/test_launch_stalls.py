"""A launch that SkyPilot holds up: reported once with the reason, and once that it goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starburst.core.model.events import InstanceReady, InstanceStalled
from tests.app.virtual import run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, at, play


def test_an_api_server_that_does_not_answer_is_reported_once_until_it_does(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.server_up = False
        await life.cloud.launch("i-1", OFFER)
        await life.heard(InstanceStalled)
        await asyncio.sleep(120)
        (held_up,) = life.of(InstanceStalled)
        assert held_up == InstanceStalled("i-1", "the API server is down")
        sky.server_up = True
        await life.heard(InstanceReady, at("i-1"))
        assert life.of(InstanceStalled) == [held_up, InstanceStalled("i-1", "")]

    play(tmp_path, story)


def test_what_held_up_a_launch_before_a_restart_is_taken_back_when_it_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", server_up=False)
        async with Life(sky, tmp_path / "home") as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceStalled)
        sky.server_up = True
        async with Life(sky, tmp_path / "home") as life:
            await life.heard(InstanceReady, at("i-1"))
            assert life.of(InstanceStalled) == [InstanceStalled("i-1", "")]

    run(main())


def test_another_cause_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.server_up = False
        await life.cloud.launch("i-1", OFFER)
        held_up = await life.heard(InstanceStalled)
        life.cloud.machines["i-1"].launch_held_up("its cloud is away")
        assert life.of(InstanceStalled)[-1] == InstanceStalled("i-1", "its cloud is away") != held_up

    play(tmp_path, story)
