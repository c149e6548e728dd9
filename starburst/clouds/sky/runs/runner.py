"""Two ways for a task to get its GPUs on a shared machine, behind one protocol.

Both lead to the same program on the machine (`guest.py run`), which two of them may start without harm.

- `RayRunner` puts it into the machine's Ray by the job API that SkyPilot's Ray has at 127.0.0.1:8266 there.
  It is asked from the machine itself, over the ssh connection that is open anyhow, instead of through a
  forwarded port.
- `ExecRunner` is `sky exec` and SkyPilot's queue, which goes to the same Ray in the end.

RayRunner is the default: see docs/results/sky.md for seconds and calls. SkyPilot then does not see
these jobs, so its idle detection must not end the machine: that is what the keeper is for (`keeper.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starburst.clouds.sky.access.answers import SubmitAnswer, parse_submit
from starburst.clouds.sky.access.ports import (
    Access,
    JobState,
    MachineTransport,
    SkyApi,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.access.ssh import PYTHON, agent_path


@dataclass(frozen=True, slots=True)
class TaskSubmission:
    """A task for a machine's queue."""

    name: str
    #: Below the machine's runs: job/attempt/rank.
    dir: str
    gpus: int
    gpu_type: str


class Runner(Protocol):
    """A queue on machines."""

    async def submit(self, cluster: str, access: Access, tasks: Sequence[TaskSubmission]) -> SubmitAnswer:
        """Put tasks into the machine's queue unless they are there; how each stands, or why it does not.

        Raises:
            SkyUnreachableError: nobody knows what the machine would have said.
            SkyError: the machine's queue takes none; doing it again does no harm.
        """


class RayRunner:
    """The job API of the machine's Ray."""

    def __init__(self, contact: MachineTransport) -> None:
        self._contact = contact

    async def submit(self, cluster: str, access: Access, tasks: Sequence[TaskSubmission]) -> SubmitAnswer:
        """See `Runner`. A machine that is silent here only, and answers else, takes none."""
        asked = {task.name: {"dir": task.dir, "gpus": task.gpus} for task in tasks}
        try:
            return parse_submit(await self._contact.call(cluster, access, "submit", {"tasks": asked}), asked)
        except SkyUnreachableError as error:
            raise SkyError(str(error)) from error


class ExecRunner:
    """`sky exec`."""

    def __init__(self, api: SkyApi) -> None:
        self._api = api

    async def submit(self, cluster: str, access: Access, tasks: Sequence[TaskSubmission]) -> SubmitAnswer:
        """See `Runner`."""
        queue = await self._api.queue(cluster)
        missing = [task for task in tasks if task.name not in queue]
        requests = [await self._exec(cluster, task) for task in missing]
        await asyncio.gather(*(self._api.wait(request) for request in requests))
        return SubmitAnswer({task.name: queue.get(task.name, JobState.WAITING) for task in tasks}, {})

    async def _exec(self, cluster: str, task: TaskSubmission) -> str:
        run = f"exec {PYTHON} -I {agent_path()}/guest.py run ~/starburst/runs/{task.dir}"
        accelerators = {task.gpu_type: task.gpus} if task.gpus else {}
        return await self._api.exec(cluster, task.name, run, accelerators)
