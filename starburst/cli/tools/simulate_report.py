"""What `starburst simulate` tells of its simulations: in a few lines, as CSV, as a listing."""

from __future__ import annotations

import csv
import io
from typing import Any

from sim.outcomes import Outcomes, QueueResult
from sim.run import SimulationRun
from sim.spec import Spec
from sim.sweep import SweepPoint, shown
from sim.trace import Trace
from starburst.cli.output import Column, Listing


def summary(trace: Trace, spec: Spec, done: SimulationRun) -> list[str]:
    """One simulation in a few lines."""
    r = done.result
    size = f"{spec.nodes} × {spec.gpus_per_node} GPUs"
    rows = [
        ("cloud cost", f"{r.cloud_cost:,.3f} GPU-hours, ${r.cloud_cost_usd:,.2f}"),
        ("cloud jobs", f"{r.cloud_jobs:,} ({_percent(r.cloud_jobs, r.jobs_counted)})"),
        ("returned jobs", f"{r.returned_jobs:,}"),
        ("passed jobs", f"{r.passed_jobs:,}"),
        ("completion", f"mean {r.mean_jct_h:.4g} h, p90 {r.p90_jct_h:.4g} h, p99 {r.p99_jct_h:.4g} h"),
        ("waiting", f"mean {round(r.mean_wait_h, 6):.4g} h"),
        (
            "utilization",
            f"{r.cluster_utilization:.1%} of the cluster; {r.system_utilization:.1%} with the cloud",
        ),
        *((f"queue {q.queue}", _of_queue(q)) for q in done.queues),
        ("simulated in", f"{done.cpu_seconds:.3g} CPU s, {done.max_rss_mb:,.0f} MiB ({done.engine} engine)"),
    ]
    head = f"{spec.title}; {size}; {r.jobs_counted:,} of {len(trace):,} jobs count"
    width = max(15, *(len(name) + 2 for name, _ in rows))
    return [head, *(f"{name:<{width}}{text}" for name, text in rows)]


def _of_queue(queue: QueueResult) -> str:
    return (
        f"{queue.jobs:,} jobs, waiting mean {round(queue.mean_wait_h, 6):.4g} h, "
        f"{queue.cluster_gpu_hours:,.1f} GPU-hours on the cluster, {queue.cloud_cost:,.1f} in the cloud"
    )


def outcomes_csv(trace: Trace, outcomes: Outcomes) -> str:
    """What became of every job; hours and GPU-hours, switches as 0 and 1, node -1 in the cloud."""
    columns = {
        "job_id": trace.ids,
        "start_h": outcomes.start_h.tolist(),
        "end_h": outcomes.end_h.tolist(),
        "wait_h": outcomes.wait_h.tolist(),
        "cloud": outcomes.in_cloud.astype(int).tolist(),
        "charged": outcomes.charged.tolist(),
        "returned": outcomes.returned.astype(int).tolist(),
        "passed": outcomes.passed.astype(int).tolist(),
        "node": outcomes.node.tolist(),
    }
    return _csv(list(columns), [list(row) for row in zip(*columns.values(), strict=True)])


def points_csv(points: list[SweepPoint]) -> str:
    """A grid as CSV: the swept options, then what came out."""
    axes = list(points[0].changed)
    figures = [
        "saved_percent",
        "jct_increase_percent",
        "load",
        *(f for f in points[0].figures if f not in ("spec", "queues")),
    ]
    rows = [[*point.changed.values(), *(point.as_dict()[name] for name in figures)] for point in points]
    return _csv([*(f"sweep_{axis}" for axis in axes), *figures], rows)


def points_listing(points: list[SweepPoint]) -> Listing[SweepPoint]:
    """A grid as a listing; a column per swept option."""
    swept = [_swept(axis) for axis in points[0].changed]
    return Listing(
        kind="simulation",
        name=lambda p: p.label,
        keys=lambda p: p.as_dict(),
        columns=(
            *swept,
            Column("CLOUD GPU-H", lambda p: f"{p.result.cloud_cost:,.1f}", right=True),
            Column("SAVED", lambda p: f"{p.saved_percent:.1f} %", right=True),
            Column("MEAN JCT", lambda p: f"{p.result.mean_jct_h:.4g} h", right=True),
            Column("LONGER", lambda p: f"{p.jct_percent:+.1f} %", right=True),
            Column("CLOUD JOBS", lambda p: f"{p.result.cloud_jobs:,}", right=True),
            Column("UTILIZATION", lambda p: f"{p.result.cluster_utilization:.1%}", right=True),
            Column("COST", lambda p: f"${p.result.cloud_cost_usd:,.2f}", right=True, wide=True),
            Column("MEAN WAIT", lambda p: f"{round(p.result.mean_wait_h, 6):.4g} h", right=True, wide=True),
            Column("P99 JCT", lambda p: f"{p.result.p99_jct_h:.4g} h", right=True, wide=True),
            Column("LOAD", lambda p: f"{p.load:.2f}", right=True, wide=True),
            Column("NO-WAIT GPU-H", lambda p: f"{p.no_wait.cloud_cost:,.1f}", right=True, wide=True),
        ),
        empty="",
    )


def _swept(axis: str) -> Column[SweepPoint]:
    return Column(axis.upper(), lambda p: shown(p.changed[axis]))


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"


def _csv(head: list[str], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
