"""Starburst's CSV: one job per row, in order of arrival, in hours or seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sim.errors import SimulationError
from sim.readers.columns import LARGEST, check_ids, check_numbers, if_known, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import UNKNOWN, TraceTable, number_if_known
from sim.trace import Floats, Trace

_OPTIONAL = ("cpus", "memory_gib", "nodes", "cost", "priority")
_WORDS = ("queue", "user")
_ESTIMATES = ("estimate_h", "estimate_s")
_WHOLE = ("gpus", "nodes", "priority")
#: Smallest values of columns where that is not 0.
_LOWEST = {"nodes": 1, "priority": -int(LARGEST)}
_SECONDS_PER_HOUR = 3600.0


def read_neutral(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Columns job_id, arrival_h or _s, duration_h or _s, gpus; perhaps _OPTIONAL, _WORDS, an estimate."""
    problems = Problems(str(path))
    with open_text(path) as text:
        table = TraceTable(text, problems)
        arrival = _in_hours_or_seconds("arrival", table.header, problems)
        duration = _in_hours_or_seconds("duration", table.header, problems)
        estimate = [name for name in _ESTIMATES if name in table.header]
        if len(estimate) > 1:
            problems.add(1, estimate[0], f"given besides {estimate[1]}", "keep one of the columns")
        optional = [name for name in _OPTIONAL if name in table.header]
        words = [name for name in _WORDS if name in table.header]
        numbers = dict.fromkeys([arrival, duration, "gpus", *optional], float)
        table.read("job_id", numbers | dict.fromkeys(estimate, number_if_known), limit, words)
    lines = table.lines
    check_ids(problems, lines, "job_id", table.ids)
    for name in (arrival, duration, "gpus", *optional):
        check_numbers(problems, lines, name, table[name], lowest=_LOWEST.get(name, 0), whole=name in _WHOLE)
    for name in estimate:
        check_numbers(problems, lines, name, np.where(table[name] == UNKNOWN, 0, table[name]))
    _check_order(problems, arrival, table)
    problems.check()
    if not table.ids:
        raise SimulationError(f"{path}: no jobs: add a row for each job")
    column = {name: table[name] for name in optional}.get
    trace = trace_of(
        table.ids,
        _hours(table, arrival),
        _hours(table, duration),
        table["gpus"],
        cpus=column("cpus"),
        memory_gib=column("memory_gib"),
        nodes=column("nodes"),
        cost=column("cost"),
        users=table.words.get("user"),
        estimate_h=if_known(_hours(table, estimate[0])) if estimate else None,
    )
    priority = table["priority"].astype(np.int64) if "priority" in optional else None
    return replace(trace, queues=table.words.get("queue"), priority=priority), []


def _in_hours_or_seconds(name: str, header: Sequence[str], problems: Problems) -> str:
    given = [column for column in (f"{name}_h", f"{name}_s") if column in header]
    if len(given) == 2:
        problems.add(1, f"{name}_h", f"given besides {name}_s", "keep one of the columns")
    return given[0] if given else f"{name}_h or {name}_s"


def _hours(table: TraceTable, name: str) -> Floats:
    return table[name] / _SECONDS_PER_HOUR if name.endswith("_s") else table[name]


def _check_order(problems: Problems, arrival: str, table: TraceTable) -> None:
    """Report the first job that arrives too early; sorting the rows resolves all."""
    values = table[arrival]
    early = np.flatnonzero(np.diff(values) < 0)
    if len(early):
        row, column = int(early[0]) + 1, table.header.index(arrival) + 1
        remedy = (
            f"is before the {values[row - 1]:.15g} of the job above; sort the rows, "
            f"as by (head -n 1 FILE; tail -n +2 FILE | sort -s -t, -g -k {column},{column})"
        )
        problems.add(int(table.lines[row]), arrival, float(values[row]), remedy)
