"""A minute of faults on mixed jobs, on real kubelets; `python -m tests.kube.long_chaos` is the long form."""

from __future__ import annotations

from pathlib import Path

from tests.kube.chaos import run
from tests.kube.chaos_jobs import is_seen, most_at_once
from tests.kube.lab import Lab


def test_no_job_is_lost_and_none_runs_twice_while_faults_fall(two_kubelets: Lab, tmp_path: Path) -> None:
    chaos, verdict, failed = run(two_kubelets, tmp_path, jobs=30, seconds=60.0, seed=7)
    assert verdict.sound, f"{verdict} after {chaos.story}\n{chaos.placements()}"
    assert failed == {}, f"after {chaos.story}"


def test_lives_that_overlap_are_counted() -> None:
    assert most_at_once([(0.0, 5.0), (5.3, 9.0)]) == 1
    assert most_at_once([(0.0, 5.0), (4.0, 9.0), (8.0, 12.0)]) == 2
    assert most_at_once([]) == 0


def test_an_end_beside_a_deletion_may_reach_nobody() -> None:
    assert is_seen(100.0, [(50.0, 80.0), (120.0, 130.0)])
    assert not is_seen(100.0, [(104.0, 110.0)])
    assert not is_seen(100.0, [(90.0, 97.0)])
