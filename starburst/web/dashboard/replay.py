"""Replays recorded jobs on the scheduler's own core, under other settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sim.world import SimJob, World
from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.domain.cloud import Offer
from starburst.domain.job import Job
from starburst.domain.money import Money
from starburst.domain.node import Node


@dataclass(frozen=True, slots=True)
class ReplayedPast:
    """What became of the jobs: the machines that were rented for them, and the jobs' records, by id."""

    machines: Mapping[str, InstanceRecord]
    jobs: Mapping[str, JobRecord]

    def until(self, now: float) -> Iterator[InstanceRecord]:
        """The machines with their bills cut at `now`."""
        for machine in self.machines.values():
            if machine.launched_at is not None and machine.launched_at < now:
                yield replace(machine, ended_at=min(now, machine.ended_at or now))

    def bill(self, now: float) -> Money:
        """The cloud bill up to `now`."""
        return sum((machine.cost(now) for machine in self.until(now)), Money())


def replay(
    settings: Settings, nodes: Sequence[Node], offers: Sequence[Offer], jobs: Iterable[SimJob]
) -> ReplayedPast:
    """Run the jobs to their ends under these settings."""
    machines: dict[str, InstanceRecord] = {}
    records: dict[str, JobRecord] = {}

    def on_step(_: float, changes: Changes) -> None:
        machines.update(changes.instances)
        records.update(changes.jobs)

    boots = {offer.name: offer.ready_s for offer in offers}
    world = World(Scheduler(settings), nodes, offers, boot_s=boots, on_step=on_step)
    world.submit(jobs)
    world.run()
    return ReplayedPast(machines, records)


def as_queued(record: JobRecord, lasts_s: float) -> SimJob:
    """The job without what kept it out of the queue, from the time at which it was queued if that did."""
    job = record.job
    kept_out = job.hold or job.array or job.comes_after
    return SimJob(unbound(job), record.queued_at if kept_out else record.submitted_at, max(1.0, lasts_s))


def unbound(job: Job) -> Job:
    """The job without a hold, others that come first, a turn in an array, and a wait of its own."""
    alone = replace(job, after_ok=(), after_any=(), after_not_ok=(), after_start=())
    return replace(alone, hold=False, array=None, max_wait_s=None)


def no_wait(settings: Settings) -> Settings:
    """The settings with every job that does not fit leaving at once."""
    return replace(
        one_machine_a_job(settings),
        waiting="no-wait",
        factor=None,
        budget_mode="open",
        hopeless="wait",
        order="fifo",
        out_of_order=True,
        backfill=False,
        queue_limit=None,
        returns="never",
    )


def one_machine_a_job(settings: Settings) -> Settings:
    """The settings without packing, whose plans would take too long."""
    return replace(settings, packer="none", pack_window_s=0.0, pack_period_s=0.0)
