"""Machines with GPUs in SkyPilot's catalog of GCP, which has prices of machines and of GPUs in rows apart.

A row without an instance type is a number of GPUs in a zone. Which instance types have GPUs built in,
SkyPilot knows by a table of its own. GPUs that are attached to machines of choice (T4, V100, P100 on N1) are
no offers: they are no property of an instance type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from starburst.clouds.sky.access.sdk import load

Row: TypeAlias = Mapping[str, str]
#: GPUs built into an instance type: their name and number; None: it has none.
BuiltIn: TypeAlias = Callable[[str], Mapping[str, float] | None]
#: Columns that a machine has from its GPUs' row, and those that add up.
OF_GPUS = ("AcceleratorName", "AcceleratorCount", "GpuInfo")
PRICES = ("Price", "SpotPrice")


def whole_machines(rows: Iterable[Row], built_in: BuiltIn) -> Iterator[Row]:
    """The machines of a catalog, each with its GPUs and at the price of both.

    A machine whose GPUs have no row in its zone cannot be had there and is left out.
    """
    rows = list(rows)
    gpus = {_key(row): row for row in rows if not row["InstanceType"]}
    for row in rows:
        if not row["InstanceType"]:
            continue
        inside = built_in(row["InstanceType"])
        if not inside:
            yield row
            continue
        ((name, count),) = inside.items()
        part = gpus.get((name, float(count), row["Region"], row.get("AvailabilityZone") or ""))
        if part is not None:
            yield {
                **row,
                **{field: part.get(field) or "" for field in OF_GPUS},
                **{field: _sum(row.get(field), part.get(field)) for field in PRICES},
            }


def built_in_gpus() -> BuiltIn:
    """SkyPilot's own table."""
    load()
    from sky.catalog import gcp_catalog  # noqa: PLC0415 - an extra, and slow to import

    found: BuiltIn = gcp_catalog.get_accelerators_from_instance_type
    return found


def _key(row: Row) -> tuple[str, float, str, str]:
    count = float(row.get("AcceleratorCount") or 0)
    return row.get("AcceleratorName") or "", count, row["Region"], row.get("AvailabilityZone") or ""


def _sum(one: str | None, other: str | None) -> str:
    """The sum of two prices; "" if either is not known."""
    try:
        total = Decimal(one or "") + Decimal(other or "")
        return str(total) if total.is_finite() else ""
    except InvalidOperation:
        return ""
