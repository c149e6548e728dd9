"""Hints are passed on at once, and however many come, not more often than every two seconds."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from starburst.core.model.events import Progress
from starburst.runs import processes
from starburst.runs.debounce import NUDGE_S, Nudges
from tests.app.virtual import run, wall
from tests.runs.harness import PLACES, a_runner, shell, until, watching


def looks(nudged_at: list[float]) -> list[float]:
    """When nudges at these times bring a look about."""

    async def main() -> list[float]:
        began, seen = wall(), list[float]()
        nudges = Nudges(lambda: seen.append(round(wall() - began, 3)))
        for at in nudged_at:
            await asyncio.sleep(began + at - wall())
            nudges.nudge()
        await asyncio.sleep(5 * NUDGE_S)
        return seen

    return run(main())


def test_one_nudge_is_one_look_at_once() -> None:
    assert looks([1.0]) == [1.0]


def test_nudges_far_apart_are_looked_after_each() -> None:
    assert looks([0.0, 2.5, 7.0]) == [0.0, 2.5, 7.0]


def test_of_many_none_is_lost_and_looks_are_two_seconds_apart() -> None:
    assert looks([0.0, *(0.5 + 0.01 * number for number in range(300))]) == [0.0, 2.0, 4.0]
    assert looks([0.0, 1.9, 3.9]) == [0.0, 2.0, 4.0]


@pytest.mark.processes
def test_what_a_task_says_is_heard_when_its_runner_is_nudged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "HEAR_S", 3600.0)
    report = json.dumps({"done": 1, "total": 10, "per_s": 1})

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell(f"echo '{report}' >$STARBURST_REPORT; sleep 60"), PLACES)
            await until(lambda: any(attempt.progress() for attempt in runner._live.values()))
            began = time.monotonic()
            runner.nudge()
            assert (await reports.first(Progress)).done == 1
            assert time.monotonic() - began < 60
            runner.stop("job", 1, 0.0)
            await reports.ended()

    asyncio.run(main())
