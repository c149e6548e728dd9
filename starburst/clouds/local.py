"""The embedded cloud: machines are records with a price and a lease, runs are processes of this machine.

The records are the cloud's own truth. They are no part of the scheduler's store and outlive the scheduler.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from starburst.aio import TaskSet, Wake
from starburst.clouds.catalog import LocalOffer
from starburst.clouds.machine_dir import ClosedBill, LaunchFailure, LaunchRecord, MachineDir, machines_under
from starburst.core.model.events import (
    Event,
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    OffersChanged,
    SiteSynced,
)
from starburst.domain.clock import Pace
from starburst.domain.cloud import Instance, InstancePhase, Offer
from starburst.runs.persistence import until_done
from starburst.runs.ports import Report, Run
from starburst.runs.processes import ProcessRunner, RunHost, unwatched
from starburst.runs.supervisor.lease import LEASE_GRACE_S
from translator.tasks.runtime_values import taken

NOT_HERE = (
    "is of a Kubernetes cluster, and the embedded cloud gives its jobs nothing of one; set cloud.kind: "
    "skypilot, or submit the job with starburst.io/cloud: never"
)

#: Wall seconds between looks at living machines, which other processes and the clock change.
LOOK_S = 0.5
SHORTEST_PAUSE_S = 0.01
#: Wall seconds for which an unreadable lease counts as passed.
MOST_PAST_S = 1e9
#: Wall seconds: a clock that differs by more was set.
SET_S = 2.0


class LocalCloud:
    """A `Cloud` of pretended machines at list prices, whose runs are real processes.

    `now` is the scheduler's time, in which machines boot and are billed; `pace` maps it to the wall clock, on
    which leases of `lease_s` run. Records are below `root`, runs are those of `runner`. Machines of other
    owners than `owner` are neither listed nor touched. Machines of `controller` are reported; machines that
    another controller of the same owner left are only listed, as `<controller>/<intent>`, and run out.
    """

    def __init__(
        self,
        offers: tuple[LocalOffer, ...],
        root: Path,
        runner: ProcessRunner,
        *,
        pace: Pace,
        now: Callable[[], float],
        lease_s: float,
        owner: str,
        controller: str,
    ) -> None:
        self._offers = {entry.offer.name: entry for entry in offers}
        self._root = root / "instances"
        self._pace = pace
        self._now = now
        self._lease_s = lease_s
        self._owner = owner
        self._controller = controller
        self._runner = runner
        self._report: Report = unwatched
        self._tasks = TaskSet()
        self._wake = Wake()

    @cached_property
    def _alive(self) -> dict[str, tuple[MachineDir, LaunchRecord]]:
        """Living machines by id, those of other controllers included."""
        found = ((machine, machine.launch()) for machine in self._owned() if machine.ending() is None)
        return {self._id(machine): (machine, launch) for machine, launch in found if launch is not None}

    async def watch(self, report: Report) -> None:
        """See `RunSite`."""
        self._report = report

        def with_machines(event: Event) -> None:
            if isinstance(event, SiteSynced):
                ours = (machine for machine in self._owned() if self._is_ours(machine))
                event = replace(event, instances=frozenset(machine.intent for machine in ours))
            report(event)

        try:
            report(OffersChanged(tuple(entry.offer for entry in self._offers.values())))
            for machine in self._owned():
                self._tell(machine)
            self._tasks.ensure("runs", partial(self._runner.watch, with_machines))
            self._tasks.ensure("machines", self._look_after_machines)
            await self._tasks.until_failure()
        finally:
            self._report = unwatched
            await self._tasks.cancel()

    # --- runs --------------------------------------------------------------------------------------------

    async def start(self, run: Run) -> None:
        """See `RunSite`."""
        places = {}
        for where in {slot.where for slot in run.slots} & self._alive.keys():
            machine, launch = self._alive[where]
            if self._is_ready(machine):
                places[where] = RunHost(launch.gpus, machine.lease_path)
        self._runner.start(run, places, _refusal(run))

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """See `RunSite`."""
        self._runner.stop(job_id, attempt, grace_s)

    def newest(self, job_id: str) -> int:
        """See `RunSite`."""
        return self._runner.newest(job_id)

    def nudge(self) -> None:
        """See `RunSite`. Machines are polled anyway."""
        self._runner.nudge()

    # --- machines ----------------------------------------------------------------------------------------

    async def launch(self, instance_id: str, offer: Offer) -> None:
        """See `Cloud`. The intent is the client token; a launch that failed fails again in the same way."""
        machine = self._machine(instance_id)
        if not machine.path.exists():
            self._rent(machine, offer)
        self._tell(machine)
        self._wake.ring()

    async def prepare(self, run: Run) -> None:
        """See `Cloud`. Jobs run on the host, without their image."""

    async def terminate(self, instance_id: str) -> None:
        """See `Cloud`."""
        machine = self._machine(instance_id)
        if instance_id in self._alive:
            machine.ask_termination()
            self._wake.ring()
            return
        never = ClosedBill(self._now(), self._now())
        if not machine.claim(self._tags(machine), never):
            machine.end(never)
        self._tell(machine)

    async def renew(self, instance_ids: list[str]) -> None:
        """See `Cloud`. A lease that has passed stays so."""
        for machine, _launch in (self._alive[id_] for id_ in instance_ids if id_ in self._alive):
            if machine.lease_left_s() > 0:
                machine.renew(self._lease_s)

    async def owned(self) -> list[Instance]:
        """See `Cloud`. Machines that ended are listed, too, with their bill."""
        listed = (self._instance(machine) for machine in self._owned())
        return [instance for instance in listed if instance is not None]

    def preempt(self, instance_id: str) -> None:
        """Take a machine away, as a spot market does. Any process may call this; the watching one acts on it.

        Raises:
            ValueError: no such machine is alive.
        """
        machine = self._machine(instance_id)
        if machine.launch() is None or machine.ending() is not None:
            raise ValueError(f"no machine {instance_id!r} is alive; see `starburst instances`")
        machine.preempt(self._now())
        self._wake.ring()

    def _machine(self, instance_id: str) -> MachineDir:
        controller, _, intent = instance_id.rpartition("/")
        return MachineDir.of(self._root, controller or self._controller, intent)

    def _id(self, machine: MachineDir) -> str:
        return machine.id(self._controller)

    def _is_ours(self, machine: MachineDir) -> bool:
        return machine.controller == self._controller

    def _owned(self) -> list[MachineDir]:
        return [
            machine for machine in machines_under(self._root) if machine.tags().get("owner") == self._owner
        ]

    def _instance(self, machine: MachineDir) -> Instance | None:
        """The machine as a listing shows it; None if none was ever rented."""
        launch, phase = machine.launch(), machine.phase(self._now())
        if launch is None or phase is None:
            return None
        id_, at = self._id(machine), launch.launched_at
        ending = machine.ending()
        if ending is not None:
            times = (at, ending.ended_at, ending.preempted)
            return Instance(
                id_, launch.offer, phase, *times, controller=machine.controller, nodes=launch.nodes
            )
        expires_at, whose = self._lease_end(machine), machine.controller
        return Instance(
            id_, launch.offer, phase, at, controller=whose, expires_at=expires_at, nodes=launch.nodes
        )

    def _tags(self, machine: MachineDir) -> dict[str, str]:
        return {"owner": self._owner, "controller": machine.controller, "intent": machine.intent}

    def _rent(self, machine: MachineDir, offer: Offer) -> None:
        """Create the machine, or record why it cannot be rented."""
        entry = self._offers.get(offer.name)
        if entry is None:
            failure = LaunchFailure(f"the embedded cloud does not sell {offer.name!r}", sold_out=False)
            machine.claim(self._tags(machine), failure)
            return
        in_use = sum(one.nodes for _machine, one in self._alive.values() if one.offer == offer.name)
        if entry.capacity is not None and in_use + offer.nodes > entry.capacity:
            used = "all" if in_use >= entry.capacity else f"{in_use} of"
            message = f"{offer.name} is sold out: {used} {entry.capacity} are in use"
            if offer.nodes > 1:
                message += f", and {offer.nodes} were asked for"
            failure = LaunchFailure(message, sold_out=True)
            machine.claim(self._tags(machine), failure)
            return
        launch = LaunchRecord(
            offer.name, entry.offer.resources.gpus, self._now(), entry.boot_s, entry.setup_s, offer.nodes
        )
        machine.claim(self._tags(machine), launch, self._lease_s)
        self._alive[self._id(machine)] = (machine, launch)

    # --- polling ------------------------------------------------------------------------------

    def _is_ready(self, machine: MachineDir) -> bool:
        return machine.phase(self._now()) is InstancePhase.READY

    def _tell(self, machine: MachineDir) -> None:
        """Report the state of a machine of this controller, once it is ready, failed or gone."""
        if not self._is_ours(machine):
            return
        id_ = machine.intent
        launch, failure, ending = machine.launch(), machine.failure(), machine.ending()
        if ending is not None:
            self._report(InstanceGone(id_, ending.launched_at, ending.ended_at, ending.preempted))
        elif failure is not None:
            self._report(InstanceFailed(id_, failure.message, failure.sold_out))
        elif launch is not None and self._is_ready(machine):
            self._report(InstanceReady(id_, launch.launched_at))

    async def _look_after_machines(self) -> None:
        """Report machines that come up, and end those that were given back, preempted or left alone."""
        up: set[str] = set()
        while True:
            pause_s = await until_done(partial(self._look, up))
            await self._wake.wait(max(pause_s, SHORTEST_PAUSE_S))

    def _look(self, up: set[str]) -> float:
        """Poll once; `up` are machines reported as ready. Returns wall seconds until the next poll."""
        wall, pause_s = time.time(), LOOK_S
        for id_, (machine, launch) in self._alive.items():
            if machine.is_ending():
                self._tasks.ensure(("end", id_), partial(self._end, machine, launch))
            elif id_ not in up and self._is_ready(machine):
                up.add(id_)
                self._tell(machine)
            elif id_ not in up:
                pause_s = min(pause_s, self._pace.wall_time(launch.ready_at) - wall)
        return pause_s

    def _lease_end(self, machine: MachineDir) -> float:
        """When its lease ends, in scheduler time: as recorded, unless the wall clock was set since."""
        speed = self._pace.speed
        end = self._now() + max(machine.lease_left_s(), -MOST_PAST_S) * speed
        noted = self._pace.scheduler_time(machine.lease_until())
        return noted if abs(noted - end) < SET_S * speed else end

    async def _end(self, machine: MachineDir, launch: LaunchRecord) -> None:
        """End the runs on a machine, close its bill, and report both: the machine first, then its lost runs.

        After a lease has passed, runs have their grace, as their supervisors give it; it is not billed.
        """
        preempted_at = await until_done(machine.preempted_at)
        why, grace_s = "given back" if preempted_at is None else "preempted", 0.0
        if await until_done(machine.lease_left_s) <= 0:
            why, grace_s = "left alone until its lease passed", LEASE_GRACE_S
        lost = await self._runner.evacuate(machine.lease_path, f"its machine was {why}", grace_s)
        lease_end = await until_done(partial(self._lease_end, machine))
        ended_at = min(self._now(), lease_end, math.inf if preempted_at is None else preempted_at)
        ending = ClosedBill(launch.launched_at, max(ended_at, launch.launched_at), preempted_at is not None)
        await until_done(partial(machine.end, ending))
        del self._alive[self._id(machine)]
        await until_done(partial(self._tell, machine))
        for end in lost:
            self._report(end)


def _refusal(run: Run) -> str:
    """Why a run may not start, "" if it may: it was accepted while the config named another cloud."""
    manifest = run.workload.manifest
    paths = () if manifest is None else taken(json.loads(manifest))
    return f"{', '.join(paths)}: {NOT_HERE}" if paths else ""
