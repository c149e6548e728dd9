"""A nudge has a runner look at once; how often nudges are passed on is tested with the async kit."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from starburst.core.model.events import Progress
from starburst.runs import processes
from tests.runs.harness import PLACES, a_runner, shell, until, watching


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
