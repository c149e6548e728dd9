"""Values that runs take from the cluster's ConfigMaps and Secrets: in memory, and on their machines, only.

A manifest that takes any is noted as its user wrote it. Once a machine says that it does not know a task yet,
the cluster is read; the next exchange brings the task's spec with what was found filled in, the values of
Secrets apart from the rest, so that the machine keeps them in no file once the task has begun. What was read
is dropped when every machine of the run knows its task.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from starburst.clouds.sky.journal import RankNote, RunNote
from starburst.clouds.sky.runs.spec import filled
from starburst.domain.job import Workload
from starburst.runs.ports import Run
from starburst.runs.tasks import TaskSet
from translator.tasks.runtime_values import (
    NotNowError,
    ReferencedData,
    TaskHost,
    UnresolvedError,
    evaluate,
    is_late,
)

log = structlog.get_logger()

#: Reads what a manifest (JSON) refers to. Raises NotNowError, UnresolvedError.
Source = Callable[[str], Awaitable[ReferencedData]]

#: Whether a run may have what it takes from the cluster. Raises UnresolvedError.
Admit = Callable[[Run], None]

#: Wall seconds between tries to read the cluster.
RETRY_S = 5.0


def admit_all(_run: Run) -> None:
    """There is no cluster whose rights could be asked about."""


class LateValues:
    """Of all runs of one controller. `give_up` is told which run cannot have what it asks for, and why."""

    def __init__(
        self, source: Source | None, tasks: TaskSet, give_up: Callable[[RunNote, str], None]
    ) -> None:
        self._source = source
        self._tasks = tasks
        self._give_up = give_up
        self._found: dict[tuple[str, int], ReferencedData] = {}
        #: Address and host name of each machine that was heard of.
        self._machines: dict[str, tuple[str, str]] = {}

    def manifest(self, workload: Workload) -> str | None:
        """What is to be noted of a run; None if its values are all known.

        Raises:
            UnresolvedError: there is no cluster to read them from.
        """
        if workload.manifest is None or not is_late(json.loads(workload.manifest)):
            return None
        if self._source is None:
            raise UnresolvedError("it takes values from a Kubernetes cluster, and the config names none")
        return workload.manifest

    def spec(self, note: RunNote, rank: RankNote) -> dict[str, Any] | None:
        """What a machine is to be sent of a task that it does not know; None until that is known here."""
        found = self._found.get(note.key)
        if found is None or note.late is None or rank.where not in self._machines:
            return None
        here = TaskHost(note.number(rank), *self._machines[rank.where])
        try:
            return filled(rank.spec, evaluate(json.loads(note.late), found, here))
        except UnresolvedError as error:
            self._give_up(note, str(error))
            return None

    def heard(self, instance_id: str, address: str, host: str) -> None:
        """A machine answered."""
        self._machines[instance_id] = (address, host)

    def want(self, note: RunNote) -> None:
        """A machine does not know a task of this run: read what it needs, beside the exchanges."""
        if note.stop is None and note.key not in self._found:
            self._tasks.ensure(("values", note.key), partial(self._read, note))

    def drop(self, note: RunNote) -> None:
        """Nobody needs what was read for this run any more."""
        self._found.pop(note.key, None)

    async def _read(self, note: RunNote) -> None:
        assert self._source is not None
        assert note.late is not None
        try:
            self._found[note.key] = await self._source(note.late)
        except NotNowError as error:
            log.warning("values-not-read", job=note.job, error=str(error))
            await asyncio.sleep(RETRY_S)
        except UnresolvedError as error:
            self._give_up(note, str(error))
