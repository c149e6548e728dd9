"""A scheduler process to be killed: starts one job of a shell script; argv: root, moment, script."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from starburst.runs.attempt_dir import RankDir
from tests.runs.harness import PLACES, a_runner, shell, watching


async def main(root: Path, moment: str, script: str) -> None:
    if moment == "claimed":
        RankDir.spawn = lambda self: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    runner = a_runner(root)
    async with watching(runner) as reports:
        runner.start(shell(script), PLACES)
        await reports.started()
        print("started", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
