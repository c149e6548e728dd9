"""Why a job that was started on a machine does not run yet is told, and not too often."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starburst.clouds.sky.runs.delays import AGAIN_S
from starburst.core.model.events import RunEnded, RunStalled, RunStarted
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import Life, play, ready, run_of

PULLING = 'Pulling image "a:1"'
BACK_OFF = 'ImagePullBackOff: Back-off pulling image "a:1"'


def test_layers_that_arrive_are_told_now_and_then_and_a_new_reason_at_once(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        vm = sky.vms[0]
        vm.waits = PULLING
        await life.cloud.start(run_of("a", 10))
        await life.heard(RunStalled)
        for layers in range(12):
            vm.waits = f"{PULLING}: {layers} of 12 layers are here"
            await asyncio.sleep(10.0)
        told = [event.why for event in life.of(RunStalled)]
        assert told[0] == PULLING
        assert 2 <= len(told) <= 2 + 120.0 / AGAIN_S
        assert not life.of(RunStarted)
        vm.waits = BACK_OFF
        await life.heard(RunStalled, lambda event: event.why == BACK_OFF)

    play(tmp_path, story)


def test_a_run_whose_wait_is_over_starts_and_ends_once(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].waits = PULLING
        await life.cloud.start(run_of("a", 10))
        await life.heard(RunStalled)
        sky.vms[0].waits = ""
        assert (await life.heard(RunEnded)).exit_code == 0
        assert [event.why for event in life.of(RunStalled)] == [PULLING]
        assert len(life.of(RunStarted)) == 1

    play(tmp_path, story)


def test_what_is_to_be_stopped_tells_of_no_wait(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].waits = PULLING
        await life.cloud.start(run_of("a", 10))
        await life.heard(RunStalled)
        await life.cloud.stop("a", 1, 5.0)
        sky.vms[0].waits = BACK_OFF
        await life.heard(RunEnded)
        assert [event.why for event in life.of(RunStalled)] == [PULLING]

    play(tmp_path, story)
