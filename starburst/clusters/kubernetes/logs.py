"""Logs of pods: read while the pods exist, and copied to files when they are deleted."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, ClassVar, NamedTuple

import structlog

from starburst.clusters.kubernetes.manifest import is_managed, namespace_of
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.job import Adopted, Workload
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.pods.outcome import OVER
from starburst.kube.resources import PODS, Object
from starburst.runs.attempt_dir import AttemptDir
from starburst.runs.supervisor.line_times import EVERY_S, NAME, note_time

log = structlog.get_logger()

#: Bytes kept of a log: its end.
KEPT_BYTES = 16 * 1024**2
#: How often a log is asked for anew that broke off, and wall seconds between.
TRIES = 5
PAUSE_S = 1.0
LONGEST_LINE = 2**16
#: What a kubelet writes into the stream of a removed container, in place of its log or after it.
_KUBELETS = re.compile(
    rb"(rpc error: code = NotFound desc = "
    rb"|unable to retrieve container logs for "
    rb"|failed to try resolving symlinks in path ).*",
    re.DOTALL,
)
#: What it puts before each line if asked for times; the zone is UTC in practice, where it writes Z.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(?:Z|\+00:00) ")
#: Statuses of the server for a log that does not exist yet, or not any more.
_NO_LOG = (400, 404)


@dataclass(frozen=True, slots=True)
class PodLog:
    """The log of one task of one run, in its pod."""

    namespace: str
    pod: str
    #: The first one.
    container: str
    attempt: int
    rank: int
    #: A container that was restarted in place begins a new log.
    restarts: int
    #: Nothing is added any more.
    over: bool


class LogKeeper:
    """Copies logs of pods that are about to be deleted to the files that `starburst logs` reads."""

    #: Files that are being written: a stop that is repeated does not write them twice at once.
    _busy: ClassVar[set[Path]] = set()

    def __init__(self, api: Api, root: Path, *, limit: int = KEPT_BYTES) -> None:
        """`root` is where the runs of the cluster have their directories (see `AttemptDir`)."""
        self._api = api
        self._root = root
        self._limit = limit

    async def keep(self, namespace: str, pod: str, path: Path) -> None:
        """Follow a pod's log into `path`, <job>/<attempt>/<rank>/log below the root, until it ends.

        Never fails: what cannot be kept is noted and given up.
        """
        target = self._root / path
        if target in self._busy:
            return
        self._busy.add(target)
        try:
            for left in reversed(range(TRIES)):
                try:
                    await self._copy(namespace, pod, target)
                    return
                except ApiUnreachableError:
                    if not left:
                        raise
                    await asyncio.sleep(PAUSE_S)
        except (ApiError, ApiUnreachableError, OSError) as error:
            if not (isinstance(error, ApiError) and error.status in _NO_LOG):
                log.warning("log-not-kept", pod=f"{namespace}/{pod}", error=str(error))
        finally:
            self._busy.discard(target)

    async def _copy(self, namespace: str, pod: str, target: Path) -> None:
        """The whole log, from its beginning; a copy from before is replaced once there is a first piece."""
        item = await self._api.get(PODS, namespace, pod)
        container = item["spec"]["containers"][0]["name"]
        file: _TailFile | None = None
        try:
            async for line in _written(self._api, namespace, pod, container, follow=True, timed=True):
                if file is None:
                    file = _TailFile(_directory(target), self._limit)
                file.write(line)
        finally:
            if file is not None:
                file.close()


def _directory(target: Path) -> Path:
    """Make the directory of a log; the run is marked as ended, and as one that ran on Kubernetes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    attempt = AttemptDir(target.parents[1])
    attempt.settle(RunEnded(*attempt.key, RunEnd.STOPPED, message="ran on Kubernetes"))
    return target


class _TailFile:
    """A file that keeps the last `limit` bytes written to it, from the beginning of a line on."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file: IO[bytes] = path.open("wb", buffering=0)
        self._size = 0
        #: Offsets and times of lines, one a second.
        self._times: list[tuple[int, float]] = []

    def write(self, piece: PodLine) -> None:
        """Add to the end."""
        if piece.at is not None and not (self._times and piece.at < self._times[-1][1] + EVERY_S):
            self._times.append((self._size, piece.at))
        self._file.write(piece.text)
        self._size += len(piece.text)
        if self._size > 2 * self._limit:
            self._shorten()

    def close(self) -> None:
        """Shorten the file for the last time, and close it."""
        if self._size > self._limit:
            self._shorten()
        self._file.close()
        for offset, at in self._times:
            note_time(str(self._path.with_name(NAME)), offset, at)

    def _shorten(self) -> None:
        self._file.close()
        with self._path.open("rb") as whole:
            whole.seek(-self._limit - 1, os.SEEK_END)
            end = whole.read()
        end = end[end.find(b"\n") + 1 :][-self._limit :]
        staging = self._path.with_name("log.new")
        staging.write_bytes(end)
        staging.replace(self._path)
        self._file = self._path.open("ab", buffering=0)
        cut, self._size = self._size - len(end), len(end)
        self._times = [(max(0, offset - cut), at) for offset, at in self._times]


async def find_pod_logs(
    api: Api, job_id: str, workload: Workload, *, default_namespace: str, current: int | None
) -> list[PodLog]:
    """Logs of the pods that a job has now, of any run; `current` is its run, if that is on the cluster.

    Raises:
        ApiError: the server says no.
        UnreachableError: it does not answer.
    """
    namespace = namespace_of(workload, default_namespace)
    adopted = workload.adopted
    if adopted is None or is_managed(workload):
        items = await api.list(PODS, namespace, f"{names.JOB}={job_id}")
    elif adopted.kind == "Pod":
        found = await api.find(PODS, namespace, adopted.name)
        items = [] if found is None else [found]
    else:
        listed = await api.list(PODS, namespace, f"job-name={adopted.name}")
        items = [item for item in listed if _is_of(item, adopted)]
    return pod_logs(items, current)


def pod_logs(items: Iterable[Object], current: int | None) -> list[PodLog]:
    """Of pods as the server shows them, by run, rank and age; those that are not bound have written nothing.

    Pods of adopted Jobs are not marked with their run: it is the `current` one.
    """
    found: list[PodLog] = []
    for item in sorted(items, key=_age):
        metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
        annotations = metadata.get("annotations") or {}
        attempt = int(annotations.get(names.ATTEMPT, current or 0))
        if not attempt or not spec.get("nodeName"):
            continue
        container = spec["containers"][0]["name"]
        statuses = {each["name"]: each for each in status.get("containerStatuses") or ()}
        others = sum(log.attempt == attempt for log in found)
        found.append(
            PodLog(
                namespace=metadata["namespace"],
                pod=metadata["name"],
                container=container,
                attempt=attempt,
                rank=int(annotations.get(names.RANK, others)),
                restarts=statuses.get(container, {}).get("restartCount", 0),
                over=status.get("phase") in OVER,
            )
        )
    return sorted(found, key=lambda log: (log.attempt, log.rank))


def _age(item: Object) -> tuple[str, str]:
    return item["metadata"].get("creationTimestamp", ""), item["metadata"]["name"]


def _is_of(item: Object, adopted: Adopted) -> bool:
    owners = item["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == adopted.uid for owner in owners)


class PodLine(NamedTuple):
    """A line of a container's output, or a part of a long one."""

    text: bytes
    #: When it was written, epoch seconds; None if that was not asked for, or is unknown.
    at: float | None


async def lines(
    api: Api, source: PodLog, *, skip: int, follow: bool, timed: bool = False
) -> AsyncIterator[PodLine]:
    """Lines after the first `skip` bytes, the last maybe half; `follow` goes on until the container ends.

    Raises:
        ApiError: the server says no, other than that there is no log yet, or no pod any more.
        UnreachableError: the stream broke off.
    """
    written = _written(api, source.namespace, source.pod, source.container, follow=follow, timed=timed)
    try:
        async for line, at in written:
            passed, skip = line[skip:], max(0, skip - len(line))
            if passed:
                yield PodLine(passed, at)
    except ApiError as error:
        if error.status not in _NO_LOG:
            raise


async def _written(
    api: Api, namespace: str, pod: str, container: str, *, follow: bool, timed: bool
) -> AsyncIterator[PodLine]:
    """The output of a container, by lines; very long ones in parts."""
    query = {"container": container, **({"timestamps": "true"} if timed else {})}
    rest, at, begins = b"", None, True
    async for piece in api.log(namespace, pod, follow=follow, query=query):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            text, at = _split_time(line) if timed and begins else (line, at)
            yield PodLine(text + b"\n", at)
            begins = True
        if len(rest) > LONGEST_LINE:
            rest, at = _split_time(rest) if timed and begins else (rest, at)
            yield PodLine(rest, at)
            rest, begins = b"", False
    rest = _KUBELETS.sub(b"", rest)
    rest, at = _split_time(rest) if timed and begins else (rest, at)
    if rest:
        yield PodLine(rest, at)


def _split_time(line: bytes) -> tuple[bytes, float | None]:
    """A line without the time that the kubelet put before it, and that time."""
    found = _STAMP.match(line)
    if found is None:
        return line, None
    whole, fraction = found.groups()
    try:
        at = datetime.strptime(whole.decode(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:  # it is a part of what the container wrote
        return line, None
    return line[found.end() :], at.timestamp() + float(fraction or b"0")
