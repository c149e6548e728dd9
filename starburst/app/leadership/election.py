"""The election of one process: a thread that looks at the leader's row, takes it, and renews it.

The thread has a connection of its own, because the scheduler's may wait for a disk, and the event loop may be
busy with a step, for longer than the lease lasts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from starburst.app.daemon.home_lock import HomeLock
from starburst.app.errors import UserError
from starburst.app.leadership.lease import TERMS, LeaseTerms, LeaseWatch
from starburst.runs.fence import LeaderFence
from starburst.store import leader
from starburst.store.errors import BusyError, FencedError
from starburst.store.leader import LeaderClaim, LeaderRecord
from starburst.store.store import Store

log = structlog.get_logger()

#: Wall seconds between two looks of the event loop at what the thread has found.
LOOK_S = 0.1
#: A leader whose event loop has not looked for so many seconds hangs, and another one is to lead.
HANG_S = 60.0


def boot_time() -> float:
    """Seconds since the machine started, those that it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def replica_name() -> str:
    """A name for this process."""
    return f"{socket.gethostname()}/{os.getpid()}-{secrets.token_hex(2)}"


class Election:
    """Competes for the lead of a store from `start` to `close`."""

    def __init__(
        self,
        connect: Callable[[], Store],
        claim: LeaderClaim,
        held: HomeLock,
        *,
        terms: LeaseTerms = TERMS,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        """`connect` opens the store anew; `held` is the home's lock, which is taken as soon as it is free."""
        self._connect = connect
        self._claim = claim
        self._held = held
        self._terms = terms
        self._clock = clock
        self._watch = LeaseWatch(terms)
        self._store: Store | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self._trouble = ""
        #: Until when this process leads for certain, by the clock.
        self._until = float("-inf")
        #: The row as last seen.
        self.seen: LeaderRecord | None = None
        #: Number of this process's leadership; 0 before it.
        self.epoch = 0
        #: Why it leads no longer; "" while it does, and before.
        self.lost = ""
        #: When the event loop last looked, by the clock; never while it is not about to.
        self._looked_at = float("inf")
        #: It was asked to give the lead back.
        self.drained = False
        self.fence = LeaderFence(self.certain, lambda: self.epoch)

    @property
    def name(self) -> str:
        """Of this process, in the row."""
        return self._claim.holder

    @property
    def shared(self) -> bool:
        """Whether other processes stand by, or may."""
        return self._claim.renews

    def certain(self) -> bool:
        """Whether this process leads for certain."""
        return not self.lost and self._clock() < self._until

    def start(self) -> None:
        """Begin to compete: a first look now, the others in the thread."""
        self.round()
        if self._claim.renews or not self.epoch:
            self._thread.start()

    def close(self) -> None:
        """Give the lead back, if this process has it, so that a standby takes it at once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._terms.deadline_s)
        if self._thread.is_alive():  # the store does not answer: the lease passes by itself
            return
        self._until = float("-inf")
        try:
            if self.epoch and not self.lost:
                leader.release(self._connected(), self.epoch)
        except Exception as error:  # of a driver, too: without rounds a leader ends and a standby never leads
            log.warning("lead-not-given-back", error=str(error))
        if self._store is not None:
            self._store.close()

    async def led(self, *, patient: bool) -> None:
        """Wait until this process leads.

        Raises:
            UserError: another process leads, and this one is not `patient`.
        """
        told = ""
        while not self.epoch:
            if not patient and self._watch.renewed and self.seen is not None:
                raise UserError(
                    f"{self.seen.holder} leads this store; stop it, or start with --standby to take over "
                    "from it"
                )
            who = "" if self.seen is None else self.seen.holder
            if who and who != told:
                told = who
                log.info("stands-by", leader=who, epoch=0 if self.seen is None else self.seen.epoch)
            await asyncio.sleep(LOOK_S)

    @contextmanager
    def leading(self) -> Iterator[None]:
        """What fails within, once this process does not certainly lead, has failed for that: a later leader
        has the store and the journals.

        Raises:
            FencedError: in place of such an error.
        """
        try:
            yield
        except Exception as error:
            if self.certain() or isinstance(error, FencedError):
                raise
            raise FencedError(self.lost or f"another process may lead: {error}") from error

    async def over(self) -> None:
        """Wait until the lead is to be given back.

        Raises:
            FencedError: another process leads, or may.
        """
        while not self.drained:
            self._looked_at = self._clock()
            if self.lost:
                raise FencedError(self.lost)
            await asyncio.sleep(LOOK_S)

    def _run(self) -> None:
        while not self._stop.wait(self.pause_s()):
            self.round()
            if self.lost or (self.epoch and not self._claim.renews):
                return

    def pause_s(self) -> float:
        """Wall seconds until the next round."""
        return self._terms.renew_s if self.epoch and not self._trouble else self._terms.look_s

    def round(self) -> None:
        """Look once, and take or renew the lead if that may be; errors are logged and tried again."""
        try:
            self._held.take()
        except OSError as error:
            log.warning("home-not-locked", error=str(error))
        try:
            if self._clock() - self._looked_at > HANG_S:
                self.lost = f"the scheduler hung for {HANG_S:g} s, and the lead was not renewed"
            elif self.epoch:
                self._renew(self._connected())
            else:
                self._compete(self._connected())
        except FencedError as error:
            self.lost = str(error)
        except Exception as error:  # of a driver, too: without rounds a leader ends and a standby never leads
            if not self._trouble:
                log.warning("lease-trouble", error=str(error))
            self._trouble = str(error) or repr(error)
        else:
            self._trouble = ""

    def _compete(self, store: Store) -> None:
        self.seen = leader.leader_record(store)
        self._watch.observe(self.seen, self._clock())
        if not self._watch.may_take(self._clock(), self._held.key, locked=self._held.held):
            return
        sent_at = self._clock()
        try:
            epoch = leader.take(store, self.seen, replace(self._claim, home=self._held.key))
        except BusyError:  # perhaps of the leader that is gone
            leader.make_way(store)
            raise
        if epoch is not None:
            self._lead_until(sent_at)
            self.epoch = epoch
            log.info("leads", name=self.name, epoch=epoch)

    def _renew(self, store: Store) -> None:
        sent_at, epoch = self._clock(), self.epoch
        self.seen = leader.renew(store, epoch, self._held.key)
        self._lead_until(sent_at)
        self.drained = self.seen.drain == epoch

    def _lead_until(self, sent_at: float) -> None:
        self._until = sent_at + self._terms.deadline_s if self._claim.renews else float("inf")

    def _connected(self) -> Store:
        if self._store is None:
            self._store = self._connect()
        return self._store
