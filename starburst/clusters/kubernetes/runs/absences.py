"""Runs and jobs whose objects are missing once all are listed: ended, taken away, deleted, or lost.

Events tell which. Each is asked for by itself: while there is no answer nothing is decided of that run, and
nothing else waits for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from starburst.aio import TaskSet
from starburst.clusters.kubernetes.runs.evictions import Evictions
from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.clusters.kubernetes.runs.registry import NO_TRACE
from starburst.clusters.kubernetes.runs.vanished import Vanished
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.job import Adopted, Site
from starburst.runs.ports import AdoptionPort, Report

log = structlog.get_logger()

#: Wall seconds that the first report waits for answers.
PATIENCE_S = 10.0


class Absences:
    """Asks in `tasks`. `out` says why a node keeps no pods, or ""; `cancel` cancels a job."""

    def __init__(
        self,
        desk: AdoptionPort,
        *,
        vanished: Vanished,
        evictions: Evictions,
        out: Callable[[str], str],
        report: Report,
        cancel: Callable[[str], None],
        tasks: TaskSet,
    ) -> None:
        self._desk = desk
        self._vanished = vanished
        self._evictions = evictions
        self._out = out
        self._report = report
        self._cancel = cancel
        self._tasks = tasks
        #: Jobs whose ends were learnt from events.
        self.ended: set[str] = set()
        #: Runs that are asked about: whether they ended is not known.
        self.open: set[RunKey] = set()
        #: Whether the core was told that what is not known is gone.
        self.synced = False

    async def first(self, missing: list[RunKey], gone: Mapping[str, Adopted]) -> None:
        """As `judge`; returns when all are judged, or after a while."""
        if asked := self.judge(missing, gone):
            await asyncio.wait(asked, timeout=PATIENCE_S)

    def judge(self, missing: list[RunKey], gone: Mapping[str, Adopted]) -> list[asyncio.Task[None]]:
        """Report how these runs ended, and cancel the jobs in `gone`, whose users deleted their objects."""
        uids = {job_id: adopted.uid for job_id, adopted in self._desk.adopted().items()} if missing else {}
        with_runs = {job_id for job_id, _ in [*missing, *self.open]}
        asked = [self._ask(key, uids.get(key[0], ""), gone.get(key[0])) for key in missing]
        for job_id, adopted in gone.items():
            if job_id not in with_runs:
                asked.append(self._ask((job_id, 0), adopted.uid, adopted))
        return asked

    def _ask(self, key: RunKey, uid: str, gone: Adopted | None) -> asyncio.Task[None]:
        return self._tasks.ensure(("absent", *key), lambda: self._judge(key, uid, gone))

    async def _judge(self, key: RunKey, uid: str, gone: Adopted | None) -> None:
        job_id, attempt = key
        before = self._attempt(job_id)
        if attempt:
            self.open.add(key)
        end = await self._vanished.end(key, uid) if attempt else None
        if end is not None:
            log.info("ended-and-vanished", job=job_id, attempt=attempt)
            self.ended.add(job_id)
        elif gone is not None:
            end = await self._end_of_gone(job_id, gone)
        self.open.discard(key)
        if end is not None:
            self._report(end)
            return
        if (
            gone is not None and self._attempt(job_id) == before
        ):  # else its user ended the run, and it went on
            self._cancel(job_id)
        if attempt and self.synced:
            self._report(RunEnded(*key, RunEnd.LOST, message=NO_TRACE))

    def _attempt(self, job_id: str) -> int:
        record = self._desk.record(job_id)
        return 0 if record is None else record.attempt

    async def _end_of_gone(self, job_id: str, adopted: Adopted) -> RunEnded | None:
        """The end of the run of a Pod that is gone; None if its user may have deleted it meanwhile."""
        record = self._desk.record(job_id)
        if adopted.kind != "Pod" or record is None or not record.alive or record.site is not Site.CLUSTER:
            return None
        key, nodes = (job_id, record.attempt), [slot.where for slot in record.slots]
        if out := next(filter(None, map(self._out, nodes)), ""):
            return RunEnded(*key, RunEnd.DISPLACED, message=out)
        return await self._evictions.end_of_gone(key, adopted.namespace, adopted.name, nodes)
