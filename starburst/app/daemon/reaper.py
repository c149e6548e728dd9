"""The reaper: renews the leases of claimed instances, and ends instances that no record claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

import structlog

from starburst.aio import answer_within
from starburst.app.daemon.orphan_ledger import OrphanLedger, ReapedMachine
from starburst.domain.cloud import Instance, InstancePhase
from starburst.domain.money import Money
from starburst.runs.fence import NO_FENCE, LeaderFence
from starburst.runs.ports import Cloud

T = TypeVar("T")

log = structlog.get_logger()

ENDED = (InstancePhase.GONE, InstancePhase.FAILED)
#: Timeout of a call to the cloud, wall seconds.
CALL_TIMEOUT_S = 60.0


class Fate(str, Enum):
    """Classification of an instance that has not ended; it determines what the reaper does."""

    CLAIMED = "claimed"  # the store has a record of it: its lease is renewed
    YOUNG = "young"  # ours and unclaimed, but a claim may still arrive: nothing is done
    UNCLAIMED = "unclaimed"  # ours and unclaimed: it is ended
    LEASED = "leased"  # another controller's, with a valid lease: nothing is done
    ABANDONED = "abandoned"  # another controller's, with an expired lease: ended if `others` is set


@dataclass(frozen=True, slots=True)
class ReapRules:
    """Rules that decide which instances are ended."""

    #: Id of our store.
    controller: str
    #: Age from which an unclaimed instance of ours is ended; scheduler seconds.
    after_s: float = 0.0
    #: Whether to end instances that other controllers of our owner have abandoned.
    others: bool = False

    def fate(self, machine: Instance, claimed: Collection[str], now: float) -> Fate:
        """The class of an instance that has not ended. One without a controller, or another controller's
        without an expiry, is never ended.
        """
        if machine.id in claimed and machine.controller in (self.controller, ""):
            return Fate.CLAIMED
        if machine.controller != self.controller:
            leased = machine.expires_at is None or now < machine.expires_at
            return Fate.LEASED if leased or not machine.controller else Fate.ABANDONED
        age_s = max(0.0, now - machine.launched_at)  # clocks differ
        return Fate.YOUNG if age_s < self.after_s else Fate.UNCLAIMED

    def ends(self, fate: Fate) -> bool:
        """Whether instances of this class are ended."""
        return fate is Fate.UNCLAIMED or (self.others and fate is Fate.ABANDONED)


class OrderedCall(Protocol):
    """Makes a blocking call outside of the event loop, after all earlier ones (see `Store.in_order`)."""

    async def __call__(self, call: Callable[[], T], /) -> T:
        """The result of the call."""


class Reaper:
    """Periodically lists all instances of our owner, renews the claimed ones and ends others by its rules."""

    def __init__(
        self,
        cloud: Cloud,
        rules: ReapRules,
        book: OrphanLedger,
        *,
        claimed: Callable[[], Collection[str]],
        now: Callable[[], float],
        rate: Callable[[str], Money | None],
        in_order: OrderedCall,
        fence: LeaderFence = NO_FENCE,
    ) -> None:
        """`rate` gives the price per hour of an offer; `in_order` makes calls on the ledger's store.

        Without certainty that this process leads nothing is ended; leases are renewed all the same, so that
        jobs go on under whichever process leads.
        """
        self._cloud = cloud
        self._rules = rules
        self._book = book
        self._claimed = claimed
        self._now = now
        self._rate = rate
        self._in_order = in_order
        self._fence = fence
        self._told: set[str] = set()

    async def rounds(self, period_s: float) -> None:
        """Run a round, then pause `period_s` wall seconds, endlessly; a failed round is logged."""
        while True:
            try:
                await self.round()
            except Exception as error:  # adapters may raise anything; the next round tries again
                log.warning("reaper-failed", error=repr(error))
            await asyncio.sleep(period_s)

    async def look(self) -> list[tuple[Instance, Fate]]:
        """Every instance that has not ended, with its class.

        The cloud is listed before the claims are read: each instance was stored as an intent before its
        launch, so a listed instance without a claim has no record. Claims from before the listing also count,
        since an instance may end and lose its claim meanwhile. `ReapRules.after_s` protects instances of a
        scheduler on a copy of this store, whose intents are not in ours.
        """
        found, now = await self._list()
        await self._confirm(found, now)
        return found

    async def _list(self) -> tuple[list[tuple[Instance, Fate]], float]:
        """As `look`, without the ledger, and the time of the classification."""
        before = set(self._claimed())
        with answer_within(CALL_TIMEOUT_S):
            owned = await self._cloud.owned()
        machines = [machine for machine in owned if machine.phase not in ENDED]
        claimed, now = before.union(self._claimed()), self._now()
        return [(machine, self._rules.fate(machine, claimed, now)) for machine in machines], now

    async def _confirm(self, found: list[tuple[Instance, Fate]], now: float) -> None:
        """Record the end of instances of the ledger that the cloud no longer lists."""
        alive = {machine.id for machine, _ in found}
        await self._in_order(lambda: self._book.confirm(alive, now))

    async def round(self) -> None:
        """Renew the leases of claimed instances, which holds off their dead-man switches, and end instances
        according to the rules.

        A cloud that lists its instances slowly, or not at all, holds up no renewal.

        Raises:
            Exception: the cloud could not be listed, leases not renewed, or the ledger not written.
        """
        known = sorted(self._claimed())
        renewed, listed = await asyncio.gather(self._renew(known), self._list(), return_exceptions=True)
        if isinstance(listed, BaseException):
            raise listed
        found, now = listed
        self._told &= {machine.id for machine, _ in found}
        for machine, fate in found:
            if fate is Fate.ABANDONED and not self._rules.others and machine.id not in self._told:
                self._told.add(machine.id)
                mend = "set cloud.reap_others: true, or: starburst reap --others --no-dry-run"
                told = {"instance": machine.id, "offer": machine.offer_name, "controller": machine.controller}
                log.warning("reap-would", **told, mend=mend)
        ends = [self.end(machine, fate) for machine, fate in found if self._rules.ends(fate)]
        new = [machine.id for machine, fate in found if fate is Fate.CLAIMED and machine.id not in known]
        # Renewal does not wait for the disk: the ledger is written concurrently.
        work = (self._renew(new), self._confirm(found, now), *ends)
        renewed_too, confirmed, *_ = await asyncio.gather(*work, return_exceptions=True)
        for result in (renewed, renewed_too, confirmed):
            if isinstance(result, BaseException):
                raise result

    async def end(self, machine: Instance, fate: Fate) -> bool:
        """Enter an instance in the ledger, then terminate it; whether the cloud accepted the request."""
        reaped = ReapedMachine.of(machine, fate.value, self._rate(machine.offer_name), self._now())
        if await self._in_order(lambda: self._book.note(reaped)):
            told = {"instance": machine.id, "offer": machine.offer_name, "controller": machine.controller}
            log.warning("reaped", **told, why=fate.value)
        try:
            with answer_within(CALL_TIMEOUT_S):
                self._fence.check()
                await self._cloud.terminate(machine.id)
        except Exception as error:  # one failure must not stop the others; the next round repeats it
            log.warning("reap-failed", instance=machine.id, error=repr(error))
            return False
        return True

    async def _renew(self, ids: list[str]) -> None:
        with answer_within(CALL_TIMEOUT_S):
            await self._cloud.renew(ids)
