"""Values that runs take from ConfigMaps and Secrets of the cluster: in memory and on their machines only.

A manifest that takes any is journaled as its user wrote it. Once a machine says that it does not know a task
yet, the cluster is read; the next exchange brings the task's spec with the values filled in. Values of
Secrets are kept apart from the rest, so that the machine keeps them in no file once the task has begun. What
was read is dropped when every machine of the run knows its task.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import cast

import structlog

from starburst.aio import TaskSet
from starburst.clouds.sky.agent.protocol import TaskSpec
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.runs.docker import runs_in_container
from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.clouds.sky.runs.inputs import ValueSource
from starburst.clouds.sky.runs.spec import filled
from starburst.domain.job import Workload
from translator.tasks.runtime_values import (
    NotNowError,
    ReferencedData,
    TaskHost,
    UnresolvedError,
    evaluate,
    has_logins,
    is_late,
)

log = structlog.get_logger()

#: Wall seconds between attempts to read the cluster.
RETRY_S = 5.0


def manifest_to_keep(workload: Workload, source: ValueSource | None) -> str | None:
    """The manifest to journal with a run; None if it takes no values from the cluster.

    Raises:
        UnresolvedError: there is no cluster to read them from.
    """
    if workload.manifest is None:
        return None
    manifest = json.loads(workload.manifest)
    wants_logins = source is not None and runs_in_container(workload) and has_logins(manifest)
    if not is_late(manifest) and not wants_logins:
        return None
    if source is None:
        raise UnresolvedError("it takes values from a Kubernetes cluster, and the config names none")
    return workload.manifest


class ValueReader:
    """The values of all runs of one controller. `give_up` ends a run whose values are not to be had."""

    def __init__(
        self, source: ValueSource | None, tasks: TaskSet, give_up: Callable[[RunEntry, str], None]
    ) -> None:
        self._source = source
        self._tasks = tasks
        self._give_up = give_up
        self._found: dict[tuple[str, int], ReferencedData] = {}

    def spec(self, entry: RunEntry, rank: RankEntry, machine: RentedMachine) -> TaskSpec | None:
        """The spec of a task with its values; None until they are read and the machine has answered once."""
        found = self._found.get(entry.key)
        if found is None or entry.late is None or rank.node not in machine.hosts:
            return None
        host, address = machine.hosts[rank.node]
        here = TaskHost(entry.number(rank), address, host)
        try:
            return filled(cast("TaskSpec", rank.spec), evaluate(json.loads(entry.late), found, here))
        except UnresolvedError as error:
            self._give_up(entry, str(error))
            return None

    def read(self, entry: RunEntry) -> None:
        """Begin to read the values of a run, unless they are known; returns at once."""
        if entry.stop is None and entry.key not in self._found:
            self._tasks.ensure(("values", entry.key), partial(self._read, entry))

    def drop(self, entry: RunEntry) -> None:
        """Forget the values of a run."""
        self._found.pop(entry.key, None)

    async def _read(self, entry: RunEntry) -> None:
        assert self._source is not None
        assert entry.late is not None
        try:
            self._found[entry.key] = await self._source(entry.late)
        except NotNowError as error:
            log.warning("values-not-read", job=entry.job, error=str(error))
            await asyncio.sleep(RETRY_S)
        except UnresolvedError as error:
            self._give_up(entry, str(error))
