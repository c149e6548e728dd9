"""`starburst reap`: one manual round of the reaper."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.config import Config, load_config
from starburst.app.config.home import Home
from starburst.app.daemon.orphan_ledger import OrphanLedger
from starburst.app.daemon.reaper import Fate, Reaper, ReapRules
from starburst.app.errors import UserError
from starburst.app.leadership.status import scheduler_of
from starburst.app.times import age, iso
from starburst.app.wiring.build import cloud_of, offers_of, reaping
from starburst.app.wiring.stored import stored_config
from starburst.cli.backend.notes import note_if_down, now_of
from starburst.cli.backend.session import open_store
from starburst.cli.output import Column, Format, Listing, OutputOption, say
from starburst.core.model.decisions import usd
from starburst.domain.cloud import Instance
from starburst.domain.money import Money
from starburst.log import set_up_log
from starburst.store.listings import queries
from starburst.store.store import Store

SAID = {
    Fate.CLAIMED: "stays: this home's jobs have it",
    Fate.YOUNG: "stays for now: nobody claims it, but it is new",
    Fate.UNCLAIMED: "ends: nobody claims it",
    Fate.LEASED: "stays: another store's, and its lease runs",
    Fate.ABANDONED: "ends: another store's, and its lease has passed",
}


#: Wall seconds until an ended machine should be gone, and between two checks.
GONE_S, LOOK_S = 180.0, 0.5


@dataclass(frozen=True, slots=True)
class OrphanRow:
    """A machine of the cloud and its fate."""

    machine: Instance
    fate: Fate
    ends: bool
    rate: Money | None

    @property
    def said(self) -> str:
        """The fate in words."""
        if self.fate is Fate.ABANDONED and not self.ends:
            return "stays: another store's; ends with --others, for its lease has passed"
        return SAID[self.fate]


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """All machines that were found, and the ids of those that should be gone but are not."""

    rows: list[OrphanRow]
    left: Sequence[str] = ()


def reap(
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Only say what would be ended; or end it.")
    ] = True,
    others: Annotated[
        bool, typer.Option("--others", help="Also machines of other stores whose lease has passed.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A starburst.yaml; if absent, as starburst up last ran with it."),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """End rented machines that no job claims. Exit 1: there are some, and they were not ended."""
    home = Home.default()
    set_up_log(text=sys.stderr.isatty())
    with open_store() as store:
        loaded = stored_config(store) if config is None else load_config(config)
        with _alone(home, store, dry_run=dry_run) as is_down:
            rules = reaping(loaded, store)
            rules = replace(rules, others=others, after_s=0.0 if is_down else rules.after_s)
            # The scheduler's process ends machines of the embedded cloud.
            wait_s = 0.0 if is_down and loaded.cloud.kind == "local" else GONE_S
            found = asyncio.run(_round(home, loaded, store, rules, None if dry_run else wait_s))
        listing(now_of(store)).print(found.rows, output)
    ends = [row for row in found.rows if row.ends]
    if output.for_people and ends:
        say(_summary(ends, found.left, dry_run=dry_run))
        if not dry_run:
            with open_store(home) as store:
                note_if_down(store)
    raise typer.Exit(1 if found.left or (dry_run and ends) else 0)


@contextmanager
def _alone(home: Home, store: Store, *, dry_run: bool) -> Iterator[bool]:
    """Whether no scheduler runs; the lock of the home keeps one from starting meanwhile."""
    if scheduler_of(home, store) is not None:
        yield False
    elif dry_run:
        yield True
    else:
        with home.lock():
            yield True


async def _round(
    home: Home, config: Config, store: Store, rules: ReapRules, wait_s: float | None
) -> FoundMachine:
    """Look, end machines unless `wait_s` is None, and wait at most `wait_s` for their end."""
    offers = offers_of(config.cloud)
    prices = {offer.name: offer.price_per_hour for offer in offers}

    def now() -> float:
        return now_of(store)

    reaper = Reaper(
        cloud_of(home, config, store, queries.pace(store), now),
        rules,
        OrphanLedger(store),
        claimed=lambda: {machine.id for machine in queries.instance_records(store)},
        now=now,
        rate=prices.get,
        in_order=store.in_order,
    )
    try:
        looked = await reaper.look()
        rows = [OrphanRow(it, fate, rules.ends(fate), _rate(it, prices)) for it, fate in looked]
        if wait_s is None:
            return FoundMachine(rows)
        ends = [row for row in rows if row.ends]
        taken = await asyncio.gather(*(reaper.end(row.machine, row.fate) for row in ends))
        refused = {row.machine.id for row, took in zip(ends, taken, strict=True) if not took}
        told = {row.machine.id for row in ends} - refused
        return FoundMachine(rows, sorted(refused | await _left(reaper, told, wait_s)))
    except Exception as error:  # an adapter may raise anything
        raise UserError(f"the cloud could not be asked for its machines ({error}); try again") from None


def _rate(machine: Instance, prices: Mapping[str, Money | None]) -> Money | None:
    """What all machines of an instance cost an hour; None if unknown."""
    price = prices.get(machine.offer_name)
    return None if price is None else price * machine.nodes


async def _left(reaper: Reaper, told: set[str], wait_s: float) -> set[str]:
    """The machines that still exist after `wait_s` wall seconds."""
    give_up = time.monotonic() + wait_s
    while told and time.monotonic() < give_up:
        await asyncio.sleep(LOOK_S)
        told &= {machine.id for machine, _ in await reaper.look()}
    return told if wait_s else set()


def _summary(ends: list[OrphanRow], left: Sequence[str], *, dry_run: bool) -> str:
    count = f"{len(ends)} machine{'' if len(ends) == 1 else 's'}"
    known = [row.rate.micro_usd for row in ends if row.rate is not None]
    cost = f"{usd(sum(known))} per hour"
    if len(known) < len(ends):
        cost += f" and the unknown price of {len(ends) - len(known)}"
    if dry_run:
        return f"would end {count}, costing {cost}; end with --no-dry-run"
    if left:
        return f"told {count} to end, costing {cost}; still there: {', '.join(left)}; try again"
    return f"told {count} to end, costing {cost}"


def listing(now: float) -> Listing[OrphanRow]:
    """The machine listing at `now`."""
    return Listing(
        kind="instance",
        name=lambda row: row.machine.id,
        keys=lambda row: {
            "id": row.machine.id,
            "controller": row.machine.controller,
            "offer": row.machine.offer_name,
            "phase": row.machine.phase.value,
            "launched_at": iso(row.machine.launched_at),
            "expires_at": iso(row.machine.expires_at),
            "usd_per_hour": None if row.rate is None else float(row.rate.dollars),
            "fate": row.fate.value,
            "ends": row.ends,
        },
        columns=(
            Column("INSTANCE", lambda row: row.machine.id),
            Column("PHASE", lambda row: row.machine.phase.value),
            Column("OFFER", lambda row: row.machine.offer_name),
            Column("AGE", lambda row: age(now - row.machine.launched_at), right=True),
            Column("$/H", lambda row: "?" if row.rate is None else str(row.rate), right=True),
            Column("FATE", lambda row: row.said, narrow="fold"),
            Column("STORE", lambda row: row.machine.controller, wide=True),
        ),
        empty="no rented machines",
    )
