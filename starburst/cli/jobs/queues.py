"""`starburst queues`: the queues and how many of their jobs wait, run and have ended."""

from __future__ import annotations

from typing import Any, cast

from starburst.app.jobs.job_keys import Keys
from starburst.cli.backend.session import open_backend
from starburst.cli.output import Column, Format, Listing, OutputOption
from starburst.domain.job import Phase

WAITING = ("submitted", Phase.QUEUED.value)
KEPT_OUT = (Phase.HELD.value, Phase.BLOCKED.value)
AT_WORK = (Phase.OFFLOADING.value, Phase.STARTING.value, Phase.RUNNING.value, Phase.STOPPING.value)


def queues(output: OutputOption = Format.TABLE) -> None:
    """List the queues with the numbers of their jobs."""
    with open_backend() as backend:
        if output.for_people:
            backend.note_if_down()
        LISTING.print(backend.queues(), output)


def _jobs(heading: str, *phases: str, wide: bool = False) -> Column[Keys]:
    def count(row: Keys) -> str:
        counts = cast("dict[str, int]", row["jobs"])
        return str(sum(counts.get(phase, 0) for phase in phases))

    return Column(heading, count, right=True, wide=wide)


def _number(heading: str, key: str) -> Column[Keys]:
    return Column(heading, lambda row: f"{cast(Any, row[key]):g}", right=True, wide=True)


LISTING: Listing[Keys] = Listing(
    kind="queue",
    name=lambda row: str(row["name"]),
    keys=lambda row: row,
    columns=(
        Column("QUEUE", lambda row: str(row["name"])),
        _jobs("WAITING", *WAITING),
        _jobs("KEPT OUT", *KEPT_OUT),
        _jobs("AT WORK", *AT_WORK),
        _jobs("SUCCEEDED", Phase.SUCCEEDED.value),
        _jobs("FAILED", Phase.FAILED.value),
        _jobs("CANCELLED", Phase.CANCELLED.value, wide=True),
        _number("SHARE", "share"),
        _number("PRIORITY", "priority"),
        _number("P %", "budget_percent"),
    ),
    empty="no queue is configured, and no job names one",
)
