"""One process of `starburst up`: it stands by, leads, and gives the lead back."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

import structlog

from starburst.aio import first_of
from starburst.app.config import Config
from starburst.app.config.home import Home
from starburst.app.daemon.controller import Controller
from starburst.app.daemon.home_lock import HomeLock
from starburst.app.daemon.progress_inbox import ProgressInbox
from starburst.app.leadership.election import Election, replica_name
from starburst.app.leadership.shared_home import check_home, note_home
from starburst.app.wiring.build import BUSY_MS, build
from starburst.app.wiring.resuming import resume
from starburst.cli.service.config import parts_of
from starburst.policy.waiting import hours
from starburst.store.leader import LeaderClaim, epoch_fence
from starburst.store.store import Store
from starburst.web.serving.listen import url_of
from starburst.web.serving.supervisor import answering

log = structlog.get_logger()

ANY_ADDRESS = ("0.0.0.0", "::")


@dataclass
class Replica:
    """A scheduler of a store, and the API that answers beside it, whether it leads or stands by."""

    home: Home
    config: Config
    store: Store
    held: HomeLock
    #: Where the API answers; None without an API.
    sock: socket.socket | None
    #: URL at which other replicas reach that; "" is the address that it is bound to.
    advertise: str
    #: The log is for people.
    text: bool = field(kw_only=True)
    _inbox: ProgressInbox = field(default_factory=ProgressInbox, init=False)

    async def run(self, *, standby: bool) -> None:
        """Lead until a signal, or until `starburst drain`; before that stand by for as long as another leads.

        Raises:
            FencedError: another process has taken the lead.
            UserError: another process leads, and this one is not to stand by; or its home is not theirs.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        check_home(self.home, self.config, self.store, standby=standby)
        election = self._election(shared=standby or self.store.path != self.home.database)
        election.start()
        signal.signal(signal.SIGCONT, partial(_end_if_late, election))
        try:
            async with AsyncExitStack() as stack:
                await self._lead(election, stop, stack, standby=standby)
        finally:
            election.close()

    async def _lead(
        self, election: Election, stop: asyncio.Event, stack: AsyncExitStack, *, standby: bool
    ) -> None:
        """Wait for the lead, answering questions meanwhile, and schedule until `stop` or its end."""
        name = election.name if election.shared else ""
        api = answering(self.home, self.config.http, self.sock, self._inbox, name, text=self.text)
        stands_by = not election.epoch
        if stands_by:
            await stack.enter_async_context(api)
            ended = await first_of({"led": election.led(patient=standby), "stop": stop.wait()})
            if ended == "stop":
                return
        self.store.fence = epoch_fence(election.epoch)
        note_home(self.home, self.store)
        # A long queue takes many seconds to load. The event loop goes on: the API hears that it does.
        resumed = await self.store.in_order(partial(resume, self.config.settings(), self.store))
        controller = build(
            self.home,
            self.config,
            self.store,
            inbox=self._inbox,
            held=self.held,
            election=election,
            resumed=resumed,
        )
        gc.freeze()  # a full collection would walk all jobs that were loaded
        jobs = len(controller.scheduler.state.jobs)
        log.info("up", home=str(self.home.root), pid=os.getpid(), jobs=jobs, **parts_of(self.config))
        if not stands_by:
            await stack.enter_async_context(api)
        with election.leading():
            await first_of({"scheduler": controller.run(stop), "leader": _until_over(election, stop)})
        self._say_down(controller)

    def _election(self, *, shared: bool) -> Election:
        """Without others on this store its home's lock is enough: nothing has to be renewed."""
        claim = LeaderClaim(replica_name(), self._address(), renews=shared)
        return Election(lambda: Store.open(self.home.store, BUSY_MS), claim, self.held)

    def _address(self) -> str:
        """Where other replicas reach this one's API; "" without an API."""
        if self.advertise or self.sock is None:
            return self.advertise if self.sock is not None else ""
        host, port = self.sock.getsockname()[:2]
        return f"http://{socket.gethostname()}:{port}" if host in ANY_ADDRESS else url_of(self.sock)

    def _say_down(self, controller: Controller) -> None:
        state = controller.scheduler.state
        running, machines = sum(job.alive for job in state.jobs.values()), len(state.fleet.instances)
        note = f"{running} job{' runs' if running == 1 else 's run'} on" if running else "no job runs"
        log.info("down", running=running, machines=machines, note=note)
        if state.fleet.instances:
            lease = hours(self.config.cloud.lease)
            log.warning("machines-run-on", note=f"they end by themselves in {lease} unless starburst is up")


def _end_if_late(election: Election, _number: int, _frame: FrameType | None) -> None:
    """End a leader that was stopped for longer than its lease, before it does anything else."""
    if election.epoch and not election.certain():
        log.error("lease-lost", error="this process was stopped for longer than its lease; start it again")
        os._exit(1)


async def _until_over(election: Election, stop: asyncio.Event) -> None:
    """End the scheduler when the lead is to be given back; raises FencedError when another has taken it."""
    await election.over()
    log.info("drained", note="another one may lead now")
    stop.set()
    await asyncio.Event().wait()
