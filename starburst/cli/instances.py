"""`starburst instances`: the rented machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from starburst.app.reaped import Reaped, ReapedBook
from starburst.cli.output import Column, Format, Listing, OutputOption
from starburst.cli.session import now_of, open_store
from starburst.cli.times import age, iso, local_clock
from starburst.core.fleet import InstanceRecord
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.store import queries


@dataclass(frozen=True, slots=True)
class Row:
    """A machine as it is listed."""

    machine: InstanceRecord
    phase: str

    def up_s(self, now: float) -> float:
        """Seconds billed up to `now`, as far as is known."""
        launched_at, ended_at = self.machine.launched_at, self.machine.ended_at
        return 0.0 if launched_at is None else max(0.0, (now if ended_at is None else ended_at) - launched_at)

    def cost_at_most(self, now: float) -> Money:
        """The bill; of a machine that has not come up yet counted from when it was asked for."""
        machine = self.machine
        if machine.launched_at is None and machine.phase is not InstancePhase.FAILED:
            return machine.rate.for_seconds(max(0.0, now - machine.requested_at))
        return machine.cost(now)


def instances(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the rented machines and their cost."""
    with open_store() as store:
        rows = [Row(it, it.phase.value) for it in queries.instance_records(store, include_ended=all_)]
        rows += [_reaped(it) for it in ReapedBook(store).all() if all_ or it.ended_at is None]
        listing(now_of(store)).print(rows, output)


def _reaped(it: Reaped) -> Row:
    """One that nobody claimed: no job of ours bears its bill."""
    rate = None if it.rate is None else Money(it.rate)
    machine = InstanceRecord(
        it.id,
        Offer(it.offer, Resources(), rate),
        rate or Money(),
        it.launched_at,
        launched_at=it.launched_at,
        ended_at=it.ended_at,
    )
    return Row(machine, "reaping" if it.ended_at is None else "reaped")


def listing(now: float) -> Listing[Row]:
    """Machines as they are listed at `now`."""
    clock = local_clock(now)

    def when(at: float | None) -> str:
        return "" if at is None else clock(at)

    def cost(row: Row) -> str:
        most = row.cost_at_most(now)
        return str(most) if most == row.machine.cost(now) else f"≤{most}"

    return Listing(
        kind="instance",
        name=lambda row: row.machine.id,
        keys=lambda row: _keys(row, now),
        columns=(
            Column("INSTANCE", lambda row: row.machine.id),
            Column("PHASE", lambda row: row.phase),
            Column("OFFER", lambda row: row.machine.offer.name),
            Column("JOBS", lambda row: ", ".join(row.machine.billed_to), narrow="fold"),
            Column("UP", lambda row: age(row.up_s(now)), right=True),
            Column("$/H", lambda row: str(row.machine.rate), right=True),
            Column("COST", cost, right=True),
            Column("ASKED FOR", lambda row: when(row.machine.requested_at), wide=True),
            Column("LAUNCHED", lambda row: when(row.machine.launched_at), wide=True),
            Column("ENDED", lambda row: when(row.machine.ended_at), wide=True),
            Column("PREEMPTED", lambda row: "yes" if row.machine.preempted else "", wide=True),
        ),
        empty="no rented machines",
    )


def _keys(row: Row, now: float) -> dict[str, object]:
    machine = row.machine
    return {
        "id": machine.id,
        "phase": row.phase,
        "offer": machine.offer.name,
        "jobs": list(machine.billed_to),
        "usd_per_hour": float(machine.rate.dollars),
        "price_known": machine.offer.price_per_hour is not None,
        "spot": machine.offer.spot,
        "preempted": machine.preempted,
        "requested_at": iso(machine.requested_at),
        "launched_at": iso(machine.launched_at),
        "ended_at": iso(machine.ended_at),
        "billed_s": round(row.up_s(now), 3),
        "cost_usd": float(machine.cost(now).dollars),
        "cost_at_most_usd": float(row.cost_at_most(now).dollars),
    }
