"""What long logs take, for docs/results/sky.md: `python -m tests.sky_lab.long_logs DIRECTORY`, five minutes.

To be run in the laboratory's environment, as `measure.py` is.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from starburst.core.model.events import InstanceGone, InstanceReady, RunEnded
from starburst.runs.attempt_dir import log_path
from tests.sky_lab.lab import Life, job
from tests.sky_lab.measure import say

#: Bytes that jobs write, in lines of 100 characters that no packing makes much shorter.
SIZES = (100_000_000, 1_000_000_000)
TALKS = "openssl enc -aes-128-ctr -pass pass:x -nosalt </dev/zero 2>/dev/null | base64 -w 99 | head -c {size}"


async def measure(home: Path) -> None:
    """How long logs take to come home, and whether that is billed as run time."""
    async with Life(home, str(home)) as life:
        await life.cloud.launch("i-1", await life.offer("aws/us-east-1/c7i.xlarge"))
        await life.heard(InstanceReady)
        for size in SIZES:
            name, since = f"log-{size}", time.time()
            await life.cloud.start(job(name, "i-1", TALKS.format(size=size)))
            ended = await life.heard(RunEnded, lambda event, name=name: event.job_id == name)
            home_at = time.time()
            assert ended.ended_at is not None
            assert log_path(life.home / "runs", name, 1).stat().st_size == size
            what = f"log of {size} bytes: seconds run, and from the end until it is home"
            say(what, round(ended.ended_at - since, 1), round(home_at - ended.ended_at, 1))
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)


if __name__ == "__main__":
    asyncio.run(measure(Path(sys.argv[1])))
