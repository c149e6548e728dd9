"""Two ways for a task to get its GPUs on a shared machine, behind one protocol.

Both lead to the same program on the machine (`run` of the agent), which two of them may start without harm.

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

from starburst.clouds.sky.access.answers import Submitted, submitted
from starburst.clouds.sky.access.ports import Access, Contact, JobState, SkyApi, SkyError, UnreachableError
from starburst.clouds.sky.access.ssh import PYTHON
from starburst.clouds.sky.agent.build import agent_path


@dataclass(frozen=True, slots=True)
class Submission:
    """A task for a machine's queue."""

    name: str
    #: Below the machine's runs: job/attempt/rank.
    dir: str
    gpus: int
    gpu_type: str


class Runner(Protocol):
    """A queue on machines."""

    async def submit(self, cluster: str, access: Access, tasks: Sequence[Submission]) -> Submitted:
        """Put tasks into the machine's queue unless they are there; how each stands, or why it does not.

        Raises:
            UnreachableError: nobody knows what the machine would have said.
            SkyError: the machine's queue takes none; doing it again does no harm.
        """


class RayRunner:
    """The job API of the machine's Ray."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact

    async def submit(self, cluster: str, access: Access, tasks: Sequence[Submission]) -> Submitted:
        """See `Runner`. A machine that is silent here only, and answers else, takes none."""
        asked = {task.name: {"dir": task.dir, "gpus": task.gpus} for task in tasks}
        try:
            return submitted(await self._contact.call(cluster, access, "submit", {"tasks": asked}), asked)
        except UnreachableError as error:
            raise SkyError(str(error)) from error


class ExecRunner:
    """`sky exec`."""

    def __init__(self, api: SkyApi) -> None:
        self._api = api

    async def submit(self, cluster: str, access: Access, tasks: Sequence[Submission]) -> Submitted:
        """See `Runner`."""
        queue = await self._api.queue(cluster)
        missing = [task for task in tasks if task.name not in queue]
        requests = [await self._exec(cluster, task) for task in missing]
        await asyncio.gather(*(self._api.wait(request) for request in requests))
        return Submitted({task.name: queue.get(task.name, JobState.WAITING) for task in tasks}, {})

    async def _exec(self, cluster: str, task: Submission) -> str:
        run = f"exec {PYTHON} -I {agent_path()} run ~/starburst/runs/{task.dir}"
        accelerators = {task.gpu_type: task.gpus} if task.gpus else {}
        return await self._api.exec(cluster, task.name, run, accelerators)
