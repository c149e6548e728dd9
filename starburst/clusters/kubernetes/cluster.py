"""Kubernetes as the on-prem cluster: runs are Jobs that Chakra binds, capacity is what the server says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

import structlog

from starburst.aio import Backoff, TaskSet, first_of, retry
from starburst.clusters.kubernetes.adoption.adoption import Adoption
from starburst.clusters.kubernetes.adoption.offload_rights import OffloadRights
from starburst.clusters.kubernetes.leadership import Leadership, take_part
from starburst.clusters.kubernetes.manifest import namespace_of, restarts_in_place
from starburst.clusters.kubernetes.object_writer import ObjectWriter
from starburst.clusters.kubernetes.options import ClusterOptions
from starburst.clusters.kubernetes.runs.complaints import COMPONENT, Complaint, complaint
from starburst.clusters.kubernetes.runs.end_times import EndTimes
from starburst.clusters.kubernetes.runs.fresh_looks import fresh_look
from starburst.clusters.kubernetes.runs.identity import RunIdentity, RunKey
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.stalls import RunSurroundings
from starburst.clusters.kubernetes.runs.sweeper import Sweeper, SweptCluster
from starburst.clusters.kubernetes.runs.vanished import Vanished
from starburst.clusters.kubernetes.status_writer import StatusWriter
from starburst.clusters.kubernetes.volume_rules import job_claims
from starburst.clusters.kubernetes.watcher import ClusterWatcher
from starburst.core.model.events import Event, RunEnd, SiteSynced, VolumesRuled
from starburst.core.state import Changes
from starburst.domain.job import Submission
from starburst.kube.access import READ_CLAIMS, READ_JOBS
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.features import Features, detect
from starburst.kube.operator_kinds import kinds_served
from starburst.kube.recorder import Recorder, reference_to
from starburst.kube.reviews import may
from starburst.runs.ports import AdoptionPort, Report, Run

T = TypeVar("T")

log = structlog.get_logger()

#: Wall seconds between looks for operators that were installed meanwhile.
LOOK_FOR_KINDS_S = 60.0
#: Wall seconds between tries to reach the server at the start: the first pause and the longest.
PAUSE_S, LONGEST_PAUSE_S = 2.0, 30.0
#: Statuses of a server that is only about to come up, or has too much to do.
NOT_NOW = (429, 500, 502, 503, 504)


class KubernetesCluster:
    """A `Cluster` of a Kubernetes. Its memory is a cache: a restart reads everything from the API server.

    Where the account may read the Jobs of all namespaces, one watch covers them, and a Job with a queue's
    label is adopted from any. Else Jobs are watched in the namespaces of the config, and in those of known
    runs and adopted jobs; a run that starts in another namespace adds it.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Api]], desk: AdoptionPort, options: ClusterOptions
    ) -> None:
        self._connect = connect
        self._desk = desk
        self._options = options
        self._tasks = TaskSet()
        self._connecting: asyncio.Task[tuple[Api, Features, Leadership | None]] | None = None
        self._election = TaskSet()
        #: Reports from before `watch` was called.
        self._early: list[Event] = []
        self._report: Report = self._early.append
        identity = RunIdentity(desk, options.controller, options.tenancy.namespace)
        self._end_times = EndTimes(options.clock, options.scheduler_time)
        self._registry = RunRegistry(identity, self._restarts, self._end_times)
        self._writer = ObjectWriter(desk, self._registry, options, self._tell, self._follow)
        self._watcher: ClusterWatcher | None = None
        self._listed = False
        #: Namespaces in which runs were started by this process.
        self._namespaces: set[str] = set()
        #: The reasons of placements whose runs have not been started yet, by job.
        self._placements: dict[str, str] = {}

    def _tell(self, event: Event) -> None:
        self._report(event)

    def _told_by_watch(self, event: Event) -> None:
        if isinstance(event, SiteSynced):
            self._listed = True
            for end in self._registry.vanished(event.known):
                self._report(end)
        self._report(event)

    def _follow(self, namespace: str) -> None:
        self._namespaces.add(namespace)
        if self._watcher is not None:
            self._watcher.watch_jobs(namespace)

    async def start(self, run: Run) -> None:
        """See `RunSite`."""
        api, features = await self._server()
        await self._writer.start(api, features, run, self._placements.get(run.job.id, ""))
        self._placements.pop(run.job.id, None)

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """See `RunSite`."""
        self._placements.pop(job_id, None)
        await self._end((job_id, attempt), RunEnd.STOPPED, grace_s)

    async def _end(self, key: RunKey, how: RunEnd, grace_s: float, why: str = "") -> None:
        api, features = await self._server()
        await self._writer.end(api, features, key, how, grace_s, why=why)

    async def _displace(self, key: RunKey, how: RunEnd, why: str) -> None:
        record = self._desk.record(key[0])
        await self._end(key, how, 0.0 if record is None else record.job.grace_s, why)

    def _swept(self, api: Api, status_writer: StatusWriter) -> SweptCluster:
        def surroundings(said: Complaint | None) -> RunSurroundings:
            assert self._watcher is not None
            limits, now = self._options.limits, self._options.clock()
            return RunSurroundings(limits, self._watcher.node, now, said)

        return SweptCluster(
            end=self._displace,
            relabel=partial(self._writer.relabel, api),
            clear=partial(self._writer.clear, api),
            surroundings=surroundings,
            again=partial(fresh_look, api),
            complaint=lambda view: complaint(api, reference_to(view), not_by=COMPONENT),
            suspended=status_writer.is_suspended,
            report=self._tell,
        )

    def _restarts(self, job_id: str) -> bool:
        workload = self._desk.workload(job_id)
        return workload is not None and restarts_in_place(workload)

    async def watch(self, report: Report) -> None:
        """See `RunSite`."""
        self._report = report
        for event in self._early:
            report(event)
        self._early.clear()
        api, features = await self._reached()
        self._listed = False
        self._registry.begin_anew()  # a shortage may have ended an earlier watch, which saw what is gone now
        recorder = Recorder(api, COMPONENT)
        status_writer = StatusWriter(api, features, self._desk, self._registry, recorder)
        rights = OffloadRights(api, self._desk, report)
        adoption = Adoption(
            api,
            self._desk,
            recorder=recorder,
            found=status_writer.found,
            lost=lambda job_id: watcher.lost(job_id),  # noqa: PLW0108 - made below
            rights=rights,
            options=self._options,
        )
        sweeper = Sweeper(self._desk, self._registry, self._swept(api, status_writer))
        watcher = ClusterWatcher(
            api,
            desk=self._desk,
            registry=self._registry,
            status_writer=status_writer,
            adoption=adoption,
            sweeper=sweeper,
            vanished=Vanished(api, self._writer.object_of, self._end_times, self._tell),
            report=self._told_by_watch,
        )
        try:
            namespaces = await self._job_namespaces(api)
            for namespace in namespaces:
                watcher.watch_jobs(namespace)
            await _watch_kinds(api, watcher, namespaces)
            self._watcher = watcher
            for job_id in self._desk.claiming():
                submission = self._desk.submission(job_id)
                if submission is not None:
                    self._claims(job_id, submission)
            parts = {
                "watches": watcher.run(),
                "kinds": _look_for_kinds(api, watcher, namespaces),
                "status": status_writer.run(),
                "adoption": adoption.run(),
                "events": recorder.run(),
                "sweeper": sweeper.run(),
                "offload rights": rights.run(),
                "lease": self._election.until_failure(),
            }
            await first_of(parts)  # none ends by itself: until one fails or we are cancelled
        finally:
            self._watcher = None
            await watcher.close()
            await self._writer.close()
            await self._election.cancel()  # nothing is written any more: another Starburst may begin
            await api.close()
            self._connecting = None

    def newest(self, job_id: str) -> int | None:
        """See `RunSite`. Before the first listing nothing was seen."""
        if not self._listed and self._desk.may_lack_runs():
            return None
        return self._registry.newest(job_id)

    def nudge(self) -> None:
        """See `RunSite`. Watches report changes at once."""

    def judged(self, submissions: Mapping[str, Submission]) -> Sequence[Event]:
        """See `Cluster`."""
        return [
            rule for job_id, each in submissions.items() if (rule := self._claims(job_id, each)) is not None
        ]

    def _claims(self, job_id: str, submission: Submission) -> VolumesRuled | None:
        """Follow the claims of a job, if it has any; returns what they demand now."""
        watcher = self._watcher
        claims = job_claims(submission, namespace_of(submission.workload, self._options.tenancy.namespace))
        if watcher is None or claims is None:
            return None
        watcher.watch_jobs(claims.namespace)
        return watcher.volumes.add(job_id, claims)

    def told(self, changes: Changes) -> None:
        """See `Cluster`."""
        for decision in changes.decisions:
            if decision.kind == "placed":
                self._placements[decision.subject] = decision.reason
        if self._watcher is not None:
            self._watcher.told(changes)

    async def _job_namespaces(self, api: Api) -> set[str]:
        """Where Jobs are watched; "" is all namespaces."""

        async def may_all() -> bool:
            return all([await may(api, each) for each in (*READ_JOBS, *READ_CLAIMS)])

        try:
            if await _answered(may_all):
                return {""}
        except ApiError as error:
            log.warning("rights-unknown", error=str(error))
        namespaces = {*self._options.tenancy.all_namespaces(), *self._namespaces}
        namespaces.update(adopted.namespace for adopted in self._desk.adopted().values())
        for job_id in self._desk.on_cluster():
            workload = self._desk.workload(job_id)
            if workload is not None:
                namespaces.add(namespace_of(workload, self._options.tenancy.namespace))
        return namespaces

    async def _reached(self) -> tuple[Api, Features]:
        """The server, once it answers; at the start it may not be up yet."""
        return await _answered(self._server)

    async def _server(self) -> tuple[Api, Features]:
        """The server, connected to once, as soon as this Starburst may write to it.

        A failed try to connect is made again by the next call.
        """
        connecting = self._connecting
        if connecting is None or (
            connecting.done() and (connecting.cancelled() or connecting.exception() is not None)
        ):
            connecting = self._connecting = self._tasks.ensure("connect", self._first_contact)
        api, features, leadership = await asyncio.shield(connecting)
        if leadership is not None:
            await leadership.led()
        return api, features

    async def _first_contact(self) -> tuple[Api, Features, Leadership | None]:
        api = await self._connect()
        try:
            features = await detect(api)
            leadership = None
            if self._options.lease is not None:
                leadership = await take_part(api, self._connect, self._options.lease)
        except BaseException:
            await api.close()
            raise
        if leadership is not None:
            self._election.ensure("lease", leadership.run)
        return api, features, leadership


async def _answered(ask: Callable[[], Awaitable[T]]) -> T:
    """The server's answer once it gives one: it is asked with growing pauses. Raises ApiError: a refusal."""

    def heard(error: Exception) -> None:
        if isinstance(error, ApiUnreachableError):
            log.warning("cluster-unreachable", error=str(error))
        elif isinstance(error, ApiError) and error.status in NOT_NOW:
            log.warning("cluster-not-ready", error=str(error))
        else:
            raise error

    return await retry(ask, Backoff(PAUSE_S, LONGEST_PAUSE_S), heard)


async def _look_for_kinds(api: Api, watcher: ClusterWatcher, namespaces: Collection[str]) -> None:
    while True:
        await asyncio.sleep(LOOK_FOR_KINDS_S)
        await _watch_kinds(api, watcher, namespaces)


async def _watch_kinds(api: Api, watcher: ClusterWatcher, namespaces: Collection[str]) -> None:
    """Watch the kinds of operators that are there by now, in each of the namespaces."""
    for namespace in namespaces:
        for kind in await kinds_served(api, namespace):
            watcher.watch_kind(kind, namespace)
