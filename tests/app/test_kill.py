"""kill -9 of the scheduler at fifty random moments: nothing is lost, runs twice or is left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.app.lives import Lives, moments
from tests.volume import part_in_volume

RUNS = 50
AT_ONCE = 5
#: `make test` runs so many batches, `make volume` the others.
USUAL = 1

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("batch", part_in_volume(RUNS // AT_ONCE, USUAL))
def test_a_scheduler_killed_at_any_moment_leaves_no_trace(batch: int, tmp_path: Path) -> None:
    seeds = range(batch, RUNS, RUNS // AT_ONCE)
    runs = [Lives(seed, tmp_path / str(seed), moments(seed, RUNS)) for seed in seeds]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = list(pool.map(Lives.run, runs))
    failed = [f"{'; '.join(what)}\n{run.story()}" for run, what in zip(runs, wrong, strict=True) if what]
    assert not failed, "\n\n".join(failed)
