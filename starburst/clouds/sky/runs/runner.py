"""Two ways for a task to get its GPUs on a shared machine, behind one protocol.

Both start the same program of the agent (`run`); starting it twice does no harm.

- `RayRunner` submits to the job API of SkyPilot's Ray, at 127.0.0.1:8266 of the machine. The request is made
  on the machine itself, over the ssh connection that is open anyhow, instead of through a forwarded port.
- `ExecRunner` is `sky exec`, whose queue leads to the same Ray.

RayRunner is the default: see docs/results/sky.md for seconds and calls. SkyPilot does not see jobs that it
submits, so a keepalive holds off SkyPilot's idle detection (`machines/keepalive.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starburst.clouds.sky.access.answers import QueueStates, parse_submit
from starburst.clouds.sky.access.ports import (
    Access,
    JobState,
    MachineTransport,
    SkyApi,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.access.ssh import PYTHON
from starburst.clouds.sky.agent.build import agent_path


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

    async def submit(self, cluster: str, access: Access, tasks: Sequence[TaskSubmission]) -> QueueStates:
        """Put tasks into the machine's queue unless they are there; the state of each, or why it was refused.

        Raises:
            SkyUnreachableError: what the machine would have said is unknown.
            SkyError: the machine's queue takes no tasks; submitting again does no harm.
        """


class RayRunner:
    """The job API of the machine's Ray."""

    def __init__(self, contact: MachineTransport) -> None:
        self._contact = contact

    async def submit(self, cluster: str, access: Access, tasks: Sequence[TaskSubmission]) -> QueueStates:
        """See `Runner`. The agent answers exchanges, so an agent that is silent here counts as a refusal."""
        asked = {task.name: {"dir": task.dir, "gpus": task.gpus} for task in tasks}
        try:
            return parse_submit(await self._contact.call(cluster, access, "submit", {"tasks": asked}), asked)
        except SkyUnreachableError as error:
            raise SkyError(str(error)) from error


class ExecRunner:
    """`sky exec`."""

    def __init__(self, api: SkyApi) -> None:
        self._api = api

    async def submit(self, cluster: str, access: Access, tasks: Sequence[TaskSubmission]) -> QueueStates:
        """See `Runner`."""
        queue = await self._api.queue(cluster)
        missing = [task for task in tasks if task.name not in queue]
        requests = [await self._exec(cluster, task) for task in missing]
        await asyncio.gather(*(self._api.wait(request) for request in requests))
        return QueueStates({task.name: queue.get(task.name, JobState.WAITING) for task in tasks}, {})

    async def _exec(self, cluster: str, task: TaskSubmission) -> str:
        run = f"exec {PYTHON} -I {agent_path()} run ~/starburst/runs/{task.dir}"
        accelerators = {task.gpu_type: task.gpus} if task.gpus else {}
        return await self._api.exec(cluster, task.name, run, accelerators)
