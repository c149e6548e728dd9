"""The cloud of SkyPilot behind the port `Cloud`.

`machines.py` rents and gives back, `runs.py` knows what runs; here an attendant per machine goes between:
it exchanges news with its machine, often while something changes there and seldom while nothing does, and
says when a machine no longer answers. What SkyPilot is asked for is one listing a minute; whether a machine
lives is asked of its cloud (`lookout.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from starburst.clouds.sky.access.ports import (
    CloudApi,
    ClusterState,
    ClusterStatus,
    Contact,
    LocalError,
    SkyApi,
    SkyError,
    UnreachableError,
)
from starburst.clouds.sky.journal import MachineNote, Notes
from starburst.clouds.sky.machines.machines import SkyMachines
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.runs.checkpoints import Berth
from starburst.clouds.sky.runs.logs import MAX_LOG
from starburst.clouds.sky.runs.runner import Runner
from starburst.clouds.sky.runs.runs import News, SkyRuns
from starburst.clouds.sky.runs.runtime_values import Admit, Source, admit_all
from starburst.clouds.sky.runs.storage import NO_STORES, all_mounts
from starburst.core.model.events import (
    Event,
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceUnfit,
    InstanceUnreachable,
    OffersChanged,
    SiteSynced,
)
from starburst.domain.clock import Pace
from starburst.domain.cloud import Instance, InstancePhase, Offer
from starburst.domain.job import Site
from starburst.runs.debounce import Nudges
from starburst.runs.ports import Report, Run
from starburst.runs.processes import unwatched
from starburst.runs.tasks import TaskSet
from translator.carried import CloudStorage

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
    ClusterState.STOPPED: InstancePhase.TERMINATING,
    ClusterState.ENDING: InstancePhase.TERMINATING,
}


@dataclass(slots=True)
class Silence:
    """Exchanges with a machine that came to nothing, in a row: how many, and since when."""

    misses: int = 0
    since: float = 0.0


class SkyCloud:
    """A `Cloud` of SkyPilot's clusters.

    `offers` reads what can be rented; `home` is where logs of runs go (`home/runs`), `checkpoints` where
    jobs keep theirs on this side. A machine ends by itself `lease_s` plus `idle_minutes` after we are last
    heard of; a launch that takes longer than `launch_limit_s` has failed. `now` gives the scheduler's time
    and `pace` maps it to the wall's. `source` reads what runs take from the cluster; without one they are
    refused. `stores` are mapped to the cluster's volumes, and every machine has them all. `admit` says which
    runs may have of either. With `own_prices` those of the offers are the user's, and SkyPilot is not asked
    what machines cost."""

    def __init__(
        self,
        api: SkyApi,
        contact: Contact,
        clouds: CloudApi,
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
        launch_limit_s: float = 1800.0,
        bucket: str | None = None,
        source: Source | None = None,
        max_log: int = MAX_LOG,
        stores: Mapping[str, CloudStorage] = NO_STORES,
        admit: Admit = admit_all,
        own_prices: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._offers = offers
        self._contact = contact
        self._now = now
        self._lease_s = lease_s
        self._wall = wall
        self._out: Report = unwatched
        self._tasks = TaskSet()
        self._wakes: dict[str, asyncio.Event] = {}
        self._renewed: set[str] = set()
        #: Whether a machine answers, as last said. None in this life: the core may remember another one.
        self._answers: dict[str, bool] = {}
        #: Machines that were reported as such in this life.
        self._unfit: set[str] = set()
        #: Set once a machine's attendant has tried an exchange.
        self._greeted: dict[str, asyncio.Event] = {}
        self._nudges = Nudges(self._look_in)
        self._machines = SkyMachines(
            api,
            contact,
            clouds,
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
            launch_limit_s=launch_limit_s,
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
            max_log=max_log,
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
        listing = await self._machines.owned()
        forgotten = [self._noted(note, InstancePhase.READY) for note in self._machines.forgotten(listing)]
        return [*map(self._instance, listing), *forgotten]

    def _instance(self, status: ClusterStatus) -> Instance:
        naming, phase = self._machines.naming, _PHASES[status.state]
        if naming.instance_id(status.name) is None:
            # Till when it is leased only the machine itself knows, which is somebody else's: it is let be.
            whose = naming.controller_of(status)
            return Instance(status.name, "", phase, status.launched_at, controller=whose)
        id_ = naming.instance_id(status.name) or status.name
        note = self._machines.notes.get(id_)
        if note is None:
            return Instance(id_, "", phase, status.launched_at, controller=naming.controller)
        return self._noted(note, InstancePhase.TERMINATING if note.ending or note.is_over else phase)

    def _noted(self, note: MachineNote, phase: InstancePhase) -> Instance:
        launched_at = note.asked_at if note.launched_at is None else note.launched_at
        return Instance(note.id, note.offer, phase, launched_at, controller=self._machines.naming.controller)

    # --- watching ----------------------------------------------------------------------------------------

    async def watch(self, report: Report) -> None:
        """See `RunSite`."""
        self._out = report
        try:
            await self._tell_offers()
            for note in list(self._machines.notes.values()):
                self._machines.resume(note)  # attended to from now on, whether SkyPilot answers or not
            await self._machines.lookout.look_first()
            await asyncio.gather(*(self._greeted[id_].wait() for id_ in self._attended()))
            for note in self._machines.notes.values():
                if note.is_over:  # also if we died before its runs were told
                    self._runs.machine_gone(note.id)
            for id_, answers in self._answers.items():
                report(_answer(id_, answers))
            known = self._runs.list_all()
            report(SiteSynced(Site.CLOUD, known, frozenset(self._machines.notes)))
            self._tasks.ensure("machines", self._machines.lookout.watch)
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
        if isinstance(event, (InstanceGone, InstanceFailed)):
            self._contact.forget(self._machines.naming.cluster(event.instance_id))
        self._out(event)

    def _attended(self) -> list[str]:
        return [id_ for id_ in self._machines.notes if self._machines.takes_runs(id_)]

    def _gone(self, instance_id: str) -> None:
        self._runs.machine_gone(instance_id)
        self._renewed.discard(instance_id)
        self._answers.pop(instance_id, None)
        self._unfit.discard(instance_id)
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
        """The way to a machine that takes runs; None if SkyPilot never told it."""
        access = self._machines.access(instance_id)
        if access is None:
            return None
        note = self._machines.notes[instance_id]
        return Berth(self._machines.naming.cluster(instance_id), access, note.gpu_type)

    async def _exchange(self, instance_id: str, *, renews: bool) -> News:
        berth = self._berth(instance_id)
        if berth is None:
            raise UnreachableError(f"{instance_id}: SkyPilot does not say how to log in")
        renews = renews and instance_id in self._renewed
        news = await self._runs.exchange(instance_id, berth, self._lease_s if renews else None)
        if renews:
            self._renewed.discard(instance_id)
        return news

    async def _look_after(self, instance_id: str) -> None:
        """Exchange news with a machine as long as it takes runs."""
        wake, silence = self._wakes[instance_id], Silence()
        while self._machines.takes_runs(instance_id):
            wake.clear()
            pause_s = await self._round(instance_id, silence)
            self._greeted[instance_id].set()
            timer = asyncio.get_running_loop().call_later(pause_s, wake.set)
            await wake.wait()
            timer.cancel()
        self._answers.pop(instance_id, None)
        self._greeted[instance_id].set()

    async def _round(self, instance_id: str, silence: Silence) -> float:
        """One exchange, and what follows from it; wall seconds until the next.

        A machine's lease is renewed only while exchanges with it succeed, so that its keeper ends it else."""
        try:
            news = await self._exchange(instance_id, renews=not silence.misses)
        except (LocalError, OSError) as error:
            log.error("exchange-waits", instance=instance_id, error=str(error))
            return PAUSES["steady"]
        except UnreachableError as error:
            self._missed(instance_id, silence, str(error), heard=False)
        except SkyError as error:
            self._missed(instance_id, silence, str(error), heard=True)
        except Exception as error:  # whatever it is, it is this machine's alone
            log.exception("exchange-failed", instance=instance_id)
            self._missed(instance_id, silence, f"{type(error).__name__}: {error}", heard=True)
        else:
            return self._heard(instance_id, silence, news)
        return PAUSES["changing" if self._answers.get(instance_id, True) else "steady"]

    def _heard(self, instance_id: str, silence: Silence, news: News) -> float:
        self._machines.heard(instance_id, kept=news.kept, armed=news.armed)
        if news.unfit and instance_id not in self._unfit:
            self._unfit.add(instance_id)
            self._report(InstanceUnfit(instance_id, news.unfit))
        if news.trouble:
            self._missed(instance_id, silence, news.trouble, heard=True)
            return PAUSES["steady"]
        silence.misses = 0
        self._say(instance_id, answers=True)
        if news.lapsed and self._runs.none_on(instance_id):  # we were away too long
            log.warning("lease-passed", instance=instance_id)
            self._machines.terminate(instance_id)
        return 0.0 if news.more else PAUSES[self._runs.pace(instance_id)]

    def _missed(self, instance_id: str, silence: Silence, why: str, *, heard: bool) -> None:
        """An exchange came to nothing; `heard` if the machine answered, though not so that it was of use."""
        silence.misses += 1
        self._runs.silent(instance_id)
        if silence.misses == 1:
            silence.since = self._now()
            log.warning("machine-does-not-answer", instance=instance_id, error=why)
            self._machines.lookout.suspect(instance_id)
        looked = self._machines.lookout.looked_at.get(instance_id, 0.0) > silence.since
        if silence.misses >= MISSES and (heard or looked):
            self._say(instance_id, answers=False, why=why if heard else "")

    def _say(self, instance_id: str, *, answers: bool, why: str = "") -> None:
        if self._answers.get(instance_id) is not answers:
            self._answers[instance_id] = answers
            self._report(_answer(instance_id, answers, why))


def _answer(instance_id: str, answers: bool, why: str = "") -> Event:
    return InstanceReachable(instance_id) if answers else InstanceUnreachable(instance_id, why)
