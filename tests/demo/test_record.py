"""What the jobs' own witness file proves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.reports.gantt import Span
from starburst.demo.record import ran_twice, worked_s


def witness(folder: Path, *lines: tuple[str, str]) -> Path:
    """Lines (what, attempt) of one job."""
    file = folder / "witness.jsonl"
    keys = ("what", "STARBURST_ATTEMPT", "STARBURST_JOB", "STARBURST_RANK")
    file.write_text(
        "".join(json.dumps(dict(zip(keys, (*line, "a", "0"), strict=True))) + "\n" for line in lines)
    )
    return file


def test_a_run_after_a_lost_or_stopped_one_is_fine(tmp_path: Path) -> None:
    assert ran_twice(witness(tmp_path, ("start", "1"), ("start", "2"), ("end", "2"))) == []


@pytest.mark.parametrize(
    "lines",
    [
        [("start", "1"), ("start", "1"), ("end", "1")],
        [("start", "1"), ("end", "1"), ("start", "2"), ("end", "2")],
        [("start", "1"), ("twin", "2"), ("start", "2"), ("end", "2")],
    ],
    ids=["one attempt twice", "two ends", "two at a time"],
)
def test_running_twice_is_seen(tmp_path: Path, lines: list[tuple[str, str]]) -> None:
    assert ran_twice(witness(tmp_path, *lines)) == ["a"]


def test_work_is_summed_over_runs_and_a_gang_counts_once() -> None:
    spans = [
        Span("a", "n0", False, 1, 0, 10),
        Span("a", "n1", False, 1, 0, 10),
        Span("a", "i-1", True, 1, 20, 25, cut=True),
    ]
    assert worked_s(spans) == {"a": 15}
