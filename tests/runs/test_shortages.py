"""A shortage while runs are listed or ended is waited for, whatever starts and ends meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded
from starburst.runs import persistence
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.processes import RunHost
from starburst.runs.supervisor.files import write_json
from starburst.runs.supervisor.lease import new_lease
from tests.runs.harness import PLACES, a_runner, shell, watching

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _soon_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "FIRST_PAUSE_S", 0.02)


class Failing:
    """A method of attempts that lacks something until `over`; `then` happens before it is tried again."""

    def __init__(
        self, name: str, number: int, then: Callable[[], object], over: Callable[[], object]
    ) -> None:
        self._works, self._number, self._then, self._over = getattr(AttemptDir, name), number, then, over

    def __get__(self, attempt: AttemptDir, _kind: type[AttemptDir]) -> Callable[..., object]:
        return partial(self._call, attempt)

    def _call(self, attempt: AttemptDir, *args: object) -> object:
        if not self._over():
            asyncio.get_running_loop().call_soon(self._then)
            raise OSError(self._number, os.strerror(self._number))
        return self._works(attempt, *args)


def test_a_run_may_start_while_the_listing_of_others_waits_for_open_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        before, runner = a_runner(root), a_runner(root)
        async with watching(before) as reports:
            before.start(shell("true"), PLACES)
            await reports.ended()
        starts = partial(runner.start, shell("exit 7", job_id="late"), PLACES)
        is_there = (root / "runs" / "late").exists
        monkeypatch.setattr(AttemptDir, "started", Failing("started", errno.EMFILE, starts, is_there))
        async with watching(runner) as reports:
            assert (await reports.ended("late")).exit_code == 7

    asyncio.run(main())


def test_a_run_may_end_while_the_stop_of_another_on_its_machine_waits_for_the_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, runner = root / "lease.json", a_runner(root)
    write_json(lease, new_lease(600.0))
    script = "until [ -e $STARBURST_CHECKPOINT_DIR/go ]; do sleep 0.02; done"

    async def main() -> None:
        async with watching(runner) as reports:
            for job_id in ("first", "second"):
                runner.start(shell(script, job_id=job_id), {"n1": RunHost(4, lease)})
                await reports.started(job_id)
            ends, has_ended = (root / "checkpoints" / "second" / "go").touch, partial(reports.of, RunEnded)
            monkeypatch.setattr(AttemptDir, "ask_stop", Failing("ask_stop", errno.ENOSPC, ends, has_ended))
            lost = await runner.evacuate(lease, "its machine was given back", 5.0)
            assert [(end.job_id, end.end) for end in lost] == [("first", RunEnd.LOST)]
            assert (await reports.ended("second")).exit_code == 0

    asyncio.run(main())
