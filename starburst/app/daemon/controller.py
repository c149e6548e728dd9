"""The asyncio shell around the core: reports and requests in, one transaction per step, actions out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Sequence
from dataclasses import replace
from functools import partial
from math import isinf
from typing import Any

import structlog

from starburst.app.daemon.observers import Stepped, Watcher
from starburst.app.daemon.orphan_ledger import ReapedBook
from starburst.app.daemon.performer import Performer
from starburst.app.daemon.reaper import Reaper, Rules
from starburst.app.daemon.shortages import Patience
from starburst.core.model.actions import Action, StartRun, StopRun
from starburst.core.model.events import (
    CancelRequested,
    Event,
    HoldRequested,
    JobSubmitted,
    NodesChanged,
    Progress,
    ReleaseRequested,
    SiteSynced,
    Tick,
)
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.steps.progress import is_news
from starburst.core.views.snapshot import facts
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Site, Workload
from starburst.domain.money import Money
from starburst.runs.ports import Cloud, Cluster, Report, RunSite
from starburst.store import queries
from starburst.store.store import Request, Step, Store

log = structlog.get_logger()

#: Wall seconds between looks for new requests in the store.
POLL_S = 0.1
#: Requests taken in one step at most, so that a bulk submission does not hold up everything else.
REQUESTS_PER_STEP = 500
#: Wall seconds between rounds of the reaper.
REAP_S = 20.0
#: Wall seconds between removals of what is long over.
PRUNE_S = 86_400.0

#: What requests about known jobs become, by kind.
WISHES: dict[str, Callable[[str], Event]] = {
    "cancel": CancelRequested,
    "cancel-now": partial(CancelRequested, now=True),
    "hold": HoldRequested,
    "release": ReleaseRequested,
}

#: Goes on beside the scheduler for as long as that does, and may report events as sites do.
Companion = Callable[[Report], Coroutine[Any, Any, None]]
#: Removes what is long over; told the ids of jobs and of machines that are not.
Prune = Callable[[Collection[str], Collection[str]], Awaitable[None]]


async def _keep_all(_jobs: Collection[str], _machines: Collection[str]) -> None:
    """Remove nothing."""


class Controller:
    """Drives one scheduler. Everything runs in one event loop; only adapters wait."""

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        cluster: Cluster,
        cloud: Cloud,
        pace: Pace,
        *,
        wall: Callable[[], float] = time.time,
        rules: Rules | None = None,
        prune: Prune = _keep_all,
        companion: Companion | None = None,
        watchers: Sequence[Watcher] = (),
        patience: Patience | None = None,
    ) -> None:
        """Without `rules` the reaper does not wait.

        `companion` and `watchers`, which are closed at the end, may not fail: that would end the scheduler.
        """
        self.scheduler = scheduler
        scheduler.rest()
        self._store = store
        self._cluster = cluster
        self.cloud = cloud
        self._pace = pace
        self._wall = wall
        self._watchers = watchers
        self._latest = scheduler.state.now
        #: What sites said and no step has taken yet. While the store is held up they may say it again and
        #: again, so each is kept once, at its last place.
        self._reports: dict[Hashable, Event] = {}
        self._news = asyncio.Event()
        self._seen_version = -1
        self._patience = patience or Patience()
        self._performer = Performer(
            cluster, cloud, find=self._find, offer=self._offer, done=self._done, patience=self._patience
        )
        self._prune = prune
        self._companion = companion
        self._reaper = Reaper(
            cloud,
            rules or Rules(str(store.fact("controller"))),
            ReapedBook(store),
            claimed=lambda: scheduler.state.fleet.instances,
            now=self.now,
            rate=self._rate,
        )

    def now(self) -> float:
        """Scheduler time; never goes back, whatever the wall clock does."""
        self._latest = max(self._latest, self.scheduler.state.now, self._pace.scheduler_time(self._wall()))
        return self._latest

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until `stop`. What runs goes on without us and is found again.

        Raises:
            Exception: a bug or a damaged store; the state is then as last committed.
        """
        await self._forget()  # before the sites look at what there is
        owed = self._repay(await self._patience.outlast("restart", self._store.pending_actions))
        watches = [
            asyncio.create_task(self._watch(name, site, owed[name]), name=f"watch {name.value}")
            for name, site in ((Site.CLUSTER, self._cluster), (Site.CLOUD, self.cloud))
        ]
        watches.append(asyncio.create_task(self._reaper.rounds(REAP_S), name="reaper"))
        watches.append(asyncio.create_task(self._forget_daily(), name="prune"))
        if self._companion is not None:
            watches.append(asyncio.create_task(self._companion(self._report), name="bus"))
        loop = asyncio.create_task(self._loop(), name="loop")
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([loop, stopping, *watches], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
                raise RuntimeError(f"{task.get_name()} ended by itself")
        finally:
            for task in [loop, stopping, *watches]:
                task.cancel()
            await asyncio.gather(loop, stopping, *watches, return_exceptions=True)
            await self._performer.close()
            for watcher in self._watchers:
                watcher.close()

    def _repay(self, actions: Sequence[Action]) -> dict[Site, list[asyncio.Task[None]]]:
        """Begin to do what each site was owed when the last process ended."""
        owed: dict[Site, list[asyncio.Task[None]]] = {site: [] for site in Site}
        for action in actions:
            site = action.site if isinstance(action, StartRun | StopRun) else Site.CLOUD
            owed[site].append(self._performer.perform(action))
        if any(owed.values()):
            log.info("resumed", actions=sum(map(len, owed.values())))
        return owed

    async def _watch(self, name: Site, site: RunSite, owed: list[asyncio.Task[None]]) -> None:
        """Ask a site what is so once it is owed nothing: what it does not know of then is lost."""
        if owed:
            await asyncio.wait(owed)
        await self._patience.go_on(f"watch {name.value}", lambda: site.watch(self._report))

    async def _forget_daily(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_S)
            await self._forget()

    async def _forget(self) -> None:
        """Remove what is long over; a disk that does not let us is no reason to stop."""
        try:
            await self._prune(
                frozenset(self.scheduler.state.jobs), frozenset(self.scheduler.state.fleet.instances)
            )
        except OSError as error:
            log.warning("prune-failed", error=str(error))

    def _report(self, event: Event) -> None:
        key: Hashable = event
        if isinstance(event, Progress):  # runs count seconds of the wall
            event = replace(event, per_s=event.per_s / self._pace.speed)
            if not is_news(self.scheduler.state, event, self.now()):
                return
            key = (event.job_id, event.attempt)  # the last word counts
        else:
            key = event = self._performer.explained(event)
        self._reports.pop(key, None)
        self._reports[key] = event
        self._news.set()

    async def _loop(self) -> None:
        while True:
            events = await self._next_events()
            requests = await self._patience.outlast("requests", self._requests)
            if events or requests or self.scheduler.next_wakeup() <= self.now():
                await self._step(events, requests)

    async def _next_events(self) -> list[Event]:
        """Reports that are there, waiting for the first one at most until the next look or wake-up."""
        wakeup = self.scheduler.next_wakeup()
        pause_s = POLL_S if isinf(wakeup) else min(POLL_S, self._pace.wall_time(wakeup) - self._wall())
        timer = asyncio.get_running_loop().call_later(max(0.0, pause_s), self._news.set)
        await self._news.wait()
        timer.cancel()
        self._news.clear()
        events, self._reports = list(self._reports.values()), {}
        return events

    def _requests(self) -> list[Request]:
        """New submissions and cancellations, once the cluster has said what it knows."""
        if self.scheduler.state.resting:
            return []
        version = self._store.data_version()
        if version == self._seen_version:
            return []
        requests = self._store.requests(REQUESTS_PER_STEP)
        if len(requests) < REQUESTS_PER_STEP:
            self._seen_version = version
        return requests

    async def _step(self, events: Sequence[Event], requests: Sequence[Request]) -> None:
        """One transition of the core, stored whole before any of its actions starts.

        A store that cannot take it now is tried again with the same step, so the core is never ahead of what
        is stored by more than that one; nothing of it is done or told until then.
        """
        wished = await self._patience.outlast("requests", lambda: list(map(self._event, requests)))
        submissions = {it.job_id: it.submission for it in requests if it.submission is not None}
        batch = [*events, *wished]
        now, began, start = self.now(), self._wall(), time.perf_counter()
        actions = self.scheduler.handle(batch or Tick(), now)
        changes = self.scheduler.take_changes()
        decided = time.perf_counter()
        taken = Step(
            now=now,
            events=batch,
            request_seqs=[request.seq for request in requests],
            submissions=submissions,
            changes=changes,
            facts=facts(self.scheduler.state),
            nodes=self.scheduler.state.capacity.nodes,
            offers=list(self.scheduler.state.fleet.offers.values()),
        )
        await self._patience.outlast("step", lambda: self._store.commit(taken))
        stored = time.perf_counter()
        self._announce(changes, batch)
        self._cluster.told(changes)
        for action in actions:
            self._performer.perform(action)
        step = Stepped(began, decided - start, stored - decided, batch, changes, self.scheduler.state.jobs)
        for watcher in self._watchers:
            watcher.stepped(step)

    def _event(self, request: Request) -> Event:
        if request.submission is None:
            return WISHES[request.kind](request.job_id)
        return self._submitted(request.submission.job)

    def _submitted(self, job: Job) -> JobSubmitted:
        """The arrival of a job, with what the scheduler has forgotten of those that it comes after."""
        others = [name for name in (*job.after_ok, *job.after_any) if name not in self.scheduler.state.jobs]
        return JobSubmitted(job, queries.ended(self._store, others))

    def _announce(self, changes: Changes, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, SiteSynced):
                log.info("synced", site=event.site.value, runs=len(event.known))
            elif isinstance(event, NodesChanged):
                log.info("nodes", count=len(event.nodes))
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

    def _find(self, job_id: str) -> tuple[Job, Workload]:
        submission = self._store.submission(job_id)
        if submission is None:
            raise LookupError(f"the store has no workload for {job_id}")
        job = submission.job
        return replace(job, grace_s=self.scheduler.state.grace_s(job)), submission.workload

    async def _done(self, key: str) -> None:
        await self._patience.outlast("done", lambda: self._store.action_done(key, self.now()))
