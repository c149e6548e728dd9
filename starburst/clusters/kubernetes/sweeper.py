"""Takes back runs that should not be, or that cannot use their place.

Every few seconds all known runs are looked at. Three kinds are ended: those whose end was begun and not
finished (a crash between two writes), those the core does not know (a write that came through after its
answer was lost), and those that are stalled for longer than their limit (see `stalled_runs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from starburst.clusters.kubernetes.run_registry import RunKey, RunObject, RunRegistry
from starburst.clusters.kubernetes.stalled_runs import StartLimits, why_stalled
from starburst.core.model.events import RunEnd
from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Site
from starburst.kube import names
from starburst.kube.objects import JobView
from starburst.runs.ports import AdoptionPort

log = structlog.get_logger()

#: Wall seconds between looks.
SWEEP_S = 5.0


class Sweeper:
    """The loop over all runs; it begins when `begin` says that everything has been listed.

    `displace` ends a run: how the end counts, and why.
    """

    def __init__(
        self,
        desk: AdoptionPort,
        registry: RunRegistry,
        displace: Callable[[RunKey, RunEnd, str], Awaitable[None]],
        limits: StartLimits,
    ) -> None:
        self._desk = desk
        self._registry = registry
        self._displace = displace
        self._limits = limits
        self._begun = asyncio.Event()
        #: Runs that cannot go on, with the limit that applies, and since when (the loop's time).
        self._stalled_since: dict[tuple[RunKey, float], float] = {}
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
            for key in [*self._orphans]:
                if await self._take_back(key):
                    self._orphans.discard(key)
            for run in self._registry:
                if _is_half_stopped(run) or self._is_stray(run):
                    log.warning("taken-back", job=run.key[0], attempt=run.key[1])
                    await self._take_back(run.key)
            await self._end_stalled(asyncio.get_running_loop().time())
            await asyncio.sleep(SWEEP_S)

    async def _end_stalled(self, now: float) -> None:
        """End runs that were stalled for their limit, so that others get their places."""
        found = {run.key: why_stalled(run, self._limits) for run in self._registry if _is_live(run)}
        stalled = {(key, limit_s): why for key, (why, limit_s) in found.items() if why}
        self._stalled_since = {each: self._stalled_since.get(each, now) for each in stalled}
        for each, since in self._stalled_since.items():
            key, limit_s = each
            if now - since >= limit_s:
                log.warning("displaced", job=key[0], attempt=key[1], why=stalled[each])
                run = self._registry.get(key)
                began = run is not None and run.told_started
                await self._take_back(key, RunEnd.DISPLACED if began else RunEnd.NOT_STARTED, stalled[each])

    async def _take_back(self, key: RunKey, how: RunEnd = RunEnd.DISPLACED, why: str = "") -> bool:
        try:
            await self._displace(key, how, why)
        except Exception as error:  # whatever it was, the next sweep tries again
            log.warning("displace-failed", job=key[0], error=str(error))
            return False
        return True

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


def _is_half_stopped(run: RunObject) -> bool:
    """Whether the end of a run was announced, and its object neither deleted nor withdrawn."""
    if run.stopping is None or run.told_end or run.gone or run.view.deleting:
        return False
    return not (isinstance(run.view, JobView) and (run.view.end or run.view.withdrawn))
