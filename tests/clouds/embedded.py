"""An embedded cloud whose scheduler's minutes pass in 60 ms, and jobs on its machines."""

from __future__ import annotations

import time
from pathlib import Path

from starburst.clouds.catalog import LocalOffer
from starburst.clouds.local import LocalCloud
from starburst.core.model.events import (
    InstanceReady,
)
from starburst.domain.clock import Pace
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Site
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.runs.processes import ProcessRunner
from tests.runs.harness import Reports, shell, until

BIG = Offer("big", Resources.of(4, 32, 244, "V100"), Money.of("12.24"))
RARE = Offer("rare", Resources.of(1, 8, 61, "V100"), Money.of("3.06"))
SLOW = Offer("slow", Resources.of(1, 8, 61), Money.of("1"))
OFFERS = (LocalOffer(BIG, 20, 40), LocalOffer(RARE, capacity=1), LocalOffer(SLOW, 1e9))

#: A minute of the scheduler passes in 60 ms.
PACE = Pace(time.time(), 1000.0)


def now() -> float:
    return PACE.scheduler_time(time.time())


def a_cloud(root: Path, lease_s: float = 600.0, owner: str = "us", controller: str = "c1") -> LocalCloud:
    return LocalCloud(
        OFFERS,
        root / "cloud",
        ProcessRunner(root / "cloud" / "runs", root / "checkpoints", Site.CLOUD),
        pace=PACE,
        now=now,
        lease_s=lease_s,
        owner=owner,
        controller=controller,
    )


async def listed(cloud: LocalCloud) -> dict[str, InstancePhase]:
    """Machines that it lists, and how they stand."""
    return {machine.id: machine.phase for machine in await cloud.owned()}


def job_log(root: Path, job_id: str = "job") -> str:
    path = root / "cloud" / "runs" / job_id / "1" / "0" / "log"
    return path.read_text() if path.exists() else ""


async def job_on(cloud: LocalCloud, reports: Reports, root: Path, offer: Offer = BIG) -> int:
    """Launch i1 and have a job run on it; its process id."""
    await cloud.launch("i1", offer)
    await reports.first(InstanceReady)
    await cloud.start(shell("echo $$; sleep 600", where="i1", gpus=(1,)))
    await until(lambda: job_log(root).endswith("\n"))
    await reports.started()
    return int(job_log(root))
