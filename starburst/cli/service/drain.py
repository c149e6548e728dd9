"""`starburst drain`: the scheduler that leads gives the lead back, and another one takes over."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.cli.backend.session import open_store
from starburst.cli.output import say
from starburst.store.leader import LeaderRecord, ask_drain, leader_record
from starburst.store.store import Store

#: Wall seconds between two looks.
LOOK_S = 0.1


def drain(
    timeout: Annotated[
        float, typer.Option("--timeout", min=1.0, help="Seconds to wait for another one that leads.")
    ] = 15.0,
) -> None:
    """Have the scheduler end, and one that stands by take over. Jobs run on."""
    with open_store() as store:
        began = leader_record(store)
        if began is None or not began.holder:
            raise UserError("no starburst leads; there is nothing to drain")
        if not began.renews:
            raise UserError(
                f"{began.holder} runs alone, and none could take over; start it and another one with "
                "--standby, or end it with SIGTERM"
            )
        ask_drain(store, began.epoch)
        asked_at = time.monotonic()
        now = _next(store, began, asked_at + timeout)
    took_s = time.monotonic() - asked_at
    if now.epoch != began.epoch:
        say(f"{now.holder or 'another one'} leads, in place of {began.holder}, after {took_s:.1f} s")
        return
    if now.holder:
        raise UserError(f"{began.holder} has not given the lead back within {timeout:g} s; look at its log")
    say(f"{began.holder} has given the lead back, and none stands by: start one with starburst up --standby")
    raise typer.Exit(1)


def _next(store: Store, began: LeaderRecord, give_up: float) -> LeaderRecord:
    """The row once another one leads, or at the end of the time."""
    now = began
    while now.epoch == began.epoch and time.monotonic() < give_up:
        time.sleep(LOOK_S)
        now = leader_record(store) or now
    return now
