"""What was put into the queues of machines, and which of them take nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from starburst.clouds.sky.access.ports import JobState, LocalError, SkyError, SkyUnreachableError
from starburst.clouds.sky.machines.fitness import Fitness
from starburst.clouds.sky.runs.checkpoints import Berth
from starburst.clouds.sky.runs.runner import Runner, TaskSubmission
from starburst.runs.tasks import TaskSet

log = structlog.get_logger()

#: Wall seconds: until a task that has not begun is looked for in its queue again; and after a refusal.
RESUBMIT_S, RETRY_S = 30.0, 2.0


@dataclass(slots=True)
class _Queued:
    at: float
    state: JobState


class SubmissionQueues:
    """Of all machines of one controller."""

    def __init__(self, runner: Runner, tasks: TaskSet, wall: Callable[[], float]) -> None:
        self._runner = runner
        self._tasks = tasks
        self._wall = wall
        self._queued: dict[str, _Queued] = {}
        self._fitness: dict[str, Fitness] = {}

    def fitness(self, instance_id: str) -> Fitness:
        """Whether a machine takes work."""
        return self._fitness.setdefault(instance_id, Fitness())

    def refused(self, instance_id: str, task: str, why: str) -> None:
        """A machine did not take a task, or something that it needs."""
        self.fitness(instance_id).refused(task, why, self._wall())

    def is_done_with(self, task: str) -> bool:
        """Whether the queue has ended a task: it cannot begin any more."""
        queued = self._queued.get(task)
        return queued is not None and queued.state is JobState.ENDED

    def submit(self, instance_id: str, berth: Berth, tasks: list[TaskSubmission]) -> None:
        """Put those into the machine's queue that are due; beside the exchanges, for a queue may be slow."""
        now = self._wall()
        due = [task for task in tasks if now - self._asked_at(task) >= RESUBMIT_S]
        if due:
            self._tasks.ensure(("submit", instance_id), partial(self._submit, instance_id, berth, due))

    def gone(self, instance_id: str) -> None:
        """There is no such machine any more."""
        self._fitness.pop(instance_id, None)

    def forget(self, task: str) -> None:
        """A task is over."""
        self._queued.pop(task, None)

    def _asked_at(self, task: TaskSubmission) -> float:
        """When a task was last put into its queue; wall seconds."""
        queued = self._queued.get(task.name)
        return -RESUBMIT_S if queued is None else queued.at

    async def _submit(self, instance_id: str, berth: Berth, tasks: list[TaskSubmission]) -> None:
        try:
            answer = await self._runner.submit(berth.cluster, berth.access, tasks)
        except (SkyUnreachableError, LocalError) as error:  # that says nothing of the machine's queue
            log.warning("not-submitted", cluster=berth.cluster, error=str(error))
            await asyncio.sleep(RETRY_S)
            return
        except SkyError as error:
            refused = {task.name: str(error) for task in tasks}
        else:
            refused = answer.refused
            for name, state in answer.states.items():
                self._queued[name] = _Queued(self._wall(), state)
                self.fitness(instance_id).took(name)
        for name, why in refused.items():
            log.warning("not-submitted", cluster=berth.cluster, task=name, error=why)
            self.refused(instance_id, name, why)
        if refused:  # the next exchange tries again
            await asyncio.sleep(RETRY_S)
