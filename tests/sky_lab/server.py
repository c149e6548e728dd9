"""What SkyPilot's own API server allows, measured: `python -m tests.sky_lab.server DIRECTORY`, ten minutes.

In the laboratory's environment (`eval "$(skylab env)"`), with a Python that has SkyPilot: so many listings of
what the server knows at a time, with no machine and with some; and so many launches at a time.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from starburst.core.model.events import InstanceGone, InstanceReady
from tests.sky_lab.lab import Life, family

#: Listings at a time, and how many each of the askers makes; machines that are launched at a time.
ASKERS, EACH = (1, 4, 16), 5
LAUNCHES = (1, 4)
OFFER = "aws/us-east-1/c7i.xlarge"


def server_mib() -> float:
    """Resident memory of the server and all its processes, MiB."""
    root, pages = int(Path(os.environ["SKYLAB_HOME"], "state", "api.pid").read_text()), 0
    for pid in family(root):
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def listings(life: Life, machines: int) -> None:
    """How long a listing takes, and how many there are a second, by how many ask at a time."""
    for askers in ASKERS:
        took: list[float] = []

        async def ask(took: list[float] = took) -> None:
            for _ in range(EACH):
                began = time.monotonic()
                await life.api.clusters()
                took.append(time.monotonic() - began)

        began = time.monotonic()
        await asyncio.gather(*(ask() for _ in range(askers)))
        rate = len(took) / (time.monotonic() - began)
        print(
            f"listing, {machines} machines, {askers} at a time: {statistics.median(took):.2f} s each, "
            f"{rate:.1f} a second, server {server_mib():,.0f} MiB   (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )


async def launches(life: Life, names: list[str]) -> None:
    """From the first request until all are up, and until all are gone."""
    offer = await life.offer(OFFER)

    async def all_at_once(call: Callable[[str], Awaitable[None]], heard: type, names: list[str]) -> float:
        began, told = time.monotonic(), len(life.events)
        await asyncio.gather(*map(call, names))
        for name in names:
            await life.heard(heard, lambda event, name=name: event.instance_id == name, since=told)  # type: ignore[misc]
        return time.monotonic() - began

    up_s = await all_at_once(lambda name: life.cloud.launch(name, offer), InstanceReady, names)
    most_mib = server_mib()
    await listings(life, len(names))
    gone_s = await all_at_once(life.cloud.terminate, InstanceGone, names)
    print(
        f"{len(names)} launched at a time: all up after {up_s:.0f} s, {60 * len(names) / up_s:.1f} a minute, "
        f"server {most_mib:,.0f} MiB; all gone {gone_s:.0f} s after they were given back   "
        f"(load {os.getloadavg()[0]:.1f})",
        flush=True,
    )


async def measure(home: Path) -> None:
    """Print one line for each number of askers and of launches."""
    async with Life(home, str(home)) as life:
        await listings(life, 0)
        for count in LAUNCHES:
            await launches(life, [f"i-{count}{number}" for number in range(count)])


if __name__ == "__main__":
    asyncio.run(measure(Path(sys.argv[1])))
