"""The cloud of SkyPilot behind the port `Cloud`: a `RentedMachine` per intent, and the runs on them.

Requests are journaled and return at once; each machine's own loop (`lifecycle.py`) carries them out. SkyPilot
is asked for one listing a minute (`machines/liveness_watch.py`); how tasks stand comes from the machines
themselves (`attendance.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Iterable
from functools import partial

import structlog

from starburst.aio import Debounce
from starburst.clouds.sky.access.ports import ClusterState, ClusterStatus
from starburst.clouds.sky.attendance import reachability
from starburst.clouds.sky.boot_contact import BootContact
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.lifecycle import live
from starburst.clouds.sky.machines.ended import load_recent_machines
from starburst.clouds.sky.machines.entry import MachineEntry
from starburst.clouds.sky.machines.liveness_watch import LivenessWatch
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.naming import asked_at
from starburst.clouds.sky.machines.observer import CloudObserver
from starburst.clouds.sky.machines.twins import Twins
from starburst.clouds.sky.offers import CatalogError
from starburst.clouds.sky.prefetch import ImagePrefetch
from starburst.clouds.sky.runs.exchange import Exchanges
from starburst.clouds.sky.runs.run_table import Activity, RunTable
from starburst.core.model.events import OffersChanged, SiteSynced
from starburst.domain.cloud import Instance, InstancePhase, Offer
from starburst.domain.job import Site
from starburst.runs.ports import Report, Run
from starburst.runs.processes import unwatched

log = structlog.get_logger()

#: Wall seconds between reads of the offers; until the next one while they could never be read; and between
#: exchanges that nudges bring about.
OFFERS_S, RETRY_S, NUDGE_S = 3600.0, 60.0, 2.0

_PHASES = {
    ClusterState.LAUNCHING: InstancePhase.LAUNCHING,
    ClusterState.UP: InstancePhase.READY,
    ClusterState.UNHEALTHY: InstancePhase.READY,
    ClusterState.STOPPED: InstancePhase.TERMINATING,
    ClusterState.ENDING: InstancePhase.TERMINATING,
}


class SkyCloud:
    """A `Cloud` of machines that SkyPilot rents. `offers` reads what can be rented.

    `in_books` are the machines that have not ended by the store.
    """

    def __init__(
        self,
        context: SkyContext,
        offers: Callable[[], Awaitable[list[Offer]]],
        in_books: Collection[str] = (),
    ) -> None:
        self._context = context
        self._offers = offers
        entries = load_recent_machines(context.journal, context.clock.now(), in_books)
        self.machines = {entry.id: RentedMachine(context, entry) for entry in entries}
        self._runs = RunTable(context, self.machines)
        self._exchanges = Exchanges(context, self._runs)
        self._observer = CloudObserver(context)
        self._liveness = LivenessWatch(context, self.machines, self._observer)
        self._prefetch = ImagePrefetch(context, self.machines)
        self._boot_contact = BootContact(context, self._observer, self._prefetch)
        #: None before `watch`: a command that a person gives does not wait until a lease has passed.
        self._twins: Twins | None = None
        self._nudges = Debounce(self._exchange_where_tasks_are, NUDGE_S)

    # --- runs --------------------------------------------------------------------------------------------

    async def start(self, run: Run) -> None:
        """See `RunSite`."""
        self._wake(self._runs.start(run))

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """See `RunSite`."""
        self._wake(self._runs.stop(job_id, attempt, grace_s))

    def newest(self, job_id: str) -> int:
        """See `RunSite`. The journal has all of them."""
        return self._runs.newest(job_id)

    def nudge(self) -> None:
        """See `RunSite`. Has machines with tasks exchange now; SkyPilot is not asked."""
        self._nudges.hint()

    def _exchange_where_tasks_are(self) -> None:
        self._wake(id_ for id_ in self.machines if self._runs.activity(id_) is not Activity.NONE)

    def _wake(self, instance_ids: Iterable[str]) -> None:
        for id_ in instance_ids:
            if id_ in self.machines:
                self.machines[id_].wake.ring()

    # --- machines ----------------------------------------------------------------------------------------

    async def launch(self, instance_id: str, offer: Offer) -> None:
        """See `Cloud`. Returns once the intent is journaled. An intent that came to an end stays so."""
        if instance_id not in self.machines:
            entry = MachineEntry.intent(instance_id, offer, self._context.clock.now())
            machine = RentedMachine(self._context, entry)
            machine.save()
            self.machines[instance_id] = machine
        self._resume(self.machines[instance_id])

    async def prepare(self, run: Run) -> None:
        """See `Cloud`. Returns at once; images are pulled as soon as somebody can log in."""
        self._prefetch.expect(run)

    async def terminate(self, instance_id: str) -> None:
        """See `Cloud`. Returns once that is journaled.

        A machine that is over is cleared from the cloud again: a launch may have come late, long after it was
        given up. One that this controller never launched is ended by the name of its cluster.
        """
        unknown = MachineEntry(instance_id, "", False, self._context.clock.now())
        machine = self.machines.setdefault(instance_id, RentedMachine(self._context, unknown))
        if machine.entry.is_over:
            machine.report_state()
        else:
            machine.request_end()
        self._ensure_alive(machine)

    async def renew(self, instance_ids: list[str]) -> None:
        """See `Cloud`. The next exchange with each machine renews its lease; SkyPilot is not asked."""
        for id_ in instance_ids:
            if id_ in self.machines:
                self.machines[id_].renewal_due = True

    async def owned(self) -> list[Instance]:
        """See `Cloud`. Machines of other controllers, and of twins, are named by their clusters."""
        naming, machines = self._context.naming, self.machines.values()
        intended = {machine.cluster for machine in machines if not machine.entry.is_over}
        listing = [one for one in await self._context.sky.clusters() if naming.is_of_owner(one, intended)]
        strangers = [status for status in listing if self._is_stranger(status)]
        kept = set() if self._twins is None else await self._twins.rented(strangers)
        listed = {status.name for status in listing}
        unlisted = [machine for machine in machines if machine.takes_runs and machine.cluster not in listed]
        return [
            *(self._instance(status, kept) for status in listing),
            *(self._known_instance(machine.entry, InstancePhase.READY) for machine in unlisted),
        ]

    def _is_stranger(self, status: ClusterStatus) -> bool:
        """Whether a cluster with our id is of no intent here, nor of a late launch of one that is over."""
        id_ = self._context.naming.instance_id(status.name)
        machine = self.machines.get(id_ or "")
        if id_ is None or machine is None:
            return id_ is not None
        return machine.entry.is_over and asked_at(status) not in (None, int(machine.entry.asked_at))

    def _instance(self, status: ClusterStatus, kept: Container[str]) -> Instance:
        naming, phase = self._context.naming, _PHASES[status.state]
        id_ = naming.instance_id(status.name)
        if (
            id_ is None or status.name in kept
        ):  # another's: only that one knows its lease, so it is left alone
            whose = naming.controller_of(status)
            return Instance(status.name, "", phase, status.launched_at, controller=whose, nodes=status.nodes)
        machine = self.machines.get(id_)
        if machine is None:
            ours = naming.controller
            return Instance(id_, "", phase, status.launched_at, controller=ours, nodes=status.nodes)
        ends = machine.entry.ending or machine.entry.is_over
        return self._known_instance(machine.entry, InstancePhase.TERMINATING if ends else phase)

    def _known_instance(self, entry: MachineEntry, phase: InstancePhase) -> Instance:
        launched_at = entry.asked_at if entry.launched_at is None else entry.launched_at
        controller = self._context.naming.controller
        return Instance(entry.id, entry.offer, phase, launched_at, controller=controller, nodes=entry.nodes)

    def _resume(self, machine: RentedMachine) -> None:
        """Report how a machine stands, and see to it that its loop runs unless it is over."""
        machine.report_state()
        if not machine.entry.is_over:
            self._ensure_alive(machine)
        self._boot_contact.ensure(machine)

    def _ensure_alive(self, machine: RentedMachine) -> None:
        work = partial(live, machine, self._observer, self._exchanges)
        self._context.tasks.ensure(("machine", machine.id), work)

    # --- watching ----------------------------------------------------------------------------------------

    async def watch(self, report: Report) -> None:
        """See `RunSite`."""
        self._context.report.listener = report
        self._twins = self._twins or Twins(self._context)
        try:
            for machine in list(self.machines.values()):
                self._resume(machine)  # exchanges begin now, whether SkyPilot and its catalogs answer or not
            known = await self._report_offers()
            await self._liveness.look_first()
            up = [machine for machine in self.machines.values() if machine.takes_runs]
            await asyncio.gather(*(machine.greeted.wait() for machine in up))
            self._report_all()
            self._context.tasks.ensure("machines", self._liveness.watch)
            self._context.tasks.ensure("offers", partial(self._refresh_offers, known))
            await self._context.tasks.until_failure()
        finally:
            self._context.report.listener = unwatched
            await self._context.tasks.cancel()

    def _report_all(self) -> None:
        """Report every run and whether machines answer, then that this is all."""
        for machine in self.machines.values():
            if machine.entry.is_over:  # also if Starburst ended before its runs were told
                self._runs.machine_gone(machine.id)
            if machine.answers is not None:
                self._context.report(reachability(machine, answers=machine.answers))
        known = self._runs.list_all()
        self._context.report(SiteSynced(Site.CLOUD, known, frozenset(self.machines)))

    async def _report_offers(self) -> bool:
        """Report what can be rented; not while no catalog can be read, which ends no machine."""
        try:
            offers = await self._offers()
        except CatalogError as error:
            log.warning("no-offers-yet", error=str(error), again_in_s=RETRY_S)
            return False
        self._context.report(OffersChanged(tuple(offers)))
        return True

    async def _refresh_offers(self, known: bool) -> None:
        while True:
            await asyncio.sleep(OFFERS_S if known else RETRY_S)
            known = await self._report_offers()
