"""What tasks on rented machines say of their progress, in virtual time."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.clouds.sky.runs.progress import HEAR_S, ProgressCollector
from starburst.core.model.events import Event, Progress, RunEnded, RunStarted
from starburst.runs.supervisor.progress_report import MAX_BYTES
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_vm import Task
from tests.clouds.sky.life import Life, play, ready, run_of


def said(done: float, total: float = 100, per_s: float = 1.0) -> bytes:
    return json.dumps({"done": done, "total": total, "per_s": per_s, "at": 0.0}).encode()


def task(sky: FakeSky, name: str) -> Task:
    return next(vm.tasks[name] for vm in sky.vms if name in vm.tasks)


async def running(life: Life, *where: str, **more: Any) -> None:
    for instance_id in where:
        await ready(life, instance_id)
    await life.cloud.start(run_of("a", 500, 0, 1, *where, **more))
    await life.heard(RunStarted)


def test_what_a_task_says_is_heard_each_time_it_says_something_else(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life, "i-1")
        for done in (10, 20):
            task(sky, "a/1/0").report = said(done)
            await asyncio.sleep(60)
        told = [event for event in life.events if isinstance(event, Progress)]
        assert told == [Progress("a", 1, 10, 100, 1.0), Progress("a", 1, 20, 100, 1.0)]

    play(tmp_path, story)


def test_of_a_gang_on_two_machines_the_slowest_task_counts(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life, "i-1", "i-2")
        task(sky, "a/1/0").report = said(50)
        await asyncio.sleep(10)
        task(sky, "a/1/1").report = said(40)
        await asyncio.sleep(10)
        task(sky, "a/1/0").report = said(60)
        await asyncio.sleep(10)
        task(sky, "a/1/0").report = said(60, per_s=0.5)
        await asyncio.sleep(10)
        told = [event.done for event in life.events if isinstance(event, Progress)]
        assert told == [50, 40, 60]

    play(tmp_path, story)


@pytest.mark.parametrize("bad", [b"", b"\xff\x00", b"[]", said(7, total=3), b" " * MAX_BYTES + said(1)])
def test_what_is_no_report_is_passed_over_and_does_no_harm(tmp_path: Path, bad: bytes) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life, "i-1")
        task(sky, "a/1/0").report = bad
        await asyncio.sleep(20)
        assert not life.of(Progress)
        task(sky, "a/1/0").report = said(5)
        await life.heard(Progress)
        assert (await life.heard(RunEnded)).exit_code == 0

    play(tmp_path, story)


def test_after_a_restart_it_is_heard_anew(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await running(life, "i-1")
        task(sky, "a/1/0").report = said(10)
        await life.heard(Progress)
        async with Life(sky, life.home) as second:
            assert (await second.heard(Progress)).done == 10

    play(tmp_path, story)


class Ear:
    """A hearing by itself, and what it told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[Event] = []
        self.hearing = ProgressCollector(self.told.append, lambda: self.now)
        self.note = RunEntry("a", 1, [RankEntry("i-1")])
        self.mine = {"a/1/0": (self.note, self.note.ranks[0])}

    def heard(self, answer: object) -> None:
        self.hearing.heard(*self.mine["a/1/0"], answer)


def test_a_machine_is_told_what_is_known_and_not_asked_at_every_exchange() -> None:
    ear = Ear()
    assert ear.hearing.ask("i-1", ear.mine) == {"a/1/0": ""}
    ear.heard(base64.b64encode(said(1)).decode())
    assert ear.hearing.ask("i-1", ear.mine) == {}
    ear.now += HEAR_S
    (known,) = ear.hearing.ask("i-1", ear.mine).values()
    assert len(known) == 16
    ear.now -= 3600  # a clock that was put back
    assert ear.hearing.ask("i-1", ear.mine) == {"a/1/0": known}
    ear.hearing.drop(ear.note)
    ear.hearing.gone("i-1")
    assert ear.hearing.ask("i-1", ear.mine) == {"a/1/0": ""}


def test_of_a_run_that_ended_while_its_machine_was_asked_nothing_is_told_or_kept() -> None:
    ear = Ear()
    ear.note.end = {"end": "lost", "exit_code": None, "message": ""}
    ear.heard(base64.b64encode(said(1)).decode())
    assert ear.told == []
    assert ear.hearing.ask("i-1", ear.mine) == {"a/1/0": ""}


@pytest.mark.parametrize(
    "answer", [None, 7, "?", "x" * 100_000, ["e30="], "ä", base64.b64encode(said(1)) * 50]
)
def test_an_answer_that_is_no_report_is_none(answer: object) -> None:
    ear = Ear()
    ear.heard(answer)
    assert ear.told == []
