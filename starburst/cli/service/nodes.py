"""`starburst nodes`: the nodes of the cluster and what is free on them."""

from __future__ import annotations

from typing import Any, cast

from starburst.app.jobs.job_keys import Keys
from starburst.cli.backend.session import open_backend
from starburst.cli.output import Column, Format, Listing, OutputOption


def nodes(output: OutputOption = Format.TABLE) -> None:
    """List the cluster's nodes, and what jobs use of them."""
    with open_backend() as backend:
        if output.for_people:
            backend.note_if_down()
        LISTING.print(backend.nodes(), output)


def _used(heading: str, key: str) -> Column[Keys]:
    """An amount in use of the node's amount, "6/8"."""

    def show(row: Keys) -> str:
        whole, free = (cast(Any, row[name]) for name in (key, f"free_{key}"))
        return f"{_short(whole - free)}/{_short(whole)}" if whole else ""

    return Column(heading, show, right=True)


def _short(amount: float) -> str:
    return f"{amount:.1f}".removesuffix(".0")


def _labels(row: Keys) -> str:
    return ",".join(f"{name}={value}" for name, value in cast("dict[str, str]", row["labels"]).items())


LISTING: Listing[Keys] = Listing(
    kind="node",
    name=lambda row: str(row["name"]),
    keys=lambda row: row,
    columns=(
        Column("NODE", lambda row: str(row["name"])),
        Column("STATE", lambda row: "ready" if row["schedulable"] else "no new jobs"),
        _used("GPUS", "gpus"),
        Column("TYPE", lambda row: str(row["gpu_type"])),
        _used("CPUS", "cpus"),
        _used("MEMORY GIB", "memory_gib"),
        Column("LABELS", _labels, wide=True, narrow="fold"),
    ),
    empty="no node is known yet",
)
