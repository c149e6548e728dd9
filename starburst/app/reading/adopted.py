"""Parses objects that users create in a cluster, in a worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starburst.app.config import Config
from starburst.app.config.sites import KubernetesConfig
from starburst.app.reading.requests import FoundObject, too_urgent
from starburst.app.reading.workers import WORKERS, shared
from starburst.domain.job import Submission
from translator.intake.rules import IntakeRules


def object_reader(
    config: Config, cluster: KubernetesConfig, rules: IntakeRules
) -> Callable[[str, str], Awaitable[Submission | str]]:
    """A parser of objects in JSON: the submission for a job id, or the problems as text."""

    turns = asyncio.Semaphore(WORKERS)

    async def read(body: str, job_id: str) -> Submission | str:
        found = FoundObject(body, job_id, rules, cluster.user_from)
        async with turns:  # else threads that other work needs would wait for a worker
            answer = await asyncio.to_thread(shared().read, found)
        problems = [*answer.problems, *too_urgent(config.limits.priority, answer)]
        return "; ".join(problems) if problems else answer.submissions[0]

    return read
