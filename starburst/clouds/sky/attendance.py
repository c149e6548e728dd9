"""Exchanges with one machine while it takes runs: often while tasks change there, seldom while none does.

Each exchange brings the machine what it does not know yet and returns how its tasks stand. Exchanges that
fail make a machine unreachable, never gone: only its cloud can say that (`machines/liveness.py`).
"""

from __future__ import annotations

from functools import partial

import structlog

from starburst.clouds.sky.access.ports import LocalError, SkyError, SkyUnreachableError
from starburst.clouds.sky.machines.keepalive import is_secured, note_protection, secure
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.price import is_priced, learn_price
from starburst.clouds.sky.runs.exchange import ExchangeResult, Exchanges
from starburst.clouds.sky.runs.run_table import Activity
from starburst.core.model.events import Event, InstanceReachable, InstanceUnfit, InstanceUnreachable

log = structlog.get_logger()

#: Wall seconds between exchanges, by what goes on on the machine.
PAUSES_S = {Activity.CHANGING: 1.0, Activity.STEADY: 5.0, Activity.NONE: 15.0}
#: Exchanges in a row that must fail before a machine counts as unreachable.
MISSES = 2


class Attendance:
    """The exchanges with one machine, from its first login to its end."""

    def __init__(self, machine: RentedMachine, exchanges: Exchanges) -> None:
        self._machine = machine
        self._context = machine.context
        self._exchanges = exchanges
        #: Exchanges in a row that failed, and scheduler time of the first of them.
        self._misses = 0
        self._silent_since = 0.0
        self._unfit_reported = False

    async def run(self) -> None:
        """Exchange until the machine no longer takes runs."""
        machine = self._machine
        self._ensure_secured()
        if not is_priced(machine):
            self._context.tasks.ensure(("price", machine.id), partial(learn_price, machine))
        while machine.takes_runs:
            try:
                pause_s = await self._round()
            finally:  # also if it broke off: who waits for the first one begins anew
                machine.greeted.set()
            await machine.wake.wait(pause_s)
        machine.answers = None
        machine.greeted.set()

    async def _round(self) -> float:
        """One exchange and its consequences; wall seconds until the next one.

        The lease is renewed only while exchanges succeed, so that a machine that is of no use ends itself:
        after a restart one of them comes first, for a renewal without an answer may have been heeded.
        """
        machine = self._machine
        is_first = machine.heard_at is None
        renews = machine.renewal_due and not self._misses and not is_first
        lease_s = self._context.settings.lease_s if renews else None
        try:
            if renews:
                machine.expect_renewal()
            result = await self._exchanges.exchange(machine, lease_s)
        except (LocalError, OSError) as error:
            log.error("exchange-waits", instance=machine.id, error=str(error))
            return PAUSES_S[Activity.STEADY]
        except SkyUnreachableError as error:
            self._missed(str(error), responded=False)
        except SkyError as error:
            self._missed(str(error), responded=True)
        except Exception as error:  # affects this machine only
            log.exception("exchange-failed", instance=machine.id)
            self._missed(f"{type(error).__name__}: {error}", responded=True)
        else:
            if renews and result.renewed and not result.lapsed:
                machine.expect_renewal(heard=True)
            machine.renewal_due = machine.renewal_due and not (renews and result.renewed)
            pause_s = self._succeeded(result)
            return 0.0 if is_first and machine.renewal_due else pause_s
        return PAUSES_S[Activity.STEADY if machine.answers is False else Activity.CHANGING]

    def _succeeded(self, result: ExchangeResult) -> float:
        machine, table = self._machine, self._exchanges.table
        machine.heard()
        note_protection(machine, kept=result.kept, armed=result.armed)
        self._ensure_secured()
        if result.unfit:
            self._report_unfit(result.unfit)
        if result.trouble:
            self._missed(result.trouble, responded=True)
            return PAUSES_S[Activity.STEADY]
        self._misses = 0
        self._report_reachability(answers=True)
        if result.lapsed:  # Starburst was away too long; what comes home from there still does
            machine.expect_end()
            self._report_unfit("its lease has passed")
            if not table.has_runs_on(machine.id):
                log.warning("lease-passed", instance=machine.id)
                machine.request_end()
        return 0.0 if result.more else PAUSES_S[table.activity(machine.id)]

    def _ensure_secured(self) -> None:
        machine = self._machine
        if machine.takes_runs and not is_secured(machine):
            self._context.tasks.ensure(("keep", machine.id), partial(secure, machine))

    def _missed(self, why: str, *, responded: bool) -> None:
        """An exchange failed; `responded`: the machine answered, but not in a way that is of use.

        A machine that does not answer counts as unreachable only after its cloud was asked: if it is gone,
        that is what is reported.
        """
        machine = self._machine
        self._misses += 1
        if not responded:
            machine.fitness.silent()
        if self._misses == 1:
            self._silent_since = self._context.clock.now()
            log.warning("machine-does-not-answer", instance=machine.id, error=why)
            machine.suspect()
        checked = machine.checked_at > self._silent_since
        if self._misses >= MISSES and (responded or checked):
            self._report_reachability(answers=False, why=why if responded else "")

    def _report_unfit(self, why: str) -> None:
        if not self._unfit_reported:
            self._unfit_reported = True
            self._context.report(InstanceUnfit(self._machine.id, why))

    def _report_reachability(self, *, answers: bool, why: str = "") -> None:
        if self._machine.answers is not answers and self._machine.takes_runs:
            self._machine.answers = answers
            self._context.report(reachability(self._machine, answers=answers, why=why))


def reachability(machine: RentedMachine, *, answers: bool, why: str = "") -> Event:
    """The event that a machine answers or does not."""
    if answers:
        return InstanceReachable(machine.id)
    return InstanceUnreachable(machine.id, why, unsure=not machine.surely_lives)
