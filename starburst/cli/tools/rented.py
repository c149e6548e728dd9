"""The machines that a gang would get from the offers of a config: chosen, and launched, as when it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starburst.app.config.sites import CloudConfig, SkyConfig
from starburst.clouds.sky.access.sdk import task_of
from starburst.clouds.sky.machines.launch import launch_spec
from starburst.clouds.sky.offers import OfferName
from starburst.clouds.sky.runs.storage import all_mounts
from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.policy.packing.gangs import GangMachine, gang_machine
from translator.carried import CloudStorage
from translator.field import Field, ManifestReport
from translator.kinds.kind_fidelity import KindReading
from translator.manifests.manifest import submission


@dataclass(frozen=True, slots=True)
class MachinesToRent:
    """What would be rented for a gang."""

    #: Machines, price and reason, or why nothing; "" for a job of one task.
    told: str = ""
    #: The SkyPilot task that rents them, which runs nothing, without the labels and the name of its cluster.
    task: dict[str, Any] | None = None


NOTHING_TOLD = MachinesToRent()


def rented(
    reading: KindReading,
    offers: Sequence[Offer],
    cloud: CloudConfig | SkyConfig,
    stores: Mapping[str, CloudStorage],
) -> MachinesToRent:
    """What would be rented for a job; `stores` are mounted on every machine."""
    machine = _machine(reading, offers)
    if machine is None:
        return NOTHING_TOLD
    if isinstance(machine, str):
        return MachinesToRent(f"nothing: {machine}")
    offer, task = machine.offer, None
    if isinstance(cloud, SkyConfig):
        place, mounts = OfferName.parse(offer.name), all_mounts(stores)
        spec = launch_spec(
            place, offer.nodes, cloud.idle_minutes, cloud.bucket, mounts, tier=cloud.network_tier
        )
        task = task_of(spec)
        del task["resources"]["labels"]
    price = "" if offer.price_per_hour is None else f" at {offer.price_per_hour}/h"
    return MachinesToRent(f"{offer.title}{price}: {machine.why}", task)


def _machine(reading: KindReading, offers: Sequence[Offer]) -> GangMachine | str | None:
    """The choice for a gang, or why there is none; None for a job of one task, or one that is refused."""
    report = ManifestReport("", 0)
    found = submission(Field(dict(reading.manifest), "", report), lambda: "", "")
    if report.errors:
        return None
    job = found.job if reading.kind is None else reading.kind.with_tasks(found.job)
    if len(job.tasks) == 1:
        return None
    tasks = [
        Task(job.id, rank, resources, offer_rules=job.offer_rules) for rank, resources in enumerate(job.tasks)
    ]
    return gang_machine(tasks, offers, spread=job.spread)
