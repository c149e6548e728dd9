"""Objects that leave a watch by label: whoever strips the label of a queue off ends no run by it.

To a watch that selects by a label, an object without it is gone. So the server is asked, and an object that
is there gets its label back. Of a Job that is gone, events may tell that it had ended before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from starburst.aio import TaskSet
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.clusters.kubernetes.runs.vanished import Vanished
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.objects import JobView, resource_of
from starburst.runs.ports import AdoptionPort

log = structlog.get_logger()

#: Wall seconds between tries when the server does not answer.
PAUSE_S = 2.0

Changed = Callable[[JobView | None, JobView | None], None]


class StrippedLabels:
    """Stands between those watches and who is told; `tasks` has who asks the server."""

    def __init__(
        self, api: Api, desk: AdoptionPort, registry: RunRegistry, vanished: Vanished, tasks: TaskSet
    ) -> None:
        self._api = api
        self._vanished = vanished
        self._desk = desk
        self._registry = registry
        self._tasks = tasks
        #: Objects that left a watch since the server was asked last, by uid.
        self._left: dict[str, JobView] = {}

    def told(self, changed: Changed, old: JobView | None, new: JobView | None) -> None:
        """An event of a watch, for `changed`: that an object is gone is told once the server says so."""
        if old is None or new is not None or not self._is_needed(old):
            changed(old, new)
            return
        uid = old.uid
        self._left[uid] = old
        self._tasks.ensure(("left", uid), lambda: self._look(uid, changed))

    def _is_needed(self, view: JobView) -> bool:
        """Whether it is of a run that goes on, so that it is not for its user to take it from its queue."""
        if view.deleting or view.end or not self._registry.is_ours(view):
            return False
        if names.ADOPTED in view.annotations:
            record = self._desk.record(view.labels.get(names.JOB) or adopted_id(view.name, view.uid))
            return record is not None and (record.alive or record.phase is Phase.OFFLOADING)
        unit = self._registry.get(self._registry.key_of(view) or ("", 0))
        return unit is not None and unit.stopping is None  # else Starburst deletes it

    async def _look(self, uid: str, changed: Changed) -> None:
        while (view := self._left.pop(uid, None)) is not None:
            if not await self._is_there(view):
                await self._ask_for_end(view)
                changed(view, None)

    async def _ask_for_end(self, view: JobView) -> None:
        """Have it known how a Job ended before it was deleted, if no watch saw that."""
        key = self._registry.key_of(view)
        end = await self._vanished.end(key, view.uid) if key is not None and view.operator is None else None
        if key is not None and end is not None:
            self._registry.ended_unseen(key, end)

    async def _is_there(self, view: JobView) -> bool:
        """Whether it is there, and has its label by now; without an answer nothing is decided."""
        resource, where = resource_of(view), f"{view.namespace}/{view.name}"
        while True:
            try:
                there = await self._api.find(resource, view.namespace, view.name)
                metadata = {} if there is None else there["metadata"]
                if metadata.get("uid") != view.uid or "deletionTimestamp" in metadata:
                    return False
                if names.QUEUE not in (metadata.get("labels") or {}):
                    log.warning("label-put-back", object=where, label=names.QUEUE)
                    labels = {names.QUEUE: view.labels[names.QUEUE]}
                    body = {"metadata": {"uid": view.uid, "labels": labels}}
                    await self._api.patch(resource, view.namespace, view.name, body)
            except (ApiError, ApiUnreachableError) as error:
                log.warning("left-unknown", object=where, error=str(error))
                await asyncio.sleep(PAUSE_S)
            else:
                return True
