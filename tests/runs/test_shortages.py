"""A shortage while runs are listed or ended is waited for, whatever starts and ends meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from starburst.runs import persistence
from starburst.runs.attempt_dir import AttemptDir
from tests.runs.harness import PLACES, a_runner, shell, watching

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _soon_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "FIRST_PAUSE_S", 0.02)


class Failing:
    """A method of attempts that lacks something once; `then` happens in the pause before the next try."""

    def __init__(self, name: str, number: int, then: Callable[[], object]) -> None:
        self._works, self._number, self._then = getattr(AttemptDir, name), number, then
        self._has_failed = False

    def __get__(self, attempt: AttemptDir, _kind: type[AttemptDir]) -> Callable[..., object]:
        return partial(self._call, attempt)

    def _call(self, attempt: AttemptDir, *args: object) -> object:
        if not self._has_failed:
            self._has_failed = True
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
        monkeypatch.setattr(AttemptDir, "started", Failing("started", errno.EMFILE, starts))
        async with watching(runner) as reports:
            assert (await reports.ended("late")).exit_code == 7

    asyncio.run(main())
