"""`starburst instances`: the rented machines."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.app.jobs.serializers import InstanceRow, instance_keys
from starburst.app.times import age, local_clock
from starburst.cli.backend.notes import note_if_forgotten
from starburst.cli.backend.session import open_backend
from starburst.cli.output import Column, Format, Listing, OutputOption


def instances(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the rented machines and their cost."""
    with open_backend() as backend:
        if output.for_people:
            note_if_forgotten()
        rows = backend.instances(include_ended=all_)
        listing(backend.now()).print(rows, output)


def _offer(row: InstanceRow) -> str:
    lost = f", {row.nodes_lost} lost" if row.nodes_lost else ""
    return row.offer if row.nodes == 1 else f"{row.nodes} × {row.offer}{lost}"


def listing(now: float) -> Listing[InstanceRow]:
    """The machine listing at `now`."""
    clock = local_clock(now)

    def when(at: float | None) -> str:
        return "" if at is None else clock(at)

    def cost(row: InstanceRow) -> str:
        most = row.cost_at_most
        return str(most) if most == row.cost else f"≤{most}"

    return Listing(
        kind="instance",
        name=lambda row: row.id,
        keys=instance_keys,
        columns=(
            Column("INSTANCE", lambda row: row.id),
            Column("PHASE", lambda row: row.phase),
            Column("OFFER", _offer),
            Column("JOBS", lambda row: ", ".join(row.jobs), narrow="fold"),
            Column("UP", lambda row: age(row.billed_s), right=True),
            Column("$/H", lambda row: str(row.rate), right=True),
            Column("COST", cost, right=True),
            Column("ASKED FOR", lambda row: when(row.requested_at), wide=True),
            Column("LAUNCHED", lambda row: when(row.launched_at), wide=True),
            Column("ENDED", lambda row: when(row.ended_at), wide=True),
            Column("PREEMPTED", lambda row: "yes" if row.preempted else "", wide=True),
        ),
        empty="no rented machines",
    )
