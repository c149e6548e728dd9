"""Group commit: jobs that are submitted within a moment, or during a transaction, share the next one."""

from __future__ import annotations

import asyncio

from starburst.aio import SerialThread
from starburst.domain.job import Submission
from starburst.runs.ports import AdoptionPort, QueueFullError

#: Jobs in one transaction, and for how long the first of them waits for others. Wall seconds.
MOST, GATHER_S = 100, 0.05


class GroupedSubmissions:
    """Submits through a port, which writes to the disk, from as many tasks as there are."""

    def __init__(self, desk: AdoptionPort) -> None:
        self._desk = desk
        self._waiting: list[tuple[Submission, asyncio.Future[str]]] = []
        self._filled = asyncio.Event()

    async def submit(self, submission: Submission) -> None:
        """Until the job is stored; `run` has to be under way.

        Raises:
            QueueFullError: no further job of its user or queue may wait at the moment.
        """
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, answer))
        self._filled.set()
        why = await answer
        if why:
            raise QueueFullError(why)

    async def run(self) -> None:
        """Store what was submitted, until cancelled."""
        thread = SerialThread("adoption")
        try:
            while True:
                await self._filled.wait()
                await asyncio.sleep(GATHER_S)
                group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                if not self._waiting:
                    self._filled.clear()
                await self._store(group, thread)
        finally:
            thread.close()

    async def _store(self, group: list[tuple[Submission, asyncio.Future[str]]], thread: SerialThread) -> None:
        jobs = [submission for submission, _ in group]
        try:
            refused = await thread.run(lambda: self._desk.submit(jobs))
        except Exception as error:  # raised where each of them is awaited
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
            return
        for submission, answer in group:
            if not answer.done():  # else its task was cancelled
                answer.set_result(refused.get(submission.job.id, ""))
