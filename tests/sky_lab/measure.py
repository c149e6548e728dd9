"""What docs/results/sky.md says, measured: `python -m tests.sky_lab.measure DIRECTORY`, some fifteen minutes.

To be run in the laboratory's environment (`eval "$(skylab env)"`) with a Python that has SkyPilot. If the
laboratory has container engines (SKYLAB_DOCKER=1), jobs with an image are measured as well.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path

from starburst.clouds.sky.access.sdk import SdkApi
from starburst.core.model.events import (
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnreachable,
    RunEnded,
)
from tests.sky_lab import bare
from tests.sky_lab.bare import SCRIPT
from tests.sky_lab.containers import boxed
from tests.sky_lab.lab import Life, job, lab, vm_at

#: Jobs that are started one after the other on a machine that is there; BARE by SkyPilot alone.
WARM, BARE = 6, 3


def say(what: str, *numbers: object) -> None:
    print(f"{what}: {', '.join(map(str, numbers))}   (load {os.getloadavg()[0]:.1f})", flush=True)


async def first_line(life: Life, name: str, since: float) -> float:
    """Seconds until the job wrote its first line, on its machine's clock, which is this one's."""
    return round(float((await life.written(name, "\n", seconds=300)).split()[0]) - since, 1)


async def one_by_one(life: Life, names: list[str]) -> None:
    assert isinstance(life.api, SdkApi)
    before, lines = Counter(life.api.calls), []
    for name in names:
        since, told = time.time(), len(life.events)
        await life.cloud.start(job(name, "i-1", SCRIPT, gpus=1))
        lines.append(await first_line(life, name, since))
        await life.heard(RunEnded, since=told)
    say("warm: seconds to the first line", *lines)
    say("warm: SkyPilot calls", dict(Counter(life.api.calls) - before))


async def images(life: Life) -> None:
    """The first job with an image pulls it, the second one finds it there."""
    for name in ("pulled", "there") if os.environ.get("SKYLAB_DOCKER") else ():
        since, told = time.time(), len(life.events)
        await life.cloud.start(boxed(name, "i-1", "date +%s"))
        say(f"image {name}: seconds to the first line, whole ones", await first_line(life, name, since))
        await life.heard(RunEnded, since=told)


def by_skypilot_alone() -> None:
    """A machine of its own, the same type, and the same command."""
    cluster = "bare"
    say("sky launch: seconds to the first line", bare.launch(cluster, "aws/us-east-1", "p3.8xlarge"))
    say("sky exec: seconds to the first line", *(bare.execute(cluster) for _ in range(BARE)))
    say("sky autostop: seconds billed without work", bare.idle(cluster))


async def measure(home: Path) -> None:
    async with Life(home, str(home)) as life:
        offer = await life.offer("aws/us-east-1/p3.8xlarge/spot")
        since = time.time()
        await life.cloud.launch("i-1", offer)
        await life.heard(InstanceReady)
        say("fresh: seconds to ready", round(time.time() - since, 1))
        await life.cloud.start(job("fresh", "i-1", SCRIPT, gpus=1))
        say("fresh: seconds to the first line", await first_line(life, "fresh", since))
        await one_by_one(life, [f"warm-{number}" for number in range(WARM)])
        await images(life)
        since = time.time()
        for number in range(4):
            await life.cloud.start(job(f"four-{number}", "i-1", SCRIPT, gpus=1))
        say("four at once", *[await first_line(life, f"four-{number}", since) for number in range(4)])
        for names in ((), (life.cloud.machines["i-1"].cluster,)):
            since = time.time()
            await life.api.clusters(refresh=names)
            say(f"listing, refresh={bool(names)}", round(time.time() - since, 1))
    async with Life(home, str(home)) as life:
        await life.heard(InstanceReady)
        vm, since = vm_at(life.host("i-1"))[0], time.time()
        lab("unplug", vm)
        await life.heard(InstanceUnreachable)
        say("cut off: seconds to unreachable", round(time.time() - since, 1))
        lab("plug", vm)
        since, told = time.time(), len(life.events)
        await life.heard(InstanceReachable, since=told)
        say("back: seconds to reachable", round(time.time() - since, 1))
        since = time.time()
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        say("given back: seconds to gone", round(time.time() - since, 1))


if __name__ == "__main__":
    by_skypilot_alone()
    asyncio.run(measure(Path(sys.argv[1])))
