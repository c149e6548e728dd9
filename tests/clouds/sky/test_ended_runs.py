"""Runs that ended long ago are forgotten while Starburst runs on, not only when it starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from starburst.clouds.sky.runs.entry import KEPT_S
from starburst.clouds.sky.runs.run_table import RunTable
from tests.app.virtual import START, run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import Life, run_of

T = TypeVar("T")


def at(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call so many seconds after the first."""

    async def story() -> T:
        return call()

    return run(story(), START + seconds)


def table_of(home: Path) -> RunTable:
    """The runs of a home; their machines are unknown, so that each ends at once."""
    return RunTable(Life(FakeSky(home / "sky"), home).cloud._context, {})


def jobs(table: RunTable) -> set[str]:
    return {job for job, _attempt in table.list_all()}


def test_the_ended_runs_of_a_day_are_remembered_and_no_older_ones(tmp_path: Path) -> None:
    table = at(0.0, lambda: table_of(tmp_path))
    at(0.0, lambda: table.start(run_of("a", 1.0)))
    at(0.0, lambda: table.stop("b", 1, 0.0))
    at(KEPT_S / 2, lambda: table.start(run_of("c", 1.0)))
    assert jobs(table) == {"a", "b", "c"}
    at(KEPT_S + 1.0, lambda: table.start(run_of("d", 1.0)))
    assert jobs(table) == {"c", "d"}


def test_what_ended_before_a_restart_is_forgotten_in_its_time(tmp_path: Path) -> None:
    at(0.0, lambda: table_of(tmp_path).start(run_of("a", 1.0)))
    table = at(1.0, lambda: table_of(tmp_path))
    assert jobs(table) == {"a"}
    at(KEPT_S + 1.0, lambda: table.start(run_of("b", 1.0)))
    assert jobs(table) == {"b"}
    assert len(list((tmp_path / "notes").iterdir())) == 1
