"""When a run ended is what its supervisors wrote, however late it is noticed. No process runs here."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starburst.app.daemon.wall_clock import scheduler_clock
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.clock import Pace
from starburst.domain.job import Site
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.processes import ProcessRunner
from starburst.runs.supervisor import supervisor as supervisors
from starburst.runs.supervisor.exits import ITSELF, STOP
from starburst.runs.supervisor.supervisor import Supervisor
from tests.runs.harness import watching

#: Epoch seconds, long ago.
AT = 1_700_000_000.0
SPEC = {"where": "n1", "gpus": [], "lease": None, "grace_s": 5.0, "env": {}}
LEASED = {**SPEC, "lease": "/nowhere/lease.json"}


def over(root: Path, *ends: float | None, spec: dict[str, Any] = SPEC, by: str = ITSELF) -> AttemptDir:
    """A run whose tasks ended at these times while nobody looked; None: its supervisor was killed."""
    attempt = AttemptDir.of(root / "runs", "job", 1)
    assert attempt.claim([spec] * len(ends))
    for rank, at in zip(attempt.ranks(), ends, strict=True):
        (rank.path / "started.json").write_text('{"shim": 4194305, "job": 4194306}')
        said = {"exit_code": 0, "signal": None, "ended_by": by, "message": "", "started_at": AT}
        if at is not None:
            (rank.path / "exit.json").write_text(json.dumps({**said, "ended_at": at}))
    return attempt


def told(root: Path, scheduler_time: Callable[[float], float] = float) -> RunEnded:
    """What a scheduler is told that comes up now."""

    async def main() -> RunEnded:
        runner = ProcessRunner(
            root / "runs", root / "checkpoints", Site.CLUSTER, scheduler_time=scheduler_time
        )
        async with watching(runner) as reports:
            return await reports.ended()

    return asyncio.run(main())


def test_a_run_that_ended_while_no_scheduler_was_there_ended_then_and_does_so_for_ever(root: Path) -> None:
    attempt = over(root, AT + 6)
    assert told(root) == RunEnded("job", 1, RunEnd.EXITED, 0, ended_at=AT + 6)
    (attempt.ranks()[0].path / "exit.json").unlink()
    assert told(root).ended_at == AT + 6


def test_a_run_of_several_tasks_ended_with_the_last_of_them(root: Path) -> None:
    over(root, AT + 6, AT + 9, AT + 7)
    assert told(root).ended_at == AT + 9


def test_when_a_run_ended_is_unknown_if_one_of_its_supervisors_was_killed(root: Path) -> None:
    over(root, AT + 6, None)
    assert told(root) == RunEnded("job", 1, RunEnd.LOST, message="its supervisor was killed")


def test_a_schedulers_clock_that_runs_faster_is_told_its_own_time(root: Path) -> None:
    over(root, AT + 6)
    pace = Pace(origin=AT, speed=60.0, start=5_000.0)
    for _restart in range(2):
        assert told(root, pace.scheduler_time).ended_at == 5_360.0


def test_so_are_the_runs_that_are_lost_with_their_machine(root: Path) -> None:
    over(root, AT + 6, spec=LEASED, by=STOP)
    pace = Pace(origin=AT, speed=60.0, start=5_000.0)

    async def main() -> list[RunEnded]:
        runner = ProcessRunner(
            root / "runs", root / "checkpoints", Site.CLOUD, scheduler_time=pace.scheduler_time
        )
        return await runner.evacuate(Path("/nowhere/lease.json"), "its machine was given back")

    (end,) = asyncio.run(main())
    assert (end.end, end.ended_at) == (RunEnd.LOST, 5_360.0)


def test_an_end_of_an_earlier_version_is_read_and_its_time_is_unknown(root: Path) -> None:
    attempt = over(root, AT + 6)
    (attempt.path / "end.json").write_text('{"end": "exited", "exit_code": 3, "message": ""}')
    assert told(root) == RunEnded("job", 1, RunEnd.EXITED, 3)


@pytest.mark.parametrize("at", ["x", True, -1, 10**400, float("nan"), [AT]])
def test_an_end_with_an_unsound_time_is_none_and_the_exits_tell(root: Path, at: object) -> None:
    attempt = over(root, AT + 6)
    said = {"end": "exited", "exit_code": 3, "message": "", "ended_at": at}
    (attempt.path / "end.json").write_text(json.dumps(said))
    assert told(root) == RunEnded("job", 1, RunEnd.EXITED, 0, ended_at=AT + 6)


def test_a_clock_that_is_set_while_a_run_goes_on_moves_both_its_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end is that of the clock as it is then, so that it is found at its place by whoever asks now."""

    class Written:
        def write(self, data: dict[str, Any]) -> None:
            self.data = data

    supervisor, written = object.__new__(Supervisor), Written()
    supervisor.started, supervisor.ended, supervisor.ended_by = 100.0, 106.0, ITSELF
    supervisor.exit = written  # type: ignore[assignment]
    monkeypatch.setattr(supervisors, "boottime", lambda: 108.0)
    monkeypatch.setattr(time, "time", lambda: AT)
    supervisor._write_exit(0, "")
    assert (written.data["started_at"], written.data["ended_at"]) == (AT - 8, AT - 2)


def test_the_schedulers_clock_goes_by_how_long_ago_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler_time = scheduler_clock(lambda: 1_000_000.0, 60.0)
    for set_to in (AT, AT + 7_200):
        monkeypatch.setattr(time, "time", lambda at=set_to: at)
        assert scheduler_time(set_to - 10) == 999_400.0
