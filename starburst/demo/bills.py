"""Bills of other policies for the same jobs: the same core, replayed in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.world import SimJob, World
from starburst.clouds.catalog import LocalOffer
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.domain.money import Money
from starburst.domain.node import Node


@dataclass(frozen=True, slots=True)
class Bill:
    """Result of a policy for a list of jobs; times in scheduler seconds."""

    policy: str
    cloud_cost: Money
    mean_jct_s: float
    offloaded: int


def replay(
    policy: str,
    settings: Settings,
    jobs: Sequence[SimJob],
    nodes: Sequence[Node],
    offers: Sequence[LocalOffer],
) -> Bill:
    """Run the jobs to their end under other settings."""
    arrivals = {item.job.id: item.arrival_s for item in jobs}
    ended: dict[str, float] = {}
    offloaded: set[str] = set()

    def on_step(now: float, changes: Changes) -> None:
        ended.update({r.id: now for r in changes.jobs.values() if r.phase.is_end and r.id not in ended})
        offloaded.update(d.subject for d in changes.decisions if d.kind == "offloaded")

    scheduler = Scheduler(settings)
    boots = {entry.offer.name: entry.boot_s + entry.setup_s for entry in offers}
    world = World(scheduler, nodes, [entry.offer for entry in offers], boot_s=boots, on_step=on_step)
    world.submit(jobs)
    world.run()
    jct_s = [ended[job_id] - arrival for job_id, arrival in arrivals.items()]
    return Bill(policy, scheduler.state.fleet.settled, sum(jct_s) / len(jct_s), len(offloaded))


def rivals(settings: Settings) -> list[tuple[str, Settings]]:
    """No-Wait, and Constant-Wait with the same budget P; both in strict order, without returns."""
    plain = replace(settings, returns="never", out_of_order=False, factor=None)
    return [
        ("No-Wait", replace(plain, waiting="no-wait")),
        ("Constant-Wait", replace(plain, waiting="constant")),
    ]
