"""`starburst cost`: the cloud bill, and the spending caps."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated

import typer

from starburst.app.jobs.job_keys import Keys
from starburst.app.jobs.serializers import cost_keys
from starburst.cli.backend.session import open_backend
from starburst.cli.output import Column, Format, Listing
from starburst.core.model.decisions import usd
from starburst.domain.money import Money
from starburst.store.listings.costs import CostRow, CostSplit
from starburst.visible import visible


class CostFormat(str, Enum):
    """The values of `-o`: those of every listing, and CSV."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


def cost(
    by: Annotated[CostSplit, typer.Option("--by", help="Split the bill by this.")] = CostSplit.USER,
    caps: Annotated[bool, typer.Option("--caps", help="Say how the caps on spending stand instead.")] = False,
    output: Annotated[CostFormat, typer.Option("-o", "--output", help="Output format.")] = CostFormat.TABLE,
) -> None:
    """Show the cloud's cost up to now, or what may yet be spent."""
    with open_backend() as backend:
        if caps:
            _print(CAPS, backend.caps(), output)
            return
        rows = backend.cost(by.value)
    at_home = [row.cluster_micro_usd for row in rows if row.cluster_micro_usd is not None]
    _print(listing(by, cluster=bool(at_home)), rows, output)
    if output in (CostFormat.TABLE, CostFormat.WIDE) and len(rows) > 1:
        besides = f", and {usd(sum(at_home))} of the cluster" if at_home else ""
        print(f"total {usd(sum(row.micro_usd for row in rows))}{besides}")


def listing(by: CostSplit, *, cluster: bool = False) -> Listing[CostRow]:
    """Lines of a bill; `cluster`: with the reference cost of the cluster."""
    at_home: Column[CostRow] = Column("CLUSTER", lambda row: usd(row.cluster_micro_usd or 0), right=True)
    return Listing(
        kind=by.value,
        name=lambda row: row.name,
        keys=lambda row: cost_keys(by.value, row),
        columns=(
            Column(by.value.upper(), lambda row: row.name),
            Column("COST", lambda row: usd(row.micro_usd), right=True),
            Column("STILL RUNNING", lambda row: usd(row.running_micro_usd), right=True),
            *((at_home,) if cluster else ()),
        ),
        empty="the cloud has cost nothing",
    )


def _dollars(key: str) -> Column[Keys]:
    return Column(key.removesuffix("_usd").upper(), lambda row: str(Money.of(str(row[key]))), right=True)


CAPS: Listing[Keys] = Listing(
    kind="cap",
    name=lambda row: str(row["name"]),
    keys=lambda row: row,
    columns=(
        Column("CAP", lambda row: str(row["name"]).removeprefix("cap/")),
        *map(_dollars, ("cap_usd", "spent_usd", "reserved_usd", "left_usd")),
        Column("WINDOW ENDS", lambda row: str(row["window_end"])[:16].replace("T", " ") + " UTC"),
        Column("STATE", lambda row: str(row["state"])),
        Column("THEN", lambda row: str(row["then"]), wide=True),
    ),
    empty="nothing caps what may be spent; the section caps of the config does",
)


def _print(what: Listing[CostRow] | Listing[Keys], rows: Sequence[object], output: CostFormat) -> None:
    if output is not CostFormat.CSV:
        what.print(rows, Format(output.value))  # type: ignore[arg-type]
        return
    lines: list[Mapping[str, object]] = [what.keys(row) for row in rows]  # type: ignore[arg-type]
    if lines:
        table = csv.DictWriter(sys.stdout, list(lines[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({key: _cell(value) for key, value in line.items()} for line in lines)


def _cell(value: object) -> object:
    """A cell that spreadsheets do not interpret as a formula."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else shown
