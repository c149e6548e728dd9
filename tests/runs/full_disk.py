"""Runs on a disk that is full when they end; argv: a root on a small file system, a directory elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from starburst.core.model.events import RunEnded
from tests.runs.harness import PLACES, a_runner, rank_dir, shell, until, watching

JOBS = ("a", "b", "c")
SCRIPT = "until [ -e $ELSEWHERE/go ]; do sleep 0.02; done; echo $STARBURST_JOB >> $ELSEWHERE/done; echo lost"


def fill(root: Path) -> Path:
    """Leave no block free."""
    filler = root / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


async def main(root: Path, elsewhere: Path) -> None:
    runner = a_runner(root)
    async with watching(runner) as reports:
        for job_id in JOBS:
            runner.start(shell(SCRIPT, job_id=job_id, env={"ELSEWHERE": str(elsewhere)}), PLACES)
        for job_id in JOBS:
            await reports.started(job_id)
        filler = fill(root)
        (elsewhere / "go").touch()
        done = elsewhere / "done"
        await until(lambda: done.exists() and len(done.read_text().split()) == len(JOBS))
        # Ends are written in room that was taken; that the runs are settled takes blocks, and waits.
        await until(lambda: all(rank_dir(root, job_id).exit() is not None for job_id in JOBS))
        await asyncio.sleep(0.5)
        assert reports.of(RunEnded) == [], "an end that is not stored is not told"
    again = a_runner(root)  # a restart while the disk is full
    watched = asyncio.create_task(again.watch(lambda event: None))
    await asyncio.sleep(0.5)
    assert not watched.done(), "it waits"
    watched.cancel()
    await asyncio.gather(watched, return_exceptions=True)
    filler.unlink()
    async with watching(a_runner(root)) as reports:
        ends = [await reports.ended(job_id) for job_id in JOBS]
    assert [end.exit_code for end in ends] == [0] * len(JOBS), ends
    assert sorted(done.read_text().split()) == list(JOBS), "none ran twice"
    print("well", os.getpid())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
