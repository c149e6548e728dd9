"""What a task says of its progress is heard, over restarts, and nothing that it says does harm."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from starburst.core.model.events import Progress
from starburst.runs import processes
from starburst.runs.supervisor.progress_report import ProgressReport, parse_report, read_report
from tests.runs.harness import PLACES, a_run, a_runner, shell, watching

GOOD = {"done": 10, "total": 110, "per_s": 2.0, "at": 0.0}


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "HEAR_S", 0.02)


def test_a_report_is_what_a_watched_loop_writes(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert read_report(path) is None
    path.write_text(json.dumps(GOOD))
    report = read_report(path)
    assert report == ProgressReport(10, 110, 2.0)
    assert report.left_s == 50.0


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "[]",
        "7",
        "[" * 4000,
        json.dumps({**GOOD, "total": "many"}),
        json.dumps({**GOOD, "done": 111}),
        json.dumps({**GOOD, "done": -1}),
        json.dumps({**GOOD, "per_s": 0}),
        json.dumps({**GOOD, "per_s": True}),
        json.dumps({**GOOD, "total": "110"}),
        '{"done": 1, "total": Infinity, "per_s": 1}',
        f'{{"done": 1, "total": {"9" * 400}, "per_s": 1}}',
    ],
)
def test_anything_else_is_no_report(bad: str) -> None:
    assert parse_report(bad.encode()) is None


def test_who_does_not_know_how_far_it_is_to_the_end_says_how_fast_it_goes() -> None:
    report = parse_report(json.dumps({**GOOD, "total": None}).encode())
    assert report == ProgressReport(10, None, 2.0)
    assert report.to_go > ProgressReport(0, 10, 0.001).to_go, "of a gang no end is known then"
    assert report.to_go < ProgressReport(0, None, 1.0).to_go


@given(some.binary(max_size=64))
def test_no_bytes_do_harm(text: bytes) -> None:
    assert parse_report(text) is None or json.loads(text)


def test_a_pipe_a_link_or_a_directory_in_its_place_is_no_report(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "there").write_text(json.dumps(GOOD))
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert [read_report(tmp_path / name) for name in ("pipe", "link", ".")] == [None] * 3


@pytest.mark.processes
def test_a_watched_loop_is_heard_and_again_after_a_restart_of_the_scheduler(root: Path) -> None:
    program = (
        "import itertools, time; from starburst import iterator; iterator.WINDOW_S = 0.05\n"
        "for _ in iterator.watch(itertools.repeat(0, 10**6), total=10**6): time.sleep(0.001)"
    )

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(a_run(sys.executable, "-c", program), PLACES)
            first = await reports.first(Progress)
        assert (first.job_id, first.attempt, first.total) == ("job", 1, 10**6)
        assert 10 < first.per_s <= 1000
        again = a_runner(root)
        async with watching(again) as reports:
            assert (await reports.first(Progress)).done >= first.done
            again.stop("job", 1, 0.0)
            await reports.ended()

    asyncio.run(main())


@pytest.mark.processes
def test_of_a_gang_the_task_with_most_to_go_speaks(root: Path) -> None:
    say = """echo '{"done": '$STARBURST_RANK', "total": 10, "per_s": 1}' > $STARBURST_REPORT; sleep 60"""

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell(say, gpus=(1, 1)), PLACES)
            assert (await reports.first(Progress, lambda told: told.done == 0)).total == 10
            runner.stop("job", 1, 0.0)
            await reports.ended()

    asyncio.run(main())
