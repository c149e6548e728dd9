"""Performs actions: in order per job and instance, with timeouts and retries. A start or launch that fails
after all tries is undone, because its outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import structlog

from starburst.aio import Backoff, TaskSet, answer_within
from starburst.app.daemon.shortages import ShortageRetry
from starburst.core.model.actions import (
    Action,
    LaunchInstance,
    PrepareRun,
    StartRun,
    StopRun,
    TerminateInstance,
)
from starburst.core.model.events import Event, InstanceGone, RunEnd, RunEnded, RunStalled
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Site, Workload
from starburst.runs.fence import NO_FENCE, LeaderFence, NotCertainError
from starburst.runs.ports import Cloud, Cluster, Report, Run, RunSite

log = structlog.get_logger()

#: Timeout of a call, and first and longest pause between tries, wall seconds.
CALL_TIMEOUT_S = 60.0
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 30.0
TRIES = 5
#: Between two looks at a run that has to end first, wall seconds.
LATER_S = 2.0
LATER = "its run {attempt} in the {site}, which the store does not know as a backup was put back, ends first"
UNLISTED = (
    "the cluster was not listed yet, and may have a run that the store does not know: a backup was put back"
)

#: Errors that concern one action only; any other error counts as an outage of the site.
OWN_ERRORS = (LookupError, RuntimeError, TypeError, ValueError)


class Performer:
    """Performs actions in the background; `done` is called with the key of each action that is finished."""

    def __init__(
        self,
        cluster: Cluster,
        cloud: Cloud,
        *,
        find: Callable[[str], Awaitable[tuple[Job, Workload]]],
        offer: Callable[[str], Offer],
        done: Callable[[str], Awaitable[None]],
        patience: ShortageRetry,
        report: Report,
        fence: LeaderFence = NO_FENCE,
    ) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._fence = fence
        self._find = find
        self._offer = offer
        self._done = done
        self._patience = patience
        self._report = report
        #: Actions under way, by number; and the latest action of each job or instance.
        self._tasks = TaskSet()
        self._count = count()
        self._last: dict[str, asyncio.Task[None]] = {}
        #: How often each action has yet to be performed, by key.
        self._owed: Counter[str] = Counter()
        #: Keys of starts that are owed and whose runs are over: they must not begin any more.
        self._over: set[str] = set()
        #: Errors of starts and launches that were given up and whose end is not reported yet, by key.
        self._given_up: dict[str, Exception] = {}

    def owe(self, actions: Iterable[Action]) -> None:
        """Note actions before they are stored: one that is repeated is done when its last repetition is."""
        self._owed.update(action.key for action in actions)

    def owes(self, key: str) -> bool:
        """Whether an action has yet to be performed. Thread-safe."""
        return key in self._owed

    def perform(self, action: Action, tried: asyncio.Event | None = None) -> asyncio.Task[None]:
        """Start an action; it runs after all earlier ones of the same job or instance.

        `tried` is set when it was taken or given up, or waits for the end of a later run.
        """
        subject = (
            action.instance_id if isinstance(action, LaunchInstance | TerminateInstance) else action.job_id
        )
        previous = self._last.get(subject)
        task = self._tasks.ensure(
            (action.key, next(self._count)), lambda: self._after(previous, action, tried or asyncio.Event())
        )
        self._last[subject] = task
        task.add_done_callback(lambda done: self._forget(subject, done))
        return task

    def explained(self, event: Event) -> Event:
        """The report; the end of a run whose start was given up becomes NOT_STARTED, and the end of such a
        launch is given the error as its message.

        A run that has ended is not started any more: a call that failed may have started it.
        """
        match event:
            case RunEnded(job_id, attempt, end):
                key = f"start/{job_id}/{attempt}"
                if key in self._owed:
                    self._over.add(key)
                error = self._given_up.pop(key, None)
                if error is not None and end is RunEnd.STOPPED:
                    outage = not isinstance(error, OWN_ERRORS)
                    return RunEnded(job_id, attempt, RunEnd.NOT_STARTED, message=_words(error), outage=outage)
            case InstanceGone(instance_id):
                error = self._given_up.pop(f"launch/{instance_id}", None)
                if error is not None:
                    return replace(event, message=_words(error))
        return event

    async def until_failure(self) -> None:
        """Wait until an action cannot be marked as done, and raise the error: the store is damaged."""
        await self._tasks.until_failure()

    async def close(self) -> None:
        """Cancel all actions under way; in the store they stay pending."""
        await self._tasks.cancel()

    def _forget(self, subject: str, task: asyncio.Task[None]) -> None:
        if self._last.get(subject) is task:
            del self._last[subject]

    async def _after(self, previous: asyncio.Task[None] | None, action: Action, tried: asyncio.Event) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        if isinstance(action, StartRun):
            await self._end_later_runs(action, tried)
        error = await self._try(action, _tries(action))
        tried.set()
        if error is not None and not isinstance(action, PrepareRun):
            # The run or instance may or may not have started. It is stopped to be sure; the site then reports
            # its end, and the core tries again or elsewhere.
            self._given_up[action.key] = error
            await self._try(_undo(action), None)
        self._owed[action.key] -= 1
        if self._owed[action.key] <= 0:
            del self._owed[action.key]
            self._over.discard(action.key)
        await self._done(action.key)

    async def _end_later_runs(self, start: StartRun, tried: asyncio.Event) -> None:
        """End runs of the job that the store does not know, and wait until nothing of them may be alive.

        A store that was put back to a backup has not seen where the job went since.
        """
        if not await self._is_listed(start, tried):
            self._over.add(start.key)
            return
        for site in Site:
            first, ending = start.attempt + (site is start.site), 0
            while (attempt := self._site(site).newest(start.job_id)) is not None and attempt >= first:
                tried.set()
                if attempt != ending:
                    ending, grace_s = attempt, await self._grace_s(start.job_id)
                    log.warning("later-run", job=start.job_id, attempt=attempt, site=site.value)
                    why = LATER.format(attempt=attempt, site=site.value)
                    self._report(RunStalled(start.job_id, start.attempt, why))
                    await self._try(StopRun(start.job_id, attempt, site, grace_s), None)
                await asyncio.sleep(LATER_S)

    async def _is_listed(self, start: StartRun, tried: asyncio.Event) -> bool:
        """Wait until the sites tell of runs that the store may not know; false if it is to stop by then."""
        told = False
        while any(self._site(site).newest(start.job_id) is None for site in Site):
            tried.set()
            if f"stop/{start.job_id}/{start.attempt}" in self._owed:
                return False
            if not told:
                self._report(RunStalled(start.job_id, start.attempt, UNLISTED))
                told = True
            await asyncio.sleep(LATER_S)
        return True

    async def _grace_s(self, job_id: str) -> float:
        try:
            found = await self._patience.outlast(f"grace of {job_id}", lambda: self._find(job_id))
            return found[0].grace_s
        except LookupError:
            return 0.0

    async def _try(self, action: Action, tries: int | None) -> Exception | None:
        """Repeat a call until it succeeds, at most `tries` times; None is no limit. Returns the last error.

        A try that fails from a shortage of this machine is not counted, since it is no failure of the site.
        A start whose run has ended is tried no more.
        """
        backoff, attempt = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S), 0
        unsure: Exception | None = None
        try:
            while action.key not in self._over:
                await self._fence.passed()
                try:
                    with answer_within(CALL_TIMEOUT_S):
                        await self._call(action)
                except NotCertainError:
                    continue
                except Exception as error:  # adapters may raise anything; every error is retried
                    unsure = error
                    if not self._patience.notes(action.key, error):
                        attempt += 1
                        log.warning("action-failed", action=action.key, attempt=attempt, error=repr(error))
                        if attempt == tries:
                            break
                    await backoff.pause()
                else:
                    return None
            return unsure
        finally:
            self._patience.over(action.key)

    async def _call(self, action: Action) -> None:
        """Begin an action; what takes time comes before the fence is asked.

        Raises:
            NotCertainError: another process may lead by now; nothing was begun.
        """
        match action:
            case StartRun(job_id, attempt, site, slots):
                job, workload = await self._find(job_id)
                await self._begin(self._site(site).start(Run(job, attempt, slots, workload)))
            case StopRun(job_id, attempt, site, grace_s):
                await self._begin(self._site(site).stop(job_id, attempt, grace_s))
            case PrepareRun(job_id, attempt, slots):
                job, workload = await self._find(job_id)
                await self._begin(self._cloud.prepare(Run(job, attempt, slots, workload)))
            case LaunchInstance(instance_id, offer_name, nodes):
                await self._begin(self._cloud.launch(instance_id, self._offer(offer_name).times(nodes)))
            case TerminateInstance(instance_id):
                await self._begin(self._cloud.terminate(instance_id))

    async def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        try:
            self._fence.check()
        except NotCertainError:
            call.close()
            raise
        await call

    def _site(self, site: Site) -> RunSite:
        return self._cluster if site is Site.CLUSTER else self._cloud


def _tries(action: Action) -> int | None:
    """How often an action is tried; None is without end. What is only prepared is tried once."""
    if isinstance(action, PrepareRun):
        return 1
    return TRIES if isinstance(action, StartRun | LaunchInstance) else None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _undo(action: Action) -> Action:
    match action:
        case StartRun(job_id, attempt, site, _):
            return StopRun(job_id, attempt, site, 0.0)
        case LaunchInstance(instance_id):
            return TerminateInstance(instance_id)
    return action
