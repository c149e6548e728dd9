"""Images of jobs are pulled while their machines still come up.

An instance lets us log in a minute or more before SkyPilot has set it up. Its address is the cloud's, the
login that of the launch; both are known on AWS. What goes wrong here is only logged: a task pulls its image
itself when it starts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import structlog

from starburst.clouds.sky.access.ports import SkyError
from starburst.clouds.sky.agent.protocol import ImageToPull, PullRequest, RegistryLogin
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.observer import CloudObserver
from starburst.clouds.sky.runs.docker import runs_in_container
from starburst.domain.job import Workload
from starburst.runs.ports import Run
from translator.tasks.containers.registry_logins import registry_of
from translator.tasks.containers.settings import settings_of
from translator.tasks.runtime_values import NotNowError, TaskHost, UnresolvedError, evaluate, has_logins

log = structlog.get_logger()

#: Wall seconds between attempts to log in to a machine that comes up.
LOOK_S = 5.0


class ImagePrefetch:
    """The images that machines which come up are to pull. Kept in memory: it is a hint."""

    def __init__(
        self, context: SkyContext, machines: Mapping[str, RentedMachine], observer: CloudObserver
    ) -> None:
        self._context = context
        self._machines = machines
        self._observer = observer
        #: By machine: runs whose images it has not been told of.
        self._expected: dict[str, list[Run]] = {}

    def expect(self, run: Run) -> None:
        """Note a run that will start on machines that come up; returns at once."""
        if not _is_pulled(run.workload):
            return
        for id_ in dict.fromkeys(slot.where for slot in run.slots):
            machine = self._machines.get(id_)
            if machine is not None and machine.is_coming_up:
                self._expected.setdefault(id_, []).append(run)
                self._context.tasks.ensure(("prefetch", id_), partial(self._bring, machine))

    async def _bring(self, machine: RentedMachine) -> None:
        """Tell a machine of its images until it is up; then its tasks do that."""
        try:
            while machine.is_coming_up:
                if self._expected.get(machine.id):
                    await self._tell(machine)
                await asyncio.sleep(LOOK_S)
        finally:
            self._expected.pop(machine.id, None)
            for number in machine.nodes:
                self._context.transport.forget(_name(machine, number))

    async def _tell(self, machine: RentedMachine) -> None:
        runs = list(self._expected[machine.id])
        try:
            addresses = await self._observer.addresses_of(machine)
            if len(addresses) != machine.entry.nodes:
                return
            status = await machine.listed()
            if status is None or status.login is None:
                return
            asked: PullRequest = {"images": await self._images(runs)}
            for number, address in enumerate(sorted(addresses)):
                access = replace(status.login, host=address)
                await self._context.transport.call(_name(machine, number), access, "pull", asked)
        except (SkyError, ValueError) as error:
            log.debug("image-not-prefetched", instance=machine.id, error=str(error))
            return
        log.info("images-prefetched", instance=machine.id, images=[one["image"] for one in asked["images"]])
        del self._expected[machine.id][: len(runs)]

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


def _name(machine: RentedMachine, number: int) -> str:
    """The name of an instance for the transport: it may be replaced before SkyPilot settles on it."""
    return f"{machine.cluster}-boot{number}"
