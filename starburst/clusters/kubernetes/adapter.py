"""Kubernetes as the on-prem cluster: runs are Jobs that Chakra binds, capacity is what the server says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import structlog

from starburst.clusters.kubernetes.adoption import Adoption, Read
from starburst.clusters.kubernetes.leave_rights import Leaving
from starburst.clusters.kubernetes.manifest import restarts_in_place
from starburst.clusters.kubernetes.object_writer import Orders, Reporting
from starburst.clusters.kubernetes.runs import RunBook, RunKey
from starburst.clusters.kubernetes.status_writer import Mirror
from starburst.clusters.kubernetes.stuck import Limits
from starburst.clusters.kubernetes.watcher import Watcher
from starburst.core.model.events import Event, RunEnd
from starburst.core.state import Changes
from starburst.kube.api import Api, ApiError, UnreachableError
from starburst.kube.features import Features, detect
from starburst.kube.recorder import Recorder
from starburst.runs.ports import AdoptionPort, Report, Run
from translator.manifests.tenancy import Tenancy

log = structlog.get_logger()

#: Wall seconds between tries to reach the server at the start.
PAUSE_S = 2.0
#: Statuses of a server that is only about to come up, or has too much to do.
NOT_NOW = (429, 500, 502, 503, 504)


class KubernetesCluster:
    """A `Cluster` of a Kubernetes. All that it remembers can be read anew from the API server.

    `controller` names this scheduler's store: objects of other schedulers are other people's. `tenancy` says
    what submitted jobs may, where they go, and in which volume each is given a directory of its own. A run
    that cannot use its place is taken back when its `limits` are over. Logs of runs that are ended early are
    kept below `logs`. `read` reads objects that users put there; `reporting` is what runs are told of where
    to say how far they are.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Api]],
        *,
        desk: AdoptionPort,
        controller: str,
        tenancy: Tenancy,
        limits: Limits,
        logs: Path,
        read: Read,
        queues: Collection[str] = (),
        reporting: Reporting = lambda _run: {},
    ) -> None:
        self._connect = connect
        self._desk = desk
        self._controller = controller
        self._limits = limits
        self._read = read
        self._queues = queues
        self._connecting: asyncio.Task[tuple[Api, Features]] | None = None
        #: Reports from before anybody watched.
        self._early: list[Event] = []
        self._report: Report = self._early.append
        self._book = RunBook(controller, self._restarts)
        self._orders = Orders(
            desk=desk,
            book=self._book,
            controller=controller,
            tenancy=tenancy,
            logs=logs,
            report=self._tell,
            reporting=reporting,
        )
        self._watcher: Watcher | None = None
        #: Why each job that is about to start was placed where it was.
        self._placings: dict[str, str] = {}

    def _tell(self, event: Event) -> None:
        self._report(event)

    async def start(self, run: Run) -> None:
        """See `RunSite`."""
        api, features = await self._server()
        await self._orders.start(api, features, run, self._placings.get(run.job.id, ""))
        self._placings.pop(run.job.id, None)

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """See `RunSite`."""
        self._placings.pop(job_id, None)
        await self._end((job_id, attempt), RunEnd.STOPPED, grace_s)

    async def _end(self, key: RunKey, how: RunEnd, grace_s: float, why: str = "") -> None:
        api, features = await self._server()
        await self._orders.end(api, features, key, how, grace_s, why=why)

    async def _displace(self, key: RunKey, how: RunEnd, why: str) -> None:
        record = self._desk.record(key[0])
        await self._end(key, how, 0.0 if record is None else record.job.grace_s, why)

    def _restarts(self, job_id: str) -> bool:
        submission = self._desk.submission(job_id)
        return submission is not None and restarts_in_place(submission.workload)

    async def watch(self, report: Report) -> None:
        """See `RunSite`."""
        self._report = report
        for event in self._early:
            report(event)
        self._early.clear()
        api, features = await self._reached()
        recorder = Recorder(api, "starburst")
        mirror = Mirror(api, features, self._desk, self._book, recorder)
        leaving = Leaving(api, self._desk, report)
        self._watcher = Watcher(
            api,
            desk=self._desk,
            book=self._book,
            mirror=mirror,
            adoption=Adoption(
                api,
                self._desk,
                self._controller,
                recorder,
                found=mirror.found,
                leaving=leaving,
                read=self._read,
                queues=self._queues,
            ),
            leaving=leaving,
            recorder=recorder,
            report=report,
            displace=self._displace,
            limits=self._limits,
        )
        try:
            await self._watcher.run()
        finally:
            self._watcher = None
            await self._orders.close()
            await api.close()
            self._connecting = None

    def nudge(self) -> None:
        """See `RunSite`. Watches tell everything at once."""

    def told(self, changes: Changes) -> None:
        """See `Cluster`."""
        for decision in changes.decisions:
            if decision.kind == "placed":
                self._placings[decision.subject] = decision.reason
        if self._watcher is not None:
            self._watcher.told(changes)

    async def _reached(self) -> tuple[Api, Features]:
        """The server, once it answers: one that is not there yet is waited for."""
        while True:
            try:
                return await self._server()
            except UnreachableError as error:
                log.warning("cluster-unreachable", error=str(error))
            except ApiError as error:
                if error.status not in NOT_NOW:
                    raise
                log.warning("cluster-not-ready", error=str(error))
            await asyncio.sleep(PAUSE_S)

    async def _server(self) -> tuple[Api, Features]:
        """The server, connected to once; a failed try is made again by the next call."""
        connecting = self._connecting
        if connecting is None or (
            connecting.done() and (connecting.cancelled() or connecting.exception() is not None)
        ):
            connecting = self._connecting = asyncio.create_task(self._first_contact())
        return await asyncio.shield(connecting)

    async def _first_contact(self) -> tuple[Api, Features]:
        api = await self._connect()
        try:
            return api, await detect(api)
        except BaseException:
            await api.close()
            raise
