"""`starburst traces`: which formats of traces are read, where they are published, and what a file holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, NamedTuple

import typer

from sim.readers import FORMATS, Read, TraceFormat, read
from sim.reports.trace_size import TraceSize
from starburst.cli.output import Column, Format, Listing, OutputOption
from starburst.cli.tools.traces import tell

FilesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Traces whose sizes are asked for.")
]


class TraceFile(NamedTuple):
    """A trace that was read."""

    file: str
    read: Read
    size: TraceSize


def traces(files: FilesArgument = None, output: OutputOption = Format.TABLE) -> None:
    """List the formats of traces, or the sizes of files. Published traces have their addresses."""
    if not files:
        FORMAT_LISTING.print(list(FORMATS.items()), output)
        return
    found = [TraceFile(file, done := read(file), TraceSize.of(done.trace)) for file in files]
    for each in found if output.for_people else ():
        tell([f"{each.file}: {note}" for note in each.read.notes])
    SIZE_LISTING.print(found, output)


FORMAT_LISTING: Listing[tuple[str, TraceFormat]] = Listing(
    kind="format",
    name=lambda row: row[0],
    keys=lambda row: {
        "format": row[0],
        "title": row[1].title,
        "source": row[1].source,
        "columns": sorted(row[1].columns),
    },
    columns=(
        Column("FORMAT", lambda row: row[0]),
        Column("FILES", lambda row: row[1].title, narrow="fold"),
        Column("PUBLISHED AT", lambda row: row[1].source, narrow="fold"),
    ),
    empty="",
)


def _number(heading: str, show: Callable[[TraceSize], str]) -> Column[TraceFile]:
    return Column(heading, lambda row: show(row.size), right=True)


SIZE_LISTING: Listing[TraceFile] = Listing(
    kind="trace",
    name=lambda row: row.file,
    keys=lambda row: {
        "file": row.file,
        "format": row.read.format,
        **asdict(row.size),
        "notes": row.read.notes,
    },
    columns=(
        Column("FILE", lambda row: row.file, narrow="cut"),
        Column("FORMAT", lambda row: row.read.format),
        _number("JOBS", lambda size: f"{size.jobs:,}"),
        _number("DAYS", lambda size: f"{size.span_h / 24:.4g}"),
        _number("USERS", lambda size: "" if size.users is None else f"{size.users:,}"),
        _number("GPU-HOURS", lambda size: f"{size.gpu_hours:,.0f}"),
        _number("MEAN GPUS", lambda size: "" if size.mean_gpus is None else f"{size.mean_gpus:,.3g}"),
        _number("LARGEST JOB", lambda size: f"{size.largest_gpus:,} GPUs"),
        _number("MEAN RUN", lambda size: f"{size.mean_run_h:.3g} h"),
    ),
    empty="",
)
