"""What `starburst simulate` tells of its simulations: in a few lines, as CSV, as a listing."""

from __future__ import annotations

import csv
import io
from typing import Any

from sim.bound.best_possible import BestPossible
from sim.outcomes import Outcomes, QueueResult, Result
from sim.reports.advice import estimated_jobs
from sim.reports.amounts import percent, span
from sim.run import SimulationRun
from sim.slowdowns import GroupSlowdown, Slowdowns
from sim.spec import Spec
from sim.sweep import SweepPoint, shown
from sim.trace import Trace
from starburst.cli.output import Column, Listing

#: Users that a summary shows.
WORST_USERS = 3


def summary(
    trace: Trace,
    spec: Spec,
    done: SimulationRun,
    best: BestPossible | None = None,
    freely: SimulationRun | None = None,
) -> list[str]:
    """One simulation in a few lines; `freely` is the same without the bound on slowdowns."""
    r = done.result
    size = f"{spec.nodes} × {spec.gpus_per_node} GPUs"
    rows = [
        ("cloud cost", f"{r.cloud_cost:,.3f} GPU-hours, ${r.cloud_cost_usd:,.2f}"),
        ("cloud jobs", f"{r.cloud_jobs:,} ({_percent(r.cloud_jobs, r.jobs_counted)})"),
        ("returned jobs", f"{r.returned_jobs:,}"),
        ("passed jobs", f"{r.passed_jobs:,}"),
        ("completion", f"mean {span(r.mean_jct_h)}, p90 {span(r.p90_jct_h)}, p99 {span(r.p99_jct_h)}"),
        ("waiting", f"mean {span(r.mean_wait_h)}"),
        (
            "utilization",
            f"{r.cluster_utilization:.1%} of the cluster; {r.system_utilization:.1%} with the cloud",
        ),
        *(() if spec.runtime_estimates == "right" else [("estimates", estimated_jobs(trace, spec))]),
        *((f"queue {q.queue}", _of_queue(q)) for q in done.queues),
        *who_pays(done.slowdowns),
        *(() if freely is None else [_price(done, freely)]),
        *(() if best is None else _beside(best, r, spec)),
        ("simulated in", f"{done.cpu_seconds:.3g} CPU s, {done.max_rss_mb:,.0f} MiB ({done.engine} engine)"),
    ]
    head = f"{spec.title}; {size}; {r.jobs_counted:,} of {len(trace):,} jobs count"
    return [head, *rows_of(rows)]


def rows_of(rows: list[tuple[str, str]]) -> list[str]:
    """Names and texts in two columns."""
    width = max(15, *(len(name) + 2 for name, _ in rows))
    return [f"{name:<{width}}{text}" for name, text in rows]


def who_pays(slowdowns: Slowdowns) -> list[tuple[str, str]]:
    """Slowdowns of all jobs, of each size class, and of the users who were slowed down most."""
    groups = [("slowdown", slowdowns.everyone), *((group.name, group) for group in slowdowns.classes)]
    groups += [(f"user {group.name or 'unknown'}", group) for group in slowdowns.users[:WORST_USERS]]
    return [(name, _slowdown(group)) for name, group in groups]


def _price(done: SimulationRun, freely: SimulationRun) -> tuple[str, str]:
    """What the bound on slowdowns costs."""
    dearer_usd = done.result.cloud_cost_usd - freely.result.cloud_cost_usd
    everyone, worst = freely.slowdowns.everyone, freely.slowdowns.worst_class
    return "max slowdown", (
        f"costs ${dearer_usd:,.2f} more than without it, where p99 is {everyone.p99_slowdown:.4g}, of "
        f"{worst.name} {worst.p99_slowdown:.4g}, and jobs take {freely.result.mean_jct_h:.4g} h on average"
    )


def _slowdown(group: GroupSlowdown) -> str:
    percentiles = (group.p50_slowdown, group.p90_slowdown, group.p99_slowdown)
    p50, p90, p99 = (f"{value:.4g}" for value in percentiles)
    return f"p50 {p50}, p90 {p90}, p99 {p99}, longest wait {span(group.longest_wait_h)}, {group.jobs:,} jobs"


def _beside(best: BestPossible, result: Result, spec: Spec) -> list[tuple[str, str]]:
    no_wait, possible, at_least = (
        f"${bill * spec.price_per_gpu_hour:,.2f}" for bill in (best.no_wait, best.possible, best.at_least)
    )
    above = best.above(result)
    distance = "" if above is None else f"; this is {above:.1f} % above what is possible"
    most = f"{best.spendable_percent:+.4g} % if all waited for the cluster"
    if not spec.has_idle_budget and spec.budget_percent > best.spendable_percent:
        most += f": P = {spec.budget_percent:g} % cannot be spent"
    return [
        ("no-wait", f"{no_wait}; jobs take {best.increase_percent:+.4g} % longer here, {most}"),
        ("best possible", f"{possible} with hindsight, at least {at_least}, at this delay{distance}"),
    ]


def _of_queue(queue: QueueResult) -> str:
    return (
        f"{queue.jobs:,} jobs, waiting mean {span(queue.mean_wait_h)}, "
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
        *(f for f in points[0].figures if f not in ("spec", "queues", "classes", "users")),
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
            Column("SAVED", lambda p: percent(p.saved_percent), right=True),
            Column("MEAN JCT", lambda p: span(p.result.mean_jct_h), right=True),
            Column("LONGER", lambda p: percent(p.jct_percent, signed=True), right=True),
            Column("CLOUD JOBS", lambda p: f"{p.result.cloud_jobs:,}", right=True, narrow="drop"),
            Column("UTILIZATION", lambda p: f"{p.result.cluster_utilization:.1%}", right=True, narrow="drop"),
            Column("COST", lambda p: f"${p.result.cloud_cost_usd:,.2f}", right=True, wide=True),
            Column("MEAN WAIT", lambda p: span(p.result.mean_wait_h), right=True, wide=True),
            Column("P99 SLOWDOWN", lambda p: f"{p.slowdowns.everyone.p99_slowdown:.4g}", right=True),
            Column("LONGEST WAIT", lambda p: span(p.slowdowns.everyone.longest_wait_h), right=True),
            Column("WORST CLASS", lambda p: _worst(p.slowdowns.worst_class), wide=True),
            Column("P99 JCT", lambda p: span(p.result.p99_jct_h), right=True, wide=True),
            Column("LOAD", lambda p: f"{p.load:.2f}", right=True, wide=True),
            Column("NO-WAIT GPU-H", lambda p: f"{p.no_wait.cloud_cost:,.1f}", right=True, wide=True),
        ),
        empty="",
    )


def _worst(group: GroupSlowdown) -> str:
    return f"{group.name}: {group.p99_slowdown:.4g}"


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
