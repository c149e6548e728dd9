"""The asyncio shell around the core: reports and requests in, one transaction per step, actions out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isinf
from typing import Any, TypeVar

import structlog

from starburst.aio import Gathered, Wake, first_of
from starburst.app.daemon.observers import CommittedStep, StepObserver
from starburst.app.daemon.orphan_ledger import OrphanLedger
from starburst.app.daemon.performer import Performer
from starburst.app.daemon.reaper import Reaper, ReapRules
from starburst.app.daemon.request_intake import Intake, RequestIntake
from starburst.app.daemon.shortages import ShortageRetry
from starburst.core.model.actions import Action, LaunchInstance, StartRun, StopRun
from starburst.core.model.events import (
    Event,
    NodesChanged,
    Progress,
    RunEnded,
    RunStalled,
    RunStarted,
    SiteSynced,
    Tick,
)
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.steps.progress import is_news
from starburst.core.views.snapshot import facts
from starburst.core.views.validate import InvariantError, validate
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Site, Submission, Workload
from starburst.domain.money import Money
from starburst.runs.fence import NO_FENCE, LeaderFence
from starburst.runs.ports import Cloud, Cluster, Report, RunSite
from starburst.store import codec
from starburst.store.store import Step, Store
from starburst.store.upkeep.restored import owed_actions

T = TypeVar("T")

log = structlog.get_logger()

#: Wall seconds between polls of the store for new requests.
POLL_S = 0.1
#: Wall seconds between rounds of the reaper.
REAP_S = 20.0
#: Wall seconds between removals of old runs and instances.
PRUNE_S = 86_400.0
#: Wall seconds for which the ends that an earlier process owed hold up the watch of their site.
OWED_S = 300.0

#: A background task that runs until cancelled and may report events as sites do.
Companion = Callable[[Report], Coroutine[Any, Any, None]]
#: Removes runs and instances that ended long ago, given the ids of jobs and instances that must be kept.
Prune = Callable[[Collection[str], Collection[str]], Awaitable[None]]


async def _keep_all(_jobs: Collection[str], _machines: Collection[str]) -> None:
    """Remove nothing."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Background activities around the scheduler. A failure of companion or observer ends the scheduler."""

    #: Rules of the reaper; by default it ends every unclaimed instance of this store, at once.
    reaping: ReapRules | None = None
    prune: Prune = _keep_all
    companion: Companion | None = None
    #: Closed at the end.
    observers: Sequence[StepObserver] = ()
    #: The state is checked before each commit; a contradiction in it ends the scheduler.
    validates: bool = False
    #: Asked before each external action.
    fence: LeaderFence = NO_FENCE


@dataclass(frozen=True, slots=True)
class _Owed:
    """An action that the previous process left; `tried` once a start was taken or given up."""

    action: Action
    task: asyncio.Task[None]
    tried: asyncio.Event

    @property
    def site(self) -> Site:
        return self.action.site if isinstance(self.action, StartRun | StopRun) else Site.CLOUD


class Controller:
    """Drives one scheduler: reports and requests become events of a step, and its actions are performed.

    A step is durable before it has effects: the core handles a batch of events, the store commits the changed
    state and the resulting actions in one transaction, and only then are the actions started. After a crash
    between commit and action, the pending actions are read from the store and started again; sites therefore
    must accept a repeated action. The commit runs in the store's own thread. Meanwhile sites are watched and
    leases renewed, and reports wait for the next step, so the core is at most one step ahead of the store.
    """

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        cluster: Cluster,
        cloud: Cloud,
        pace: Pace,
        *,
        wall: Callable[[], float] = time.time,
        patience: ShortageRetry | None = None,
        around: Surroundings = Surroundings(),
    ) -> None:
        self.scheduler = scheduler
        scheduler.rest()
        self._store = store
        self._cluster = cluster
        self.cloud = cloud
        self._pace = pace
        self._wall = wall
        self._around = around
        self._latest = scheduler.state.now
        #: Reports of sites that no step has taken yet. Sites may repeat a report while a commit is pending;
        #: each is kept once, at the position of its last arrival.
        self._reports: dict[Hashable, Event] = {}
        self._news = Wake()
        self._intake = RequestIntake(store, scheduler, pace)
        self._patience = patience or ShortageRetry()
        self._submissions = Gathered(self._read_submissions)
        self._performer = Performer(
            cluster,
            cloud,
            find=self._find,
            offer=self._offer,
            done=Gathered(self._mark_done).ask,
            patience=self._patience,
            report=self._report,
            fence=around.fence,
        )
        self._reaper = Reaper(
            cloud,
            around.reaping or ReapRules(str(store.fact("controller"))),
            OrphanLedger(store),
            claimed=lambda: scheduler.state.fleet.instances,
            now=self.now,
            rate=self._rate,
            in_order=store.in_order,
            fence=around.fence,
        )

    def now(self) -> float:
        """Scheduler time; monotonic even if the wall clock is set back."""
        self._latest = max(self._latest, self.scheduler.state.now, self._pace.scheduler_time(self._wall()))
        return self._latest

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until `stop`. Runs and instances outlive this process; the next one finds them again.

        Raises:
            Exception: a bug or a damaged store; the state is then as last committed.
        """
        await self._forget()  # before the sites list their runs
        owed = self._repay(await self._pending())
        companion = self._around.companion
        try:
            ended = await first_of(
                {
                    "watch cluster": self._watch(Site.CLUSTER, self._cluster, owed),
                    "watch cloud": self._watch(Site.CLOUD, self.cloud, owed),
                    "reaper": self._reaper.rounds(REAP_S),
                    "prune": self._forget_daily(),
                    **({} if companion is None else {"companion": companion(self._report)}),
                    "actions": self._performer.until_failure(),
                    "loop": self._loop(),
                    "stop": stop.wait(),
                }
            )
            if ended != "stop":
                raise RuntimeError(f"{ended} ended by itself")
        finally:
            await self._performer.close()
            await self._store.drain()
            for observer in self._around.observers:
                observer.close()

    async def _pending(self) -> list[Action]:
        """The actions to perform that the store has; a start of a run that is over by now is done."""
        pending = await self._outlast("restart", partial(owed_actions, self._store))
        over = [action.key for action in pending if isinstance(action, StartRun) and self._is_over(action)]
        if over:
            await self._mark_done(over)
        return [action for action in pending if action.key not in over]

    def _is_over(self, start: StartRun) -> bool:
        record = self.scheduler.state.jobs.get(start.job_id)
        return record is None or record.attempt != start.attempt or not record.alive

    def _repay(self, actions: Sequence[Action]) -> list[_Owed]:
        """Start the actions that were pending when the previous process ended."""
        self._performer.owe(actions)
        owed, stopping = list[_Owed](), set[str]()
        for action in actions:
            tried = asyncio.Event()
            owed.append(_Owed(action, self._performer.perform(action, tried), tried))
            if isinstance(action, StopRun):
                stopping.add(action.job_id)
            # A stop may be refused for ever, and a start after it waits as long.
            waits = isinstance(action, StartRun) and action.job_id in stopping
            if waits or not isinstance(action, StartRun | LaunchInstance):
                tried.set()
        if owed:
            log.info("resumed", actions=len(owed))
        return owed

    async def _watch(self, name: Site, site: RunSite, owed: Sequence[_Owed]) -> None:
        """Watch a site after its pending actions are done: a run that it does not report then is lost.

        Ends may be refused for ever; after `OWED_S` they hold up nobody else.
        """
        here = [each for each in owed if each.site is name]
        for each in here:
            await each.tried.wait()
        if here:
            _, late = await asyncio.wait([each.task for each in here], timeout=OWED_S)
            if late:
                log.warning("ends-still-owed", site=name.value, actions=len(late))
        await self._patience.go_on(f"watch {name.value}", lambda: site.watch(partial(self._heard, name)))

    async def _forget_daily(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_S)
            await self._forget()

    async def _forget(self) -> None:
        """Remove old runs and instances; a disk error is logged and does not stop the scheduler."""
        try:
            jobs, machines = (
                frozenset(self.scheduler.state.jobs),
                frozenset(self.scheduler.state.fleet.instances),
            )
            await self._around.prune(jobs, machines)
        except OSError as error:
            log.warning("prune-failed", error=str(error))

    def _heard(self, site: Site, event: Event) -> None:
        """Report what a site says, unless that attempt of the job is at the other site.

        A store that was put back gives numbers out again, and a run from before that ends later has the
        number of another.
        """
        if isinstance(event, RunStarted | RunStalled | RunEnded | Progress):
            record = self.scheduler.state.current(event.job_id, event.attempt)
            if record is not None and record.site is not site:
                log.warning("other-site", site=site.value, stale=type(event).__name__, subject=event.job_id)
                return
        self._report(event)

    def _report(self, event: Event) -> None:
        key: Hashable = event
        if isinstance(event, Progress):  # runs report iterations per wall second
            event = replace(event, per_s=event.per_s / self._pace.speed)
            if not is_news(self.scheduler.state, event, self.now()):
                return
            key = (event.job_id, event.attempt)  # the latest report replaces earlier ones
        else:
            key = event = self._performer.explained(event)
        self._reports.pop(key, None)
        self._reports[key] = event
        self._news.ring()

    async def _loop(self) -> None:
        while True:
            events = await self._next_events()
            asked = await self._requests()
            if events or asked.events or self.scheduler.next_wakeup() <= self.now():
                await self._step(events, asked)

    async def _next_events(self) -> list[Event]:
        """The reports so far; waits for one until the next poll or the next wake-up of the scheduler."""
        wakeup = self.scheduler.next_wakeup()
        pause_s = POLL_S if isinf(wakeup) else min(POLL_S, self._pace.wall_time(wakeup) - self._wall())
        await self._news.wait(pause_s)
        events, self._reports = list(self._reports.values()), {}
        return events

    async def _requests(self) -> Intake:
        """What users ask for; until the cluster has reported its runs, only cancellations in the cloud."""
        resting = self.scheduler.state.resting
        return await self._outlast(
            "requests", self._intake.read_cancellations if resting else self._intake.read
        )

    async def _step(self, events: Sequence[Event], asked: Intake) -> None:
        """Handle events and what users ask for: the core decides, the store commits the step in one
        transaction, and then its actions start.

        A commit that a shortage stops is repeated with the same step.
        """
        batch = [*events, *asked.events, *self._cluster.judged(asked.submissions)]
        now, began, start = self.now(), self._wall(), time.perf_counter()
        actions = self.scheduler.handle(batch or Tick(), now)
        if self._around.validates:
            self._validate()
        changes = self.scheduler.take_changes()
        decided = time.perf_counter()
        taken = Step(
            now=now,
            events=batch,
            request_seqs=asked.request_seqs,
            arrays=asked.arrays,
            submissions=asked.submissions,
            changes=changes,
            facts=facts(self.scheduler.state),
            nodes=self.scheduler.state.capacity.nodes,
            offers=list(self.scheduler.state.fleet.offers.values()),
        )
        self._performer.owe(actions)
        await self._outlast("step", lambda: self._store.commit(taken))
        stored = time.perf_counter()
        self._announce(changes, batch)
        self._cluster.told(changes)
        for action in actions:
            self._performer.perform(action)
        step = CommittedStep(
            began, decided - start, stored - decided, batch, changes, self.scheduler.state.jobs
        )
        for observer in self._around.observers:
            observer.stepped(step)

    def _validate(self) -> None:
        """Refuse to commit a state that contradicts itself, and log the latest decisions on what it names.

        Raises:
            InvariantError: a bug of the scheduler; the store has the state of the step before.
        """
        state = self.scheduler.state
        try:
            validate(state)
        except InvariantError as error:
            log.error("state-invalid", at=state.now, problems=error.problems, decisions=error.stories)
            raise

    async def _outlast(self, who: str, call: Callable[[], T]) -> T:
        """The result of a call on the store, made in its thread and repeated while a shortage stops it."""
        return await self._patience.outlast(who, lambda: self._store.in_order(call))

    def _announce(self, changes: Changes, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, SiteSynced):
                log.info("synced", site=event.site.value, runs=len(event.known))
            elif isinstance(event, NodesChanged):
                log.info("nodes", count=len(event.nodes))
        for event, why in changes.ignored:
            log.info("ignored", stale=type(event).__name__, subject=codec.subject(event), why=why)
        for decision in changes.decisions:
            log.info(decision.kind, subject=decision.subject, reason=decision.reason)

    def _offer(self, name: str) -> Offer:
        offer = self.scheduler.state.fleet.offer(name)
        if offer is None:
            raise LookupError(f"{name} is not offered any more")
        return offer

    def _rate(self, offer_name: str) -> Money | None:
        offer = self.scheduler.state.fleet.offer(offer_name)
        return None if offer is None else offer.price_per_hour

    async def _find(self, job_id: str) -> tuple[Job, Workload]:
        try:
            submission = await self._submissions.ask(job_id)
        except KeyError:
            raise LookupError(f"the store has no workload for {job_id}") from None
        job = submission.job
        return replace(job, grace_s=self.scheduler.state.grace_s(job)), submission.workload

    async def _read_submissions(self, job_ids: Sequence[str]) -> Mapping[str, Submission]:
        return await self._store.in_order(lambda: self._store.submissions(job_ids))

    async def _mark_done(self, keys: Sequence[str]) -> Mapping[str, None]:
        await self._outlast("done", lambda: self._done(keys))
        return dict.fromkeys(keys)

    def _done(self, keys: Sequence[str]) -> None:
        """Mark actions as done, in the store's thread: one that a step asked for again meanwhile is not."""
        if done := [key for key in keys if not self._performer.owes(key)]:
            self._store.actions_done(done, self.now())
