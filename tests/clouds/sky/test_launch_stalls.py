"""A launch that SkyPilot holds up: reported once with the reason, and once that it goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starburst.core.model.events import InstanceReady, InstanceStalled
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
