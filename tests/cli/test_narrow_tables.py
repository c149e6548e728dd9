"""Tables on narrow terminals: ids stay whole, columns give way, no word is broken."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from starburst.cli.jobs import queues
from starburst.cli.jobs.status import listing
from starburst.cli.output import Format, Listing
from starburst.cli.service import nodes
from starburst.store.listings import queries
from tests.cli.past import Past


def drawn(shown: Listing[Any], rows: Sequence[Any], width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a table on a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(shown.table(rows, Format.TABLE))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_ids_and_phases_of_jobs_stay_whole(past: Past, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    past.submit("a")
    found = queries.jobs(past.store)
    rows = [
        replace(
            found[0], id="sweep-lr-1e-5-r4nxs", phase="succeeded", runs_on="node-0", cloud_micro_usd=10_000
        ),
        replace(found[0], id="sweep-czvj6[0-9999]", phase="8000 submitted, 2000 held", runs_on=""),
    ]
    lines = drawn(listing(0.0), rows, width, monkeypatch)
    assert all(len(line) <= width for line in lines)
    assert lines[0].split()[:2] == ["JOB", "PHASE"]
    assert lines[1].split()[:2] == ["sweep-lr-1e-5-r4nxs", "succeeded"]
    assert lines[2].split()[0] == "sweep-czvj6[0-9999]"
    assert " ".join(" ".join(line[20:] for line in lines[2:]).split()).startswith("8000 submitted, 2000")
    assert not any("…" in line for line in lines[:2])


@pytest.mark.parametrize("width", [40, 60])
def test_headings_and_cells_of_other_listings_stay_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = {"name": "default", "jobs": {"queued": 12, "succeeded": 1234}, "share": 1}
    node = {
        "name": "node-0", "labels": {}, "gpus": 4, "gpu_type": "V100", "cpus": 32, "memory_gib": 244,
        "free_gpus": 4, "free_cpus": 32, "free_memory_gib": 244, "schedulable": True,
    }  # fmt: skip
    for lines in (
        drawn(queues.LISTING, [queue], width, monkeypatch),
        drawn(nodes.LISTING, [node], width, monkeypatch),
    ):
        assert len(lines) == 2
        assert not any("…" in line for line in lines)


def test_on_a_wide_terminal_every_column_is_there(monkeypatch: pytest.MonkeyPatch, past: Past) -> None:
    (heading, *_) = drawn(listing(0.0), queries.jobs(past.store), 160, monkeypatch)
    assert heading.split() == ["JOB", "PHASE", "GPUS", "ON", "FOR", "LEAVES", "BILL"]
