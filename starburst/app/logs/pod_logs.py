"""What a job wrote on a Kubernetes cluster: of pods while they are there, else what was kept of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starburst.aio import TaskSet
from starburst.app.config.home import Home
from starburst.app.config.sites import KubernetesConfig
from starburst.app.errors import UserError
from starburst.app.logs.sites import LogFile, LogPart, LogPosition, LogWriter, find_logs
from starburst.app.wiring.kube_client import connect
from starburst.app.wiring.stored import stored_config
from starburst.clusters.kubernetes.logs import PodLog, find_pod_logs, lines
from starburst.domain.job import Site, Submission, is_over
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store

#: Wall seconds between looks for new pods and for the end of the job.
POLL_S = 1.0
#: How long streams of a job that is over may take to end by themselves.
DRAIN_S = 5.0

#: Receives the next line, or "" after the first look, and when the line was written, epoch seconds.
LineWriter = Callable[[str, float | None], Awaitable[None]]


async def read_pods(
    store: Store,
    home: Home,
    job_id: str,
    part: LogPart,
    write: LogWriter,
    *,
    follow: bool,
    note: Callable[[str], None],
    position: LogPosition,
) -> bool:
    """Write what a job wrote, with `follow` until it is over; whether there was any log.

    `position` is where it begins, and what is written is always behind it.

    Raises:
        UserError: the cluster cannot be asked, and nothing was kept.
    """
    cluster, submission = stored_config(store).cluster, store.submission(job_id)
    assert isinstance(cluster, KubernetesConfig)
    assert submission is not None
    try:
        api = await connect(cluster)
    except KubeCredentialsError as error:
        raise UserError(str(error)) from None
    pace = queries.pace(store)

    async def show(line: str, at: float | None) -> None:
        shown = part.show(line, at, pace) if line else ""
        if shown or not line:
            await write(shown)

    reader = _Reader(
        api,
        home,
        cluster.namespace,
        submission,
        part,
        write=show,
        note=note,
        position=position,
    )
    try:
        while True:
            row = await asyncio.to_thread(queries.job, store, job_id)
            # Asked before reading, so that nothing written before the end is missed.
            final = not follow or is_over(row.phase)
            await reader.look(row, final=final)
            if final:
                return bool(reader.ranks)
            await reader.begun()
            await asyncio.sleep(POLL_S)
    except ApiError as error:
        raise UserError(f"{api.host}: {error}; see what is amiss with: starburst doctor") from None
    finally:
        await reader.close()
        await api.close()


class _Reader:
    """Writes each byte of each log once, whichever way it comes: from a pod, or from a file that was kept."""

    def __init__(
        self,
        api: Api,
        home: Home,
        namespace: str,
        submission: Submission,
        part: LogPart,
        *,
        write: LineWriter,
        note: Callable[[str], None],
        position: LogPosition,
    ) -> None:
        self.ranks: set[int] = set()
        self._api = api
        self._home = home
        self._namespace = namespace
        self._submission = submission
        self._timed = part.is_timed
        self._attempt = part.attempt
        self._rank = part.rank
        self._write = write
        self._note = note
        self._gang = part.rank is None and len(submission.job.tasks) > 1
        #: Bytes written of each pod's log; what was written of its last pod was written of a task.
        self._position = position
        #: Lock of the writer, which also advances the position.
        self._turn = asyncio.Lock()
        self._silent = True
        self._tasks = TaskSet()
        self._streams: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._files: dict[tuple[int, int], LogFile] = {}
        self._noted = False

    async def close(self) -> None:
        """Stop streaming."""
        await self._tasks.cancel()

    async def begun(self) -> None:
        """Report the position after the first look, if no line did."""
        async with self._turn:
            if self._silent:
                await self._write("", None)
                self._silent = False

    async def look(self, row: JobRow, *, final: bool) -> None:
        """Write what is new; unless `final`, what comes next is written as it comes."""
        if final and self._streams:
            await asyncio.wait(self._streams.values(), timeout=DRAIN_S)
            await self.close()
            self._streams.clear()
        pods = await self._find_pods(row)
        kept = find_logs(self._home, row.id)
        runs = [*(pod.attempt for pod in pods), *(log.attempt for log in kept)]
        if self._position.since is None:  # the last run there is, or any that will be
            self._position.since = max(runs, default=0)
        since = self._position.since
        wanted = [
            pod
            for pod in pods
            if pod.attempt == self._attempt or (not self._attempt and pod.attempt >= since)
        ]
        chosen = [pod for pod in wanted if self._rank in (None, pod.rank)]
        for pod in chosen:
            self.ranks.add(pod.rank)
            await self._read(pod, final=final)
        alive = {(pod.attempt, pod.rank) for pod in chosen}
        for log in find_logs(self._home, row.id, self._attempt, self._rank, since=since):
            self.ranks.add(log.rank)
            # A pod may be there still, and its log no more.
            if final or (log.attempt, log.rank) not in alive:
                await self._read_file(log, final=final)

    async def _find_pods(self, row: JobRow) -> list[PodLog]:
        try:
            return await find_pod_logs(
                self._api,
                row.id,
                self._submission.workload,
                default_namespace=self._namespace,
                current=row.attempt if row.site == Site.CLUSTER.value else None,
            )
        except ApiUnreachableError:
            if not self.ranks and not find_logs(self._home, row.id, self._attempt, self._rank):
                raise UserError(f"{self._away()}; see what is amiss with: starburst doctor") from None
            if not self._noted:
                self._note(f"{self._away()}; this is what was kept of it")
                self._noted = True
            return []

    def _away(self) -> str:
        return f"the API server at {self._api.host} does not answer"

    async def _read(self, pod: PodLog, *, final: bool) -> None:
        key = pod.pod, pod.restarts
        stream = self._streams.get(key)
        if stream is not None and stream.done():
            stream.result()
            if not pod.over:
                stream = None  # it broke off, or had not begun
        if stream is None and final:
            await self._stream(pod, follow=False)
        elif stream is None:
            self._streams[key] = self._tasks.ensure(key, lambda: self._stream(pod, follow=True))

    async def _stream(self, pod: PodLog, *, follow: bool) -> None:
        of_pod, of_task = f"{pod.pod}/{pod.restarts}", f"{pod.attempt}.{pod.rank}"
        read = self._position.read.get(of_pod, 0)
        try:
            async for line, at in lines(self._api, pod, skip=read, follow=follow, timed=self._timed):
                read += len(line)
                text = line.decode(errors="replace")
                await self._tell(pod.rank, text, at, {of_pod: read, of_task: read})
        except ApiUnreachableError:
            if not follow:
                raise UserError(f"{self._away()} any more; what it wrote is not whole") from None

    async def _read_file(self, log: LogFile, *, final: bool) -> None:
        key = log.attempt, log.rank
        known = self._files.get(key)
        if known is None:
            known = self._files[key] = log
            known.offset = self._position.read.get(log.name, 0)
        times = known.times() if self._timed else None
        for line in known.new_lines(final=final):
            at = None if times is None else times.at(known.line_start)
            await self._tell(log.rank, line, at, {log.name: known.offset})

    async def _tell(self, rank: int, line: str, at: float | None, reached: Mapping[str, int]) -> None:
        """Write a line, behind which so many bytes are read: the position is never ahead of that."""
        async with self._turn:
            read = self._position.read
            before = {name: read.get(name, 0) for name in reached}
            read.update(reached)
            try:
                await self._write(f"[{rank}] {line}" if self._gang else line, at)
            except asyncio.CancelledError:
                read.update(before)
                raise
            self._silent = False
