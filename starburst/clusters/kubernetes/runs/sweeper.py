"""Takes back runs that should not be, or that cannot use their place, and says what holds up the others.

Every few seconds all known runs are looked at. These are ended: those whose end was begun and not finished (a
crash between two writes), those the core does not know (a write that came through after its answer was lost),
those whose Job their user suspended, those that are stalled for longer than their limit (see `stalls`), those
that are over their time limit, and what lives on of a Job that Kubernetes has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from starburst.clusters.kubernetes.adoption.holds import SUSPENDED_BY_USER
from starburst.clusters.kubernetes.runs.complaints import Complaint
from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.run_object import RunObject
from starburst.clusters.kubernetes.runs.stalls import RunSurroundings, Stall, why_stalled, why_stays
from starburst.core.model.events import RunEnd, RunStalled
from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Site
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from starburst.runs.ports import AdoptionPort, Report

log = structlog.get_logger()

#: Wall seconds between looks.
SWEEP_S = 5.0
#: What holds up a run is told once it has lasted so long, and the events about it are read so often. Wall
#: seconds.
TELL_S, ASK_S = 10.0, 30.0
#: The Job controller has this long to end a Job at its limit, or what lives of one that has ended. Wall
#: seconds; also what the clocks of the server and of this machine may differ by.
LEEWAY_S = 20.0


@dataclass(frozen=True, slots=True)
class SweptCluster:
    """What the sweeper looks at and acts through.

    `end` ends a run: how that counts, and why. `relabel` as `ObjectWriter`'s. `surroundings` of a run, given
    the last complaint about it. `again` has a run as the server has it now, None if it is gone. `complaint`
    reads the events about an object. `suspended`: whether a job's own, managed Job is suspended.
    """

    end: Callable[[RunKey, RunEnd, str], Awaitable[None]]
    relabel: Callable[[RunKey], Awaitable[bool]]
    clear: Callable[[list[PodView]], Awaitable[None]]
    surroundings: Callable[[Complaint | None], RunSurroundings]
    again: Callable[[RunObject], Awaitable[RunObject | None]]
    complaint: Callable[[JobView | PodView], Awaitable[Complaint | None]]
    suspended: Callable[[str], bool]
    report: Report


@dataclass(slots=True)
class _Watched:
    """A stalled run: what holds it up, since when (the loop's time), and what was asked and told."""

    stall: Stall
    since: float
    asked_at: float | None = None
    complaint: Complaint | None = None
    #: What was reported last: the cause, and whether with the words of a complaint; None: nothing.
    told: tuple[str, bool] | None = None


class Sweeper:
    """The loop over all runs; it begins when `begin` says that everything has been listed."""

    def __init__(self, desk: AdoptionPort, registry: RunRegistry, cluster: SweptCluster) -> None:
        self._desk = desk
        self._registry = registry
        self._cluster = cluster
        self._begun = asyncio.Event()
        self._stalled: dict[RunKey, _Watched] = {}
        #: Since when Jobs have ended of which something lives (the loop's time).
        self._outlived: dict[RunKey, float] = {}
        #: Runs whose pods were left behind by a Job that is gone.
        self._orphans: set[RunKey] = set()

    def begin(self, orphans: frozenset[RunKey]) -> None:
        """Everything has been listed; these runs have pods without their Job."""
        self._orphans |= orphans
        self._begun.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        await self._begun.wait()
        while True:
            for key in sorted(self._orphans):
                if await self._end_orphan(key):
                    self._orphans.discard(key)
            now = asyncio.get_running_loop().time()
            for run in self._registry:
                await self._look_at(run, now)
            for known in (self._stalled, self._outlived):
                for key in [key for key in known if self._registry.get(key) is None]:
                    del known[key]
            await asyncio.sleep(SWEEP_S)

    async def _look_at(self, run: RunObject, now: float) -> None:
        if _is_live(run) and (run.suspended or self._cluster.suspended(run.key[0])):
            log.info("suspended", job=run.key[0], attempt=run.key[1])
            await self._end(run.key, RunEnd.SUSPENDED, SUSPENDED_BY_USER)
        elif self._is_half_stopped(run) or self._is_stray(run):
            log.warning("taken-back", job=run.key[0], attempt=run.key[1])
            await self._end(run.key)
        elif _is_live(run) and self._why_out_of_time(run):
            there = await self._asked(run)
            if there is not None and (why := self._why_out_of_time(there)):
                log.warning("out-of-time", job=run.key[0], attempt=run.key[1])
                await self._end(run.key, RunEnd.OUT_OF_TIME, why)
        elif run.outliving:
            await self._clear(run, now)
        elif not run.told_end:
            await self._look_for_stall(run, now)

    async def _look_for_stall(self, run: RunObject, now: float) -> None:
        """Tell what holds a run up, and end it after the limit, so that others get its place."""
        watched = self._stalled.get(run.key)
        known = self._cluster.surroundings(watched.complaint if watched else None)
        stall = why_stalled(run, known) if _is_live(run) else why_stays(run, known)
        if stall is None:
            if watched is not None and watched.told is not None:
                self._cluster.report(RunStalled(*run.key, ""))
            self._stalled.pop(run.key, None)
            return
        if watched is None or watched.stall.cause != stall.cause:
            before = watched or _Watched(stall, now)
            watched = _Watched(stall, now, complaint=before.complaint, told=before.told)
            self._stalled[run.key] = watched
        watched.stall = stall
        await self._ask(watched, now)
        if now - watched.since >= stall.limit_s:
            there = await self._asked(run)
            stall = None if there is None or not _is_live(there) else why_stalled(there, known)
            if stall is None or stall.cause != watched.stall.cause:
                watched.since = now if there is not None else watched.since  # it went on unseen
                return
            log.warning("displaced", job=run.key[0], attempt=run.key[1], why=stall.why)
            is_ours = run.told_started or not stall.limit_s  # else its start came to nothing
            await self._end(run.key, RunEnd.DISPLACED if is_ours else RunEnd.NOT_STARTED, stall.why)
        elif now - watched.since >= min(TELL_S, stall.limit_s):
            self._tell(run.key, watched)

    async def _asked(self, run: RunObject) -> RunObject | None:
        """A run as the server has it now; None if it is gone, as its watch will tell, or nobody answers."""
        try:
            return await self._cluster.again(run)
        except Exception as error:  # whatever it was, the next sweep asks again
            log.warning("displace-unsure", job=run.key[0], error=str(error))
            return None

    async def _ask(self, watched: _Watched, now: float) -> None:
        """Read the events about what holds up a run; the next look has their words."""
        about = watched.stall.about
        if about is None or (watched.asked_at is not None and now - watched.asked_at < ASK_S):
            return
        watched.asked_at = now
        try:
            watched.complaint = await self._cluster.complaint(about)
        except Exception as error:  # whatever it was, it is asked again
            log.warning("events-unread", of=about.name, error=str(error))

    def _tell(self, key: RunKey, watched: _Watched) -> None:
        """Report what holds up a run, unless only the words of one cause have changed."""
        telling = watched.stall.cause, watched.complaint is not None
        if watched.told != telling:
            watched.told = telling
            self._cluster.report(RunStalled(*key, watched.stall.why))

    async def _clear(self, run: RunObject, now: float) -> None:
        """Delete what lives of a Job that has ended, if its controller does not."""
        if now - self._outlived.setdefault(run.key, now) < LEEWAY_S:
            return
        log.warning("outlived", job=run.key[0], attempt=run.key[1], pods=len(run.outliving))
        try:
            await self._cluster.clear([pod for pod in run.outliving if not pod.deleting])
        except Exception as error:  # whatever it was, the next sweep tries again
            log.warning("outlived-stays", job=run.key[0], error=str(error))

    async def _end(self, key: RunKey, how: RunEnd = RunEnd.DISPLACED, why: str = "") -> bool:
        try:
            await self._cluster.end(key, how, why)
        except Exception as error:  # whatever it was, the next sweep tries again
            log.warning("displace-failed", job=key[0], error=str(error))
            return False
        return True

    async def _end_orphan(self, key: RunKey) -> bool:
        """End a run whose Job is gone; whether that is done, or the Job is there, as its watch will tell."""
        try:
            if await self._cluster.relabel(key):
                return True
        except Exception as error:  # whatever it was, the next sweep tries again
            log.warning("orphan-unsure", job=key[0], error=str(error))
            return False
        return await self._end(key)

    def _why_out_of_time(self, run: RunObject) -> str:
        """Why a run is over its limit; the Job controller does not notice all limits that are set."""
        view = run.view
        if not isinstance(view, JobView) or view.end or view.limit_s is None or view.started_at is None:
            return ""
        if self._cluster.surroundings(None).now < view.started_at + view.limit_s + LEEWAY_S:
            return ""
        return "it was active for longer than its activeDeadlineSeconds"

    def _is_half_stopped(self, run: RunObject) -> bool:
        """Whether the end of a run was announced, and its object neither deleted nor withdrawn.

        Or pods of it were alive then of which no watch has told.
        """
        view = run.view
        if run.told_end or run.stopping is None:
            return False
        if self._registry.is_ahead(view.uid):
            return True
        if run.gone or view.deleting:
            return False
        return not (isinstance(view, JobView) and (view.end or view.withdrawn))

    def _is_stray(self, run: RunObject) -> bool:
        """Whether an object is for a run that the core does not know of."""
        ended = isinstance(run.view, JobView) and run.view.end
        if ended or not _is_live(run) or (run.adopted and not run.view.annotations.get(names.NODES)):
            return False
        record = self._desk.record(run.key[0])
        return record is not None and not is_run_of(record, run.key)


def is_run_of(record: JobRecord, key: RunKey) -> bool:
    """Whether the core has this run on the cluster."""
    return record.alive and record.site is Site.CLUSTER and (record.id, record.attempt) == key


def _is_live(run: RunObject) -> bool:
    """Whether a run goes on, and nothing ends it."""
    return not run.told_end and not run.gone and run.stopping is None and not run.view.deleting
