"""A window of a simulated schedule as a picture: a few nodes, the cloud beside them, and who waited."""

from __future__ import annotations

import numpy as np

from sim.gantt import Span, Wait, gantt
from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Ints, Trace
from starburst.domain.node import Node

#: How many nodes and rows of the cloud are shown at most, and about how many jobs on these nodes.
NODES, CLOUD_ROWS, JOBS = 4, 16, 60
HOUR_S = 3600.0


def picture(trace: Trace, outcomes: Outcomes, spec: Spec) -> str:
    """SVG of the middle of the trace (all of a short one), on the nodes where most begins.

    A gang is drawn on its first node. Runs are the last ones of their jobs: a stay in the cloud that ended
    with a return is not shown.
    """
    begin, end = _times(trace, outcomes, spec)
    seen = np.flatnonzero((outcomes.end_h > begin) & (outcomes.start_h < end))
    busiest = _busiest(outcomes, spec, begin, end)
    nodes = {i: Node(f"node {i}", spec.cluster()[i].capacity) for i in busiest}
    home = [int(i) for i in seen if int(outcomes.node[i]) in nodes]
    cloud = seen[outcomes.in_cloud[seen] & (outcomes.start_h[seen] >= begin)]
    rows = _rows(outcomes, cloud)
    shown = sorted([*home, *rows])
    waits = [_wait(trace, outcomes, i, begin) for i in shown if trace.arrival_h[i] >= begin]
    left_s = min((wait.start for wait in waits), default=begin * HOUR_S)
    spans = [
        Span(
            job_id=trace.ids[i],
            where=rows.get(i) or nodes[int(outcomes.node[i])].name,
            in_cloud=i in rows,
            gpus=trace.tasks(i, spec.gpus_per_node)[0].gpus,
            start=max(outcomes.start_h[i] * HOUR_S, left_s),
            end=min(outcomes.end_h[i], end) * HOUR_S,
        )
        for i in shown
        if outcomes.end_h[i] * HOUR_S > left_s
    ]
    told = [
        f"hours {begin:.1f} to {end:.1f} of the trace",
        f"{len(nodes)} of {spec.nodes} nodes",
        f"{len(rows)} of {len(cloud)} runs that begin in the cloud",
        "grey: came before",
    ]
    return gantt(spec.title, " · ".join(told), spans, waits, list(nodes.values()))


def _times(trace: Trace, outcomes: Outcomes, spec: Spec) -> tuple[float, float]:
    """Begin and end of the window, in hours."""
    arrivals = JOBS * max(1, spec.nodes // NODES)
    first = (len(trace) - arrivals) // 2
    if first <= 0:
        return float(trace.arrival_h[0]), float(np.max(outcomes.end_h))
    return float(trace.arrival_h[first]), float(trace.arrival_h[first + arrivals - 1])


def _busiest(outcomes: Outcomes, spec: Spec, begin: float, end: float) -> list[int]:
    """The nodes on which most jobs start in the window, in order."""
    starts = outcomes.node[(outcomes.start_h >= begin) & (outcomes.start_h < end) & ~outcomes.in_cloud]
    counts = np.bincount(starts, minlength=spec.nodes)
    return sorted(np.argsort(-counts, kind="stable")[:NODES].tolist())


def _wait(trace: Trace, outcomes: Outcomes, job: int, begin: float) -> Wait:
    start_h = float(outcomes.start_h[job])
    return Wait(trace.ids[job], max(start_h - float(outcomes.wait_h[job]), begin) * HOUR_S, start_h * HOUR_S)


def _rows(outcomes: Outcomes, cloud: Ints) -> dict[int, str]:
    """A row of the picture for each run in the cloud, used again after its end, as far as rows go."""
    free_from: list[float] = []
    rows = {}
    for job in sorted((int(i) for i in cloud), key=lambda i: float(outcomes.start_h[i])):
        start, end = float(outcomes.start_h[job]), float(outcomes.end_h[job])
        row = next((i for i, free in enumerate(free_from) if free <= start), len(free_from))
        if row == CLOUD_ROWS:
            continue
        free_from[row : row + 1] = [end]
        rows[job] = f"cloud {row}"
    return rows
