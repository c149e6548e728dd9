"""A short soak: after some hundred jobs with all kinds of trouble nothing is wrong and nothing is left.

The long one is `python -m bench.soak`, its results are in docs/results/soak.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import bench.soak
from bench.soak_report import Sample, Told, page, slope, verdict

JOBS = 300


@pytest.mark.sqlite  # virtual time, in which no server answers
def test_after_a_soak_nothing_is_wrong_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NODES": 8, "SAMPLE": 50, "VISIT": 100}.items():
        monkeypatch.setattr(bench.soak, name, value)
    told = bench.soak.soak(tmp_path / "home", jobs=JOBS, minutes=5, seed=2, validates=True)
    assert told.wrong == []  # bills, ends, twins, overfull nodes, what is still rented or in a collection
    assert len(told.pages) > 10
    last = told.samples[-1]
    assert (last.ended, last.jobs, last.queue, last.machines, last.timers) == (JOBS, 0, 0, 0, 0)
    # What is in memory follows what is alive: a record, a place and a few timers for each.
    assert all(s.others <= 12 * (s.jobs + s.machines + 5) for s in told.samples)
    assert all(s.tasks <= 20 + 2 * (s.jobs + s.machines) for s in told.samples)
    assert {"lost", "retries", "launch-failed", "turn", "awaits", "offloaded"} <= told.decided.keys()


SAMPLE = Sample(0, 1.0, 1.0, 0.1, 0, 100 * 2**20, 1, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0.0, 0)


def run_of(grows: float, wrong: tuple[str, ...] = ()) -> Told:
    """100,000 jobs with so many bytes for each."""
    samples = [
        replace(SAMPLE, ended=n, rss=round(SAMPLE.rss + n * grows), steps=3 * n, cpu_s=n / 100)
        for n in range(0, 100_001, 1000)
    ]
    return Told(samples, {"waits": 1}, wrong, 3, [0.01])


def test_memory_that_grows_by_two_percent_is_not_flat() -> None:
    assert verdict(run_of(30)).good
    assert not verdict(run_of(60)).good
    assert "NOT flat" in page(run_of(60), "a command")
    assert slope([(0, 1), (1, 3), (2, 99), (3, 7), (4, 9)]) == pytest.approx(2)


def test_a_run_with_something_wrong_is_not_good() -> None:
    found = verdict(run_of(0, ("rented: i-000001",)))
    assert not found.good
    assert "wrong: rented: i-000001" in found.lines
