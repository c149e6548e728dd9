"""The scheduler dies before and after every single thing it asks for; the next one goes on."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from starburst.core.model.events import InstanceFailed, InstanceGone, InstanceReady, RunEnd, RunEnded
from tests.app.virtual import run
from tests.clouds.sky.fake import BOOT_S, FakeSky
from tests.clouds.sky.life import OFFER, Life, run_of

#: There are fewer points than this in the story.
MOST = 400


class Death:
    """Lets so many points pass; at the next the caller hangs for ever and `came` is set."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""
        self.came = asyncio.Event()

    async def __call__(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.where = what
            self.came.set()
        if self.left <= 0:
            await asyncio.Event().wait()


async def story(life: Life) -> None:
    """What the core asks for, in every life: a machine, two jobs, one of them stopped, no machine."""
    if not life.of(InstanceReady) and not life.of(InstanceGone):
        await life.cloud.launch("i-1", OFFER)
        await life.heard((InstanceReady, InstanceGone))
    for job, work_s in (("a", 30), ("b", 1000)):
        await life.cloud.start(run_of(job, work_s, 0, 2, checkpoint=True))
    await life.heard(RunEnded, lambda event: event.job_id == "a")
    await life.cloud.stop("b", 1, 5.0)
    await life.heard(RunEnded, lambda event: event.job_id == "b")
    await life.cloud.terminate("i-1")
    await life.heard(InstanceGone)


async def lives(tmp_path: Path, crash_at: int) -> tuple[FakeSky, list[Life], str]:
    sky = FakeSky(tmp_path / "sky")
    (tmp_path / "home" / "checkpoints" / "a").mkdir(parents=True, exist_ok=True)
    (tmp_path / "home" / "checkpoints" / "a" / "step").write_text("1")
    death = Death(crash_at)
    first = Life(sky, tmp_path / "home", death)
    async with first:
        telling = asyncio.create_task(story(first))
        dying = asyncio.create_task(death.came.wait())
        done, _ = await asyncio.wait({telling, dying}, return_when=asyncio.FIRST_COMPLETED)
        telling.cancel()
        if telling in done:
            telling.result()
            dying.cancel()
            return sky, [first], ""
    async with Life(sky, tmp_path / "home") as second:
        await story(second)
        await asyncio.sleep(3 * BOOT_S)
    return sky, [first, second], death.where


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_point_makes_no_second_machine_and_runs_nothing_twice(
    tmp_path: Path, part: int
) -> None:
    for crash_at in itertools.count(1 + part, 4):
        assert crash_at < MOST
        sky, told, where = run(lives(tmp_path / str(crash_at), crash_at))
        assert len(sky.vms) == 1, (crash_at, where)
        assert not sky.alive(), (crash_at, where)
        tasks = sky.vms[0].tasks
        assert {name: task.begun for name, task in tasks.items()} == {"a/1/0": 1, "b/1/0": 1}, where
        last = told[-1]
        ends = {end.job_id: (end.end, end.exit_code) for end in last.of(RunEnded)}
        assert ends["a"] == (RunEnd.EXITED, 0), (crash_at, where)
        assert ends["b"][0] is RunEnd.STOPPED, (crash_at, where)
        assert not any(life.of(InstanceFailed) for life in told)
        gone = {event for life in told for event in life.of(InstanceGone)}
        assert len(gone) == 1, "the bill is told the same way every time"
        if len(told) == 1:
            return


@pytest.mark.parametrize("crash_at", range(1, 14))
def test_a_crash_while_a_launch_is_given_up_leaves_no_machine(tmp_path: Path, crash_at: int) -> None:
    async def main() -> FakeSky:
        sky = FakeSky(tmp_path / "sky")
        death = Death(crash_at)
        async with Life(sky, tmp_path / "home", death) as first:
            await first.cloud.launch("i-1", OFFER)
            await asyncio.sleep(8)
            await first.cloud.terminate("i-1")
            await asyncio.wait([asyncio.create_task(death.came.wait())], timeout=100)
        async with Life(sky, tmp_path / "home") as second:
            await second.cloud.terminate("i-1")
            await second.heard(InstanceGone)
            await asyncio.sleep(3 * BOOT_S)
        return sky

    assert not run(main()).alive()
