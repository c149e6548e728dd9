"""Picture of a window of a simulated schedule: some nodes, cloud runs and waiting jobs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.outcomes import Outcomes
from sim.reports.gantt import Span, WaitSpan, gantt
from sim.reports.title import title_of
from sim.spec import Spec
from sim.trace import Trace
from starburst.domain.node import Node

#: Most nodes and cloud rows shown, and the approximate number of jobs on these nodes.
NODES, CLOUD_ROWS, JOBS = 4, 16, 60
HOUR_S = 3600.0


class _Visit(NamedTuple):
    """A run of a job; hours."""

    job: int
    start_h: float
    end_h: float
    #: Stopped for a return.
    cut: bool = False


def picture(trace: Trace, outcomes: Outcomes, spec: Spec) -> str:
    """SVG of the middle of the trace (all of a short one), on the nodes with the most starts.

    A gang is drawn on its first node. A cloud stay that ended with a return is dashed.
    """
    begin, end = _times(trace, outcomes, spec)
    seen = np.flatnonzero((outcomes.end_h > begin) & (outcomes.start_h < end))
    busiest = _busiest(outcomes, spec, begin, end)
    nodes = {i: Node(f"node {i}", spec.cluster()[i].capacity) for i in busiest}
    home = [int(i) for i in seen if int(outcomes.node[i]) in nodes]
    visits = _visits(outcomes, begin, end)
    rows = _rows(visits)
    shown = sorted({*home, *(visit.job for visit in rows)})
    waits = [w for i in shown if trace.arrival_h[i] >= begin for w in _waits(trace, outcomes, i, end)]
    left_s = min((wait.start for wait in waits), default=begin * HOUR_S)
    runs = [_Visit(i, float(outcomes.start_h[i]), float(outcomes.end_h[i])) for i in home]
    places = {**rows, **{run: nodes[int(outcomes.node[run.job])].name for run in runs}}
    spans = [
        Span(
            job_id=trace.ids[visit.job],
            where=where,
            in_cloud=visit in rows,
            gpus=trace.tasks(visit.job, spec.gpus_per_node)[0].gpus,
            start=max(visit.start_h * HOUR_S, left_s),
            end=min(visit.end_h, end) * HOUR_S,
            cut=visit.cut,
        )
        for visit, where in sorted(places.items())
        if visit.end_h * HOUR_S > left_s
    ]
    facts = [
        spec.title,
        f"hours {begin:.1f} to {end:.1f} of the trace",
        f"{len(nodes)} of {spec.nodes} nodes",
        f"{len(rows)} of {len(visits)} runs that begin in the cloud",
        *["dashed: stopped to come home"] * any(visit.cut for visit in rows),
        "grey: came before",
    ]
    return gantt(title_of(trace, [spec]), " · ".join(facts), spans, waits, list(nodes.values()))


def _times(trace: Trace, outcomes: Outcomes, spec: Spec) -> tuple[float, float]:
    """Start and end of the window, hours."""
    arrivals = JOBS * max(1, spec.nodes // NODES)
    first = (len(trace) - arrivals) // 2
    if first <= 0:
        return float(trace.arrival_h[0]), float(np.max(outcomes.end_h))
    return float(trace.arrival_h[first]), float(trace.arrival_h[first + arrivals - 1])


def _busiest(outcomes: Outcomes, spec: Spec, begin: float, end: float) -> list[int]:
    """The nodes with the most job starts in the window, in ascending order."""
    starts = outcomes.node[(outcomes.start_h >= begin) & (outcomes.start_h < end) & ~outcomes.in_cloud]
    counts = np.bincount(starts, minlength=spec.nodes)
    return sorted(np.argsort(-counts, kind="stable")[:NODES].tolist())


def _waits(trace: Trace, outcomes: Outcomes, job: int, end: float) -> list[WaitSpan]:
    """A job's waits until `end`: before its run, or before and after its cloud stay."""
    arrival_h, start_h = float(trace.arrival_h[job]), float(outcomes.start_h[job])
    left_h, stay_h = outcomes.stays.get(job, (start_h, 0.0))
    waits = [(arrival_h, left_h), (left_h + stay_h, start_h)][: 1 + (job in outcomes.stays)]
    return [WaitSpan(trace.ids[job], a * HOUR_S, min(b, end) * HOUR_S) for a, b in waits if a < end]


def _visits(outcomes: Outcomes, begin: float, end: float) -> list[_Visit]:
    """The cloud runs that start in the window, in order."""
    starts = outcomes.start_h
    last = np.flatnonzero(outcomes.in_cloud & (starts >= begin) & (starts < end))
    visits = [_Visit(int(i), float(starts[i]), float(outcomes.end_h[i])) for i in last]
    stays = outcomes.stays.items()
    cut = [_Visit(i, left, left + stay, cut=True) for i, (left, stay) in stays if begin <= left < end]
    return sorted([*visits, *cut], key=lambda visit: (visit.start_h, visit.job))


def _rows(visits: list[_Visit]) -> dict[_Visit, str]:
    """Picture rows of the cloud runs; a row is reused after a run's end. Runs beyond CLOUD_ROWS get none."""
    free_from: list[float] = []
    rows = {}
    for visit in visits:
        row = next((i for i, free in enumerate(free_from) if free <= visit.start_h), len(free_from))
        if row == CLOUD_ROWS:
            continue
        free_from[row : row + 1] = [visit.end_h]
        rows[visit] = f"cloud {row}"
    return rows
