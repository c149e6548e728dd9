"""The reaper renews the leases of claimed machines and ends machines that no job claims."""

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
from starburst.runs.ports import Cloud

T = TypeVar("T")

log = structlog.get_logger()

ENDED = (InstancePhase.GONE, InstancePhase.FAILED)
#: Wall seconds.
CALL_TIMEOUT_S = 60.0


class Fate(str, Enum):
    """What a living machine is to us, and so what becomes of it."""

    CLAIMED = "claimed"  # the store has it: its lease is renewed
    YOUNG = "young"  # ours, and nobody claims it, though a claim may be on its way
    UNCLAIMED = "unclaimed"  # ours, and nobody claims it: it is ended
    LEASED = "leased"  # another controller's, whose lease on it runs: it is none of our business
    ABANDONED = "abandoned"  # another controller's, whose lease has passed: it is ended if we are told to


@dataclass(frozen=True, slots=True)
class ReapRules:
    """Which machines are ended."""

    #: Id of our store.
    controller: str
    #: Age at which a machine of ours that nobody claims is ended; seconds of the scheduler.
    after_s: float = 0.0
    #: Also those that other controllers of our owner have abandoned.
    others: bool = False

    def fate(self, machine: Instance, claimed: Collection[str], now: float) -> Fate:
        """Of a machine that has not ended. One that does not tell whose it is, or till when, is let be."""
        if machine.id in claimed and machine.controller in (self.controller, ""):
            return Fate.CLAIMED
        if machine.controller != self.controller:
            leased = machine.expires_at is None or now < machine.expires_at
            return Fate.LEASED if leased or not machine.controller else Fate.ABANDONED
        age_s = max(0.0, now - machine.launched_at)  # clocks differ
        return Fate.YOUNG if age_s < self.after_s else Fate.UNCLAIMED

    def ends(self, fate: Fate) -> bool:
        """Whether a machine of this fate is ended."""
        return fate is Fate.UNCLAIMED or (self.others and fate is Fate.ABANDONED)


class OrderedCall(Protocol):
    """Makes a blocking call outside of the event loop, after all earlier ones (see `Store.in_order`)."""

    async def __call__(self, call: Callable[[], T], /) -> T:
        """What the call returns."""


class Reaper:
    """Lists every machine of our owner in rounds, renews what is claimed and ends what is not."""

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
    ) -> None:
        """`rate` gives an offer's dollars per hour; `in_order` makes calls on the book's store."""
        self._cloud = cloud
        self._rules = rules
        self._book = book
        self._claimed = claimed
        self._now = now
        self._rate = rate
        self._in_order = in_order
        self._told: set[str] = set()

    async def rounds(self, period_s: float) -> None:
        """Do one round every `period_s` wall seconds, for ever; a failed round is logged and repeated."""
        while True:
            try:
                await self.round()
            except Exception as error:  # an adapter may fail in any way; the next round tries again
                log.warning("reaper-failed", error=repr(error))
            await asyncio.sleep(period_s)

    async def look(self) -> list[tuple[Instance, Fate]]:
        """Every machine that has not ended, and what is to become of it.

        The cloud is listed first and the claims are read second: every machine of the list was an intent in
        the store before it was launched, so one that nobody claims by then is nobody's, unless it was
        claimed before and its end was confirmed while the list was on its way. Rules that wait before they
        believe it allow for a sibling on a copy of this store, whose intents we do not see.
        """
        found, now = await self._list()
        await self._confirm(found, now)
        return found

    async def _list(self) -> tuple[list[tuple[Instance, Fate]], float]:
        """As `look`, and the time that this is true of."""
        before = set(self._claimed())
        with answer_within(CALL_TIMEOUT_S):
            owned = await self._cloud.owned()
        machines = [machine for machine in owned if machine.phase not in ENDED]
        claimed, now = before.union(self._claimed()), self._now()
        return [(machine, self._rules.fate(machine, claimed, now)) for machine in machines], now

    async def _confirm(self, found: list[tuple[Instance, Fate]], now: float) -> None:
        """Note the end of those machines of the book that are alive no more."""
        alive = {machine.id for machine, _ in found}
        await self._in_order(lambda: self._book.confirm(alive, now))

    async def round(self) -> None:
        """Put off the dead-man switches of claimed machines, and end those whose time has come.

        Raises:
            Exception: the cloud could not be listed, or leases not be renewed.
        """
        try:
            found, now = await self._list()
        except Exception:  # nothing may be ended unseen; but what is claimed must not end by itself meanwhile
            await self._renew(sorted(self._claimed()))
            raise
        self._told &= {machine.id for machine, _ in found}
        for machine, fate in found:
            if fate is Fate.ABANDONED and not self._rules.others and machine.id not in self._told:
                self._told.add(machine.id)
                mend = "set cloud.reap_others: true, or: starburst reap --others --no-dry-run"
                told = {"instance": machine.id, "offer": machine.offer_name, "controller": machine.controller}
                log.warning("reap-would", **told, mend=mend)
        ends = [self.end(machine, fate) for machine, fate in found if self._rules.ends(fate)]
        claimed = [machine.id for machine, fate in found if fate is Fate.CLAIMED]
        # Leases do not wait for the disk: the book is written meanwhile.
        work = (self._renew(claimed), self._confirm(found, now), *ends)
        renewed, confirmed, *_ = await asyncio.gather(*work, return_exceptions=True)
        for result in (renewed, confirmed):
            if isinstance(result, BaseException):
                raise result

    async def end(self, machine: Instance, fate: Fate) -> bool:
        """Have a machine ended, and note it first; whether the cloud took the order."""
        reaped = ReapedMachine.of(machine, fate.value, self._rate(machine.offer_name), self._now())
        if await self._in_order(lambda: self._book.note(reaped)):
            told = {"instance": machine.id, "offer": machine.offer_name, "controller": machine.controller}
            log.warning("reaped", **told, why=fate.value)
        try:
            with answer_within(CALL_TIMEOUT_S):
                await self._cloud.terminate(machine.id)
        except Exception as error:  # one that cannot be ended now must not keep the others
            log.warning("reap-failed", instance=machine.id, error=repr(error))
            return False
        return True

    async def _renew(self, ids: list[str]) -> None:
        with answer_within(CALL_TIMEOUT_S):
            await self._cloud.renew(ids)
