"""A demo that takes too long says so, and leaves no job behind."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from starburst.demo import run
from starburst.demo.run import DemoLateError, run_demo
from starburst.domain.job import is_over
from starburst.store.listings import queries
from starburst.store.store import Store


@pytest.mark.parametrize("limit_s", [0.1, 0.5])  # before any job is taken up, and after
def test_a_demo_that_is_not_done_in_time_ends_its_jobs_and_says_so(
    limit_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LIMIT_S", limit_s)
    with pytest.raises(DemoLateError, match=r"^not done after 0\.[15] s, .*; its jobs were ended") as late:
        run_demo(tmp_path / "out", count=40, seed=1, console=Console(file=io.StringIO()))
    home = re.search(r"in (\S+)$", str(late.value))
    assert home is not None
    with Store.open(Path(home[1]) / "starburst.db") as store:
        rows = queries.jobs(store)
    assert rows
    assert all(is_over(row.phase) for row in rows)
