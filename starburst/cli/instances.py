"""`starburst instances`: the rented machines."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.cli.output import Column, Format, Listing, OutputOption
from starburst.cli.session import now_of, open_store
from starburst.cli.times import age, iso, local_clock
from starburst.core.fleet import InstanceRecord
from starburst.store import queries


def instances(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the rented machines and their cost."""
    with open_store() as store:
        listing(now_of(store)).print(queries.instance_records(store, include_ended=all_), output)


def listing(now: float) -> Listing[InstanceRecord]:
    """Machines as they are listed at `now`."""
    clock = local_clock(now)

    def up_s(machine: InstanceRecord) -> float:
        if machine.launched_at is None:
            return 0.0
        return max(0.0, (now if machine.ended_at is None else machine.ended_at) - machine.launched_at)

    def keys(machine: InstanceRecord) -> dict[str, object]:
        price = machine.offer.price_per_hour
        return {
            "id": machine.id,
            "phase": machine.phase.value,
            "offer": machine.offer.name,
            "jobs": list(machine.billed_to),
            "usd_per_hour": float(machine.rate.dollars),
            "price_known": price is not None,
            "spot": machine.offer.spot,
            "preempted": machine.preempted,
            "requested_at": iso(machine.requested_at),
            "launched_at": iso(machine.launched_at),
            "ended_at": iso(machine.ended_at),
            "billed_s": round(up_s(machine), 3),
            "cost_usd": float(machine.cost(now).dollars),
        }

    def when(at: float | None) -> str:
        return "" if at is None else clock(at)

    return Listing(
        kind="instance",
        name=lambda machine: machine.id,
        keys=keys,
        columns=(
            Column("INSTANCE", lambda machine: machine.id),
            Column("PHASE", lambda machine: machine.phase.value),
            Column("OFFER", lambda machine: machine.offer.name),
            Column("JOBS", lambda machine: ", ".join(machine.billed_to), narrow="fold"),
            Column("UP", lambda machine: age(up_s(machine)), right=True),
            Column("$/H", lambda machine: str(machine.rate), right=True),
            Column("COST", lambda machine: str(machine.cost(now)), right=True),
            Column("ASKED FOR", lambda machine: when(machine.requested_at), wide=True),
            Column("LAUNCHED", lambda machine: when(machine.launched_at), wide=True),
            Column("ENDED", lambda machine: when(machine.ended_at), wide=True),
            Column("PREEMPTED", lambda machine: "yes" if machine.preempted else "", wide=True),
        ),
        empty="no rented machines",
    )
