"""The cloud of SkyPilot behind the port `Cloud`.

`machines.py` rents and gives back, `runs.py` knows what runs; here an attendant per machine goes between:
it exchanges news with its machine, often while something changes there and seldom while nothing does, and
says when a machine no longer answers. What SkyPilot is asked for is one refreshed listing a minute, and one
more when a machine is silent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import structlog

from starburst.clouds.sky.late import Admit, Source, admit_all
from starburst.clouds.sky.machines import SkyMachines
from starburst.clouds.sky.naming import Naming
from starburst.clouds.sky.notes import Notes
from starburst.clouds.sky.port import ClusterState, ClusterStatus, Contact, SkyApi, SkyError, UnreachableError
from starburst.clouds.sky.runner import Runner
from starburst.clouds.sky.runs import Berth, News, SkyRuns
from starburst.clouds.sky.storage import NO_STORES, all_mounts
from starburst.core.events import Event, InstanceReachable, InstanceUnreachable, OffersChanged, SiteSynced
from starburst.domain.clock import Pace
from starburst.domain.cloud import Instance, InstancePhase, Offer
from starburst.domain.job import Site
from starburst.runs.nudges import Nudges
from starburst.runs.ports import Report, Run
from starburst.runs.processes import unwatched
from starburst.runs.tasks import TaskSet
from translator.stores import Store

log = structlog.get_logger()

#: Wall seconds between exchanges with a machine, by what goes on there; and between looks at the offers.
PAUSES = {"changing": 1.0, "steady": 5.0, "none": 15.0}
OFFERS_S = 3600.0
#: Exchanges in a row that must fail before a machine counts as unreachable.
MISSES = 2

_PHASES = {
    ClusterState.LAUNCHING: InstancePhase.LAUNCHING,
    ClusterState.UP: InstancePhase.READY,
    ClusterState.UNHEALTHY: InstancePhase.READY,
    ClusterState.ENDING: InstancePhase.TERMINATING,
}


class SkyCloud:
    """A `Cloud` of SkyPilot's clusters.

    `offers` reads what can be rented; `home` is where logs of runs go (`home/runs`), `checkpoints` where
    jobs keep theirs on this side. A machine ends by itself `lease_s` plus `idle_minutes` after we are last
    heard of. `now` gives the scheduler's time and `pace` maps it to the wall's. `source` reads what runs take
    from the cluster; without one they are refused. `stores` are mapped to the cluster's volumes, and every
    machine has them all. `admit` says which runs may have of either. With `own_prices` those of the offers
    are the user's, and SkyPilot is not asked what machines cost."""

    def __init__(
        self,
        api: SkyApi,
        contact: Contact,
        runner: Runner,
        notes: Notes,
        *,
        offers: Callable[[], Awaitable[list[Offer]]],
        home: Path,
        checkpoints: Path,
        pace: Pace,
        now: Callable[[], float],
        owner: str,
        controller: str,
        lease_s: float = 900.0,
        idle_minutes: int = 5,
        bucket: str | None = None,
        source: Source | None = None,
        stores: Mapping[str, Store] = NO_STORES,
        admit: Admit = admit_all,
        own_prices: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._offers = offers
        self._now = now
        self._lease_s = lease_s
        self._wall = wall
        self._out: Report = unwatched
        self._tasks = TaskSet()
        self._wakes: dict[str, asyncio.Event] = {}
        self._renewed: set[str] = set()
        #: Whether a machine answers, as last said. None in this life: the core may remember another one.
        self._answers: dict[str, bool] = {}
        #: Set once a machine's attendant has tried an exchange.
        self._greeted: dict[str, asyncio.Event] = {}
        self._nudges = Nudges(self._look_in)
        self._machines = SkyMachines(
            api,
            contact,
            notes,
            Naming(owner, controller),
            report=self._report,
            ready=self._attend,
            gone=self._gone,
            tasks=self._tasks,
            now=now,
            pace=pace,
            lease_s=lease_s,
            idle_minutes=idle_minutes,
            bucket=bucket,
            mounts=all_mounts(stores),
            own_prices=own_prices,
        )
        self._runs = SkyRuns(
            notes,
            contact,
            runner,
            takes=self._machines.takes_runs,
            berth=self._berth,
            report=self._report,
            tasks=self._tasks,
            logs=home / "runs",
            checkpoints=checkpoints,
            bucket=bucket is not None,
            source=source,
            stores=stores,
            admit=admit,
            wall=wall,
        )

    # --- runs --------------------------------------------------------------------------------------------

    async def start(self, run: Run) -> None:
        """See `RunSite`."""
        self._wake(self._runs.start(run))

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """See `RunSite`."""
        self._wake(self._runs.stop(job_id, attempt, grace_s))

    def nudge(self) -> None:
        """See `RunSite`. Machines with tasks are talked to; SkyPilot is not asked."""
        self._nudges.nudge()

    def _look_in(self) -> None:
        self._wake([id_ for id_ in self._wakes if self._runs.pace(id_) != "none"])

    # --- machines ----------------------------------------------------------------------------------------

    async def launch(self, instance_id: str, offer: Offer) -> None:
        """See `Cloud`. Taken when it is noted; what comes of it is reported."""
        self._machines.launch(instance_id, offer)

    async def terminate(self, instance_id: str) -> None:
        """See `Cloud`."""
        self._machines.terminate(instance_id)
        self._wake([instance_id])

    async def renew(self, instance_ids: list[str]) -> None:
        """See `Cloud`. The next exchange with each brings it; SkyPilot is not asked."""
        self._renewed.update(instance_ids)

    async def owned(self) -> list[Instance]:
        """See `Cloud`. The name of another controller's machine is its cluster's."""
        is_of_owner = self._machines.naming.is_of_owner
        return [self._instance(status) for status in await self._machines.clusters() if is_of_owner(status)]

    def _instance(self, status: ClusterStatus) -> Instance:
        naming, phase = self._machines.naming, _PHASES[status.state]
        if not naming.is_ours(status):
            # Till when it is leased only the machine itself knows, which is somebody else's: it is let be.
            whose = naming.controller_of(status)
            return Instance(status.name, "", phase, status.launched_at, controller=whose)
        id_ = naming.instance_id(status.name) or status.name
        note = self._machines.notes.get(id_)
        if note is None:
            return Instance(id_, "", phase, status.launched_at, controller=naming.controller)
        if note.ending or note.is_over:
            phase = InstancePhase.TERMINATING
        launched_at = note.asked_at if note.launched_at is None else note.launched_at
        return Instance(id_, note.offer, phase, launched_at, controller=naming.controller)

    # --- watching ----------------------------------------------------------------------------------------

    async def watch(self, report: Report) -> None:
        """See `RunSite`."""
        self._out = report
        try:
            await self._tell_offers()
            await self._machines.list_first()
            await asyncio.gather(*(self._greeted[id_].wait() for id_ in self._attended()))
            for note in self._machines.notes.values():
                if note.is_over:  # also if we died before its runs were told
                    self._runs.machine_gone(note.id)
            for id_, answers in self._answers.items():
                report(_answer(id_, answers))
            known = self._runs.list_all()
            report(SiteSynced(Site.CLOUD, known, frozenset(self._machines.notes)))
            self._tasks.ensure("machines", self._machines.watch)
            self._tasks.ensure("offers", self._refresh_offers)
            await self._tasks.until_failure()
        finally:
            self._out = unwatched
            await self._tasks.cancel()

    async def _tell_offers(self) -> None:
        offers = await self._offers()
        self._report(OffersChanged(tuple(offers)))

    async def _refresh_offers(self) -> None:
        while True:
            await asyncio.sleep(OFFERS_S)
            await self._tell_offers()

    def _report(self, event: Event) -> None:
        self._out(event)

    def _attended(self) -> list[str]:
        return [id_ for id_ in self._machines.notes if self._machines.takes_runs(id_)]

    def _gone(self, instance_id: str) -> None:
        self._runs.machine_gone(instance_id)
        self._renewed.discard(instance_id)
        self._answers.pop(instance_id, None)
        self._wake([instance_id])

    # --- attending to a machine --------------------------------------------------------------------------

    def _attend(self, instance_id: str) -> None:
        self._wakes.setdefault(instance_id, asyncio.Event())
        self._greeted.setdefault(instance_id, asyncio.Event())
        self._tasks.ensure(("attend", instance_id), partial(self._look_after, instance_id))

    def _wake(self, instance_ids: list[str]) -> None:
        for id_ in instance_ids:
            if id_ in self._wakes:
                self._wakes[id_].set()

    def _berth(self, instance_id: str) -> Berth | None:
        """The way to a machine that takes runs; None until a listing after a restart has shown it."""
        access = self._machines.access(instance_id)
        if access is None:
            return None
        note = self._machines.notes[instance_id]
        return Berth(self._machines.naming.cluster(instance_id), access, note.gpu_type)

    async def _exchange(self, instance_id: str) -> News:
        berth = self._berth(instance_id)
        if berth is None:
            raise UnreachableError(f"{instance_id}: SkyPilot does not say how to log in")
        renews = instance_id in self._renewed
        news = await self._runs.exchange(instance_id, berth, self._lease_s if renews else None)
        if renews:
            self._renewed.discard(instance_id)
        return news

    async def _look_after(self, instance_id: str) -> None:
        """Exchange news with a machine as long as it takes runs."""
        wake = self._wakes[instance_id]
        misses, silent_since = 0, 0.0
        while self._machines.takes_runs(instance_id):
            wake.clear()
            pause_s = 0.0
            try:
                news = await self._exchange(instance_id)
            except UnreachableError as error:
                misses += 1
                if misses == 1:
                    silent_since = self._now()
                    log.warning("machine-does-not-answer", instance=instance_id, error=str(error))
                    self._machines.suspect()
                listed = self._machines.listed_at.get(instance_id, 0.0) > silent_since
                if misses >= MISSES and listed:
                    self._say(instance_id, answers=False)
                pause_s = PAUSES["changing" if self._answers.get(instance_id, True) else "steady"]
            except SkyError as error:
                log.warning("exchange-failed", instance=instance_id, error=str(error))
                pause_s = PAUSES["steady"]
            else:
                misses = 0
                self._say(instance_id, answers=True)
                if news.lapsed and self._runs.none_on(instance_id):  # we were away too long
                    log.warning("lease-passed", instance=instance_id)
                    self._machines.terminate(instance_id)
                pause_s = 0.0 if news.more else PAUSES[self._runs.pace(instance_id)]
            self._greeted[instance_id].set()
            timer = asyncio.get_running_loop().call_later(pause_s, wake.set)
            await wake.wait()
            timer.cancel()
        self._answers.pop(instance_id, None)
        self._greeted[instance_id].set()

    def _say(self, instance_id: str, *, answers: bool) -> None:
        if self._answers.get(instance_id) is not answers:
            self._answers[instance_id] = answers
            self._report(_answer(instance_id, answers))


def _answer(instance_id: str, answers: bool) -> Event:
    return InstanceReachable(instance_id) if answers else InstanceUnreachable(instance_id)
