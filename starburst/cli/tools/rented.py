"""The machines that a gang would get from the offers of a config: chosen as when it leaves."""

from __future__ import annotations

from collections.abc import Sequence

from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Task
from starburst.policy.packing.gangs import gang_machine
from translator.field import Field, ManifestReport
from translator.kinds.kind_fidelity import KindReading
from translator.manifests.manifest import submission


def machines_of(reading: KindReading, offers: Sequence[Offer]) -> str:
    """What would be rented for a gang, with price and reason, or why nothing; "" for a job of one task."""
    report = ManifestReport("", 0)
    found = submission(Field(dict(reading.manifest), "", report), lambda: "", "")
    if report.errors:
        return ""  # the translation says so
    job = found.job if reading.kind is None else reading.kind.with_tasks(found.job)
    return "" if len(job.tasks) == 1 else _told(job, offers)


def _told(job: Job, offers: Sequence[Offer]) -> str:
    tasks = [
        Task(job.id, rank, resources, offer_rules=job.offer_rules) for rank, resources in enumerate(job.tasks)
    ]
    machine = gang_machine(tasks, offers, spread=job.spread)
    if isinstance(machine, str):
        return f"nothing: {machine}"
    price = machine.offer.price_per_hour
    return f"{machine.offer.title}{'' if price is None else f' at {price}/h'}: {machine.why}"
