"""The end of a run whose Job went away while nobody watched, as the events about the Job tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from starburst.clusters.kubernetes.runs.complaints import answered, events_of, last_at
from starburst.clusters.kubernetes.runs.end_times import EndTimes
from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.run_object import OUT_OF_TIME
from starburst.core.model.events import RunEnd, RunEnded
from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Phase, Site
from starburst.kube.api import Api
from starburst.kube.resources import Object
from starburst.runs.ports import Report

#: Runs that are asked about at a time.
AT_ONCE = 16
COMPLETED = "Completed"
#: Reasons of a Failed Job (batch/v1).
FAILED = (
    "BackoffLimitExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
    OUT_OF_TIME,
)


class Vanished:
    """Asks the server; `where` gives kind, namespace and name of a run's object."""

    def __init__(
        self,
        api: Api,
        where: Callable[[RunKey], tuple[str, str, str]],
        end_times: EndTimes,
        report: Report,
    ) -> None:
        self._api = api
        self.where = where
        self._report = report
        self._end_times = end_times
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def end(self, key: RunKey, uid: str) -> RunEnded | None:
        """The end of a run, if events tell of it; `uid` of its object, "": of any of its name."""
        kind, namespace, name = self.where(key)

        async def ask() -> RunEnded | None:
            async with self._turns:
                found = await events_of(self._api, namespace, f"involvedObject.name={name}")
            return self._end_of(key, (each for each in found if _is_about(each, kind, uid)))

        return await answered(key, ask, self._report) if kind == "Job" else None

    def _end_of(self, key: RunKey, events: Iterable[Object]) -> RunEnded | None:
        for event in events:
            reason, message = event.get("reason"), event.get("message") or ""
            at = self._end_times.told(last_at(event))
            if reason == COMPLETED:
                return RunEnded(*key, RunEnd.EXITED, 0, ended_at=at)
            if reason in FAILED:
                end = RunEnd.OUT_OF_TIME if reason == OUT_OF_TIME else RunEnd.EXITED
                return RunEnded(*key, end, 1, f"{reason}: {message}", ended_at=at)
        return None


def may_be_made_anew(record: JobRecord | None, kind: str, registry: RunRegistry) -> bool:
    """Whether the object of a job may be missing, or be another one, because of what Starburst did."""
    if record is None or record.attempt == 0:
        return False
    if any(key[0] == record.id for key in registry.known()):
        return True
    is_starting = record.phase is Phase.STARTING and record.site is Site.CLUSTER
    if record.attempt > 1 and is_starting:  # its start is repeated, and may have got half-way
        return True
    if kind != "Pod":
        return False
    # A run here has a Pod, and a job that only ran in the cloud has kept its own.
    runs_here = record.phase in (Phase.STARTING, Phase.RUNNING) and record.site is Site.CLUSTER
    return not (runs_here or (record.site is Site.CLOUD and record.attempt == 1))


def _is_about(event: Object, kind: str, uid: str) -> bool:
    about = event.get("involvedObject") or {}
    return about.get("kind") == kind and (not uid or about.get("uid") == uid)
