"""Images of jobs that are pulled while their machines still come up (`boot_contact.py`).

What goes wrong with them is only logged: a task pulls its image itself when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import structlog

from starburst.clouds.sky.agent.protocol import ImageToPull, RegistryLogin
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.runs.docker import runs_in_container
from starburst.domain.job import Workload
from starburst.runs.ports import Run
from translator.tasks.containers.registry_logins import registry_of
from translator.tasks.containers.settings import settings_of
from translator.tasks.runtime_values import NotNowError, TaskHost, UnresolvedError, evaluate, has_logins

log = structlog.get_logger()


class ImagePrefetch:
    """The images that machines which come up are to pull. Kept in memory: it is a hint."""

    def __init__(self, context: SkyContext, machines: Mapping[str, RentedMachine]) -> None:
        self._context = context
        self._machines = machines
        #: By machine: runs whose images it has not been told of, and those of them that it is being told of.
        self._expected: dict[str, list[Run]] = {}
        self._asked: dict[str, list[Run]] = {}

    def expect(self, run: Run) -> None:
        """Note a run that will start on machines that come up; returns at once."""
        if not _is_pulled(run.workload):
            return
        for id_ in dict.fromkeys(slot.where for slot in run.slots):
            machine = self._machines.get(id_)
            if machine is not None and machine.is_coming_up:
                self._expected.setdefault(id_, []).append(run)

    async def expected(self, machine_id: str) -> list[ImageToPull]:
        """The images that a machine has not been told of, with the logins of all runs that need them."""
        runs = self._asked[machine_id] = list(self._expected.get(machine_id, ()))
        return await self._images(runs)

    def told(self, machine_id: str) -> None:
        """The machine was told of the images that were last asked for."""
        del self._expected[machine_id][: len(self._asked[machine_id])]

    def forget(self, machine_id: str) -> None:
        """Drop what is known of a machine that has come up: now its tasks pull."""
        self._expected.pop(machine_id, None)
        self._asked.pop(machine_id, None)

    async def _images(self, runs: list[Run]) -> list[ImageToPull]:
        """Each image once, with the logins of all runs that need it."""
        found: dict[str, ImageToPull] = {}
        for run in runs:
            image = run.workload.image or ""
            wanted = found.setdefault(image, {"image": image, "logins": []})
            wanted["logins"] += await self._logins(run, image)
        return list(found.values())

    async def _logins(self, run: Run, image: str) -> list[RegistryLogin]:
        """What `imagePullSecrets` of a run say; [] if they cannot be had now, or it may not use them."""
        source, text = self._context.inputs.source, run.workload.manifest
        if source is None or text is None or not has_logins(json.loads(text)):
            return []
        try:
            self._context.inputs.admit(run)
            values = evaluate(json.loads(text), await source(text), TaskHost(0, "", ""))
        except (NotNowError, UnresolvedError) as error:
            log.debug("logins-not-read", job=run.job.id, error=str(error))
            return []
        registry = registry_of(image)
        return [{"registry": registry, "username": user, "password": word} for user, word in values.logins]


def _is_pulled(workload: Workload) -> bool:
    if not runs_in_container(workload):
        return False
    manifest = workload.manifest
    return manifest is None or settings_of(json.loads(manifest)).pull_policy(workload.image or "") != "Never"
