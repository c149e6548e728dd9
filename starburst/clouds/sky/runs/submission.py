"""Puts tasks into the queues of machines, and records what the queues say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import structlog

from starburst.clouds.sky.access.ports import JobState, LocalError, SkyError, SkyUnreachableError
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.runs.runner import TaskSubmission

log = structlog.get_logger()

#: Wall seconds until a task that has not begun is submitted again; and after a refusal.
RESUBMIT_S, RETRY_S = 30.0, 2.0


@dataclass(slots=True)
class _Queued:
    at: float
    state: JobState


class TaskSubmitter:
    """Submits the tasks of one controller; submitting a task twice does no harm."""

    def __init__(self, context: SkyContext) -> None:
        self._context = context
        self._queued: dict[str, _Queued] = {}

    def has_ended(self, task: str) -> bool:
        """Whether a queue has ended a task: it cannot begin any more."""
        queued = self._queued.get(task)
        return queued is not None and queued.state is JobState.ENDED

    def submit(self, machine: RentedMachine, tasks: list[TaskSubmission]) -> None:
        """Begin to put those into the machine's queue that are due; returns at once."""
        now = self._context.clock.wall()
        due = [task for task in tasks if now - self._submitted_at(task) >= RESUBMIT_S]
        if due:
            self._context.tasks.ensure(("submit", machine.id), partial(self._submit, machine, due))

    def forget(self, task: str) -> None:
        """Drop what is recorded of a task: its run is over."""
        self._queued.pop(task, None)

    def _submitted_at(self, task: TaskSubmission) -> float:
        """When a task was last submitted; wall seconds."""
        queued = self._queued.get(task.name)
        return -RESUBMIT_S if queued is None else queued.at

    async def _submit(self, machine: RentedMachine, tasks: list[TaskSubmission]) -> None:
        try:
            answer = await self._context.runner.submit(machine.cluster, machine.access(), tasks)
        except (SkyUnreachableError, LocalError) as error:  # says nothing about the machine's queue
            log.warning("not-submitted", cluster=machine.cluster, error=str(error))
            await asyncio.sleep(RETRY_S)
            return
        except SkyError as error:
            refused = {task.name: str(error) for task in tasks}
        else:
            refused = answer.refused
            for name, state in answer.states.items():
                self._queued[name] = _Queued(self._context.clock.wall(), state)
                machine.fitness.took(name)
        for name, why in refused.items():
            log.warning("not-submitted", cluster=machine.cluster, task=name, error=why)
            machine.fitness.refused(name, why, self._context.clock.wall())
        if refused:  # retried by the next exchange
            await asyncio.sleep(RETRY_S)
