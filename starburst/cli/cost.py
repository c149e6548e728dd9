"""`starburst cost`: the cloud's bill."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from starburst.cli.output import Column, Format, Listing, OutputOption
from starburst.cli.session import now_of, open_store
from starburst.core.decisions import usd
from starburst.store.costs import CostRow, costs


class By(str, Enum):
    """What a bill is split by."""

    USER = "user"
    QUEUE = "queue"
    DAY = "day"
    JOB = "job"
    OFFER = "offer"


def cost(
    by: Annotated[By, typer.Option("--by", help="Split the bill by this.")] = By.USER,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say what the cloud has cost up to now."""
    with open_store() as store:
        rows = costs(store, by.value, now_of(store))
    listing(by).print(rows, output)
    if output.for_people and len(rows) > 1:
        print(f"total {usd(sum(row.micro_usd for row in rows))}")


def listing(by: By) -> Listing[CostRow]:
    """Lines of a bill."""
    return Listing(
        kind=by.value,
        name=lambda row: row.name,
        keys=lambda row: {
            by.value: row.name,
            "cost_usd": row.micro_usd / 1_000_000,
            "running_usd": row.running_micro_usd / 1_000_000,
        },
        columns=(
            Column(by.value.upper(), lambda row: row.name),
            Column("COST", lambda row: usd(row.micro_usd), right=True),
            Column("STILL RUNNING", lambda row: usd(row.running_micro_usd), right=True),
        ),
        empty="the cloud has cost nothing",
    )
