"""`starburst simulate`: a trace, or one's own history, under any policy."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.figures import require_matplotlib, write_figures
from sim.outcomes import Outcomes, QueueResult
from sim.run import ENGINES, Run, run
from sim.spec import CHOICES, Spec
from sim.sweep import Point, grid, parse_axis, shown, sweep
from sim.trace import Trace
from sim.window import picture
from starburst.app.errors import UserError
from starburst.cli.output import Column, Format, Listing, OutputOption, print_data
from starburst.cli.tools.packed import (
    SHARE,
    CatalogOption,
    ColocationOption,
    CompareOption,
    CpuColumnOption,
    CpusPerGpuOption,
    EstimatesOption,
    KnownOption,
    MemoryPerGpuOption,
    MigrationDelayOption,
    PackerOption,
    PeriodOption,
    UniformOption,
    WorkloadsOption,
    packing_of,
    simulate_alone,
    simulate_behind,
)
from starburst.cli.tools.traces import (
    HistoryOption,
    JobsArgument,
    at_work,
    check_all,
    jobs_of,
    make_directory,
    write,
)

DEFAULT = Spec()


def one_of(field: str) -> str:
    """A policy's choices, for help."""
    return "|".join(CHOICES[field])


def simulate(
    ctx: typer.Context,
    *,
    jobs: JobsArgument = None,
    history: HistoryOption = False,
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster; 0 only with --packer.")] = DEFAULT.nodes,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node.")] = DEFAULT.gpus_per_node,
    cpus_per_node: Annotated[float, typer.Option(help="CPUs of a node.")] = DEFAULT.cpus_per_node,
    waiting: Annotated[
        str, typer.Option(metavar=one_of("waiting"), help="Who waits how long.")
    ] = DEFAULT.waiting,
    factor: Annotated[float | None, typer.Option(metavar="K", help="The policy's factor; hours.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="P", help="Or what it follows from: how much longer, percent [25]."),
    ] = None,
    budget_mode: Annotated[
        str,
        typer.Option(metavar=one_of("budget_mode"), help="Whether the factor follows what is spent of P."),
    ] = DEFAULT.budget_mode,
    hopeless: Annotated[
        str, typer.Option(metavar=one_of("hopeless"), help="What a job does that cannot start in time.")
    ] = DEFAULT.hopeless,
    cpu_offload: Annotated[
        bool, typer.Option("--cpu-offload", help="Jobs without GPUs leave at once.")
    ] = False,
    no_short_jobs: Annotated[
        float, typer.Option(metavar="H", help="Shorter jobs leave at once; hours, 0 is off.")
    ] = DEFAULT.no_short_jobs_h,
    t_max: Annotated[
        float | None, typer.Option(metavar="H", help="Runs in the cloud come home after this; hours.")
    ] = None,
    max_wait: Annotated[
        float, typer.Option(metavar="H", help="Nothing waits longer; hours.")
    ] = DEFAULT.max_wait_h,
    order: Annotated[
        str, typer.Option(metavar=one_of("order"), help="Of the queue; a discipline also places.")
    ] = DEFAULT.order,
    out_of_order: Annotated[bool, typer.Option("--out-of-order", help="Skip jobs that do not fit.")] = False,
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Skip them if that delays none (EASY).")
    ] = False,
    backfill_rule: Annotated[
        str,
        typer.Option(metavar=one_of("backfill_rule"), help="Lifka's, or the published simulator's."),
    ] = DEFAULT.backfill_rule,
    binpack: Annotated[str, typer.Option(metavar=one_of("binpack"), help="Which node.")] = DEFAULT.binpack,
    queue_cap: Annotated[
        int | None, typer.Option(metavar="Q", help="Longest queue; the last leaves.")
    ] = None,
    warmup: Annotated[
        int, typer.Option(metavar="N", help="Jobs at both ends that run but do not count.")
    ] = DEFAULT.warmup,
    estimate_error: Annotated[
        float, typer.Option(metavar="PCT", help="Run-time estimates are off by up to this; percent.")
    ] = DEFAULT.estimate_error,
    data_gravity: Annotated[
        float, typer.Option(metavar="H", help="A run in the cloud takes longer by this; hours.")
    ] = DEFAULT.data_gravity_h,
    cloud_delay: Annotated[
        float, typer.Option(metavar="S", help="Start-up of a rented machine, billed; seconds.")
    ] = DEFAULT.cloud_delay_s,
    price_per_gpu_hour: Annotated[
        float, typer.Option(metavar="D", help="Dollars.")
    ] = DEFAULT.price_per_gpu_hour,
    shares: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="QUEUE=S", help="Its share under --order fair; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same result.")] = DEFAULT.seed,
    engine: Annotated[str, typer.Option(metavar="|".join(ENGINES), help="What computes it.")] = "auto",
    outcomes: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Write every job's story here.")
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="OPTION=V,V,…", help="Simulate a grid of values; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the table and figures here.")] = None,
    packer: PackerOption = None,
    catalog: CatalogOption = None,
    workloads: WorkloadsOption = None,
    colocation: ColocationOption = None,
    cpu_column: CpuColumnOption = None,
    period: PeriodOption = 300.0,
    estimates: EstimatesOption = None,
    known_colocation: KnownOption = None,
    migration_delay: MigrationDelayOption = 1.0,
    uniform_throughput: UniformOption = None,
    cpus_per_gpu: CpusPerGpuOption = SHARE.cpus,
    memory_per_gpu: MemoryPerGpuOption = SHARE.memory_gib,
    compare: CompareOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Replay a trace, or your own history, under any policy."""
    if factor is not None and budget is not None:
        raise UserError("--factor: has no effect beside --budget; leave one out")
    spec = Spec(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        waiting=waiting,
        factor=factor,
        budget_percent=DEFAULT.budget_percent if budget is None else budget,
        budget_mode=budget_mode,
        hopeless=hopeless,
        cpu_offload=cpu_offload,
        no_short_jobs_h=no_short_jobs,
        t_max_h=t_max,
        max_wait_h=max_wait,
        order=order,
        out_of_order=out_of_order,
        backfill=backfill,
        backfill_rule=backfill_rule,
        binpack=binpack,
        queue_cap=queue_cap,
        warmup=warmup,
        estimate_error=estimate_error,
        data_gravity_h=data_gravity,
        cloud_delay_s=cloud_delay,
        price_per_gpu_hour=price_per_gpu_hour,
        seed=seed,
        shares=tuple(map(_share, shares or ())),
    )
    packing = packing_of(
        {name for name in ctx.params if _is_typed(ctx, name)},
        spec=spec,
        packer=packer,
        catalog=catalog,
        workloads=workloads,
        colocation=colocation,
        cpu_column=cpu_column,
        period_s=period,
        estimates=estimates,
        known_colocation=known_colocation,
        migration_delay=migration_delay,
        uniform_throughput=uniform_throughput,
        cpus_per_gpu=cpus_per_gpu,
        memory_per_gpu=memory_per_gpu,
        compare=compare,
    )
    if packing is not None and not nodes:
        simulate_alone(jobs, packing, seed, outcomes=outcomes, output=output)
    elif packing is not None:
        simulate_behind(jobs, packing, spec, history=history, engine=engine, outcomes=outcomes, output=output)
    elif axes:
        if outcomes is not None:
            raise UserError("--outcomes: is for one simulation; leave out --sweep or --outcomes")
        _grid(jobs, history=history, spec=spec, texts=axes, engine=engine, out=out, output=output)
    else:
        _single(jobs, history=history, spec=spec, engine=engine, outcomes=outcomes, out=out, output=output)


def _share(text: str) -> tuple[str, float]:
    """A queue and its share."""
    queue, equals, share = text.rpartition("=")
    try:
        value = float(share)
    except ValueError:
        value = 0.0
    if not (queue and equals and 0 < value < math.inf):
        raise UserError(f"--share: {text!r}: write a queue and its share, a number above 0, as in research=3")
    return queue, value


def _is_typed(ctx: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _single(
    jobs: str | None,
    *,
    history: bool,
    spec: Spec,
    engine: str,
    outcomes: Path | None,
    out: Path | None,
    output: Format,
) -> None:
    spec.check()
    if out is not None:
        make_directory(out)
    trace = jobs_of(jobs, history=history)
    check_all(trace, [spec])
    with at_work(f"simulating {len(trace):,} jobs"):
        done = run(trace, spec, engine)
    if outcomes is not None:
        write("--outcomes", outcomes, outcomes_csv(trace, done.outcomes))
    if out is not None:
        write("--out", out / "outcomes.csv", outcomes_csv(trace, done.outcomes))
        write("--out", out / "gantt.svg", picture(trace, done.outcomes, spec))
    if output.for_people:
        print("\n".join(summary(trace, spec, done)))
    elif output is Format.NAME:
        print(f"simulation/{spec.waiting}")
    else:
        print_data(done.as_dict(spec), output)


def _grid(
    jobs: str | None,
    *,
    history: bool,
    spec: Spec,
    texts: list[str],
    engine: str,
    out: Path | None,
    output: Format,
) -> None:
    axes = [parse_axis(text) for text in texts]
    cells = grid(spec, axes)
    if out is not None:
        require_matplotlib()
        make_directory(out)
    trace = jobs_of(jobs, history=history)
    check_all(trace, [cell for _, cell in cells])
    with at_work(f"simulating {len(trace):,} jobs") as progress:
        points = sweep(trace, spec, axes, engine=engine, progress=progress)
    listing = points_listing(points)
    if out is not None:
        write("--out", out / "results.csv", points_csv(points))
        write_figures(points, out)
    listing.print(points, output)


def summary(trace: Trace, spec: Spec, done: Run) -> list[str]:
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


def points_csv(points: list[Point]) -> str:
    """A grid as CSV: the swept options, then what came out."""
    axes = list(points[0].changed)
    figures = [
        "saved_percent",
        "jct_increase_percent",
        "load",
        *(f for f in points[0].told if f not in ("spec", "queues")),
    ]
    rows = [[*point.changed.values(), *(point.as_dict()[name] for name in figures)] for point in points]
    return _csv([*(f"sweep_{axis}" for axis in axes), *figures], rows)


def points_listing(points: list[Point]) -> Listing[Point]:
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


def _swept(axis: str) -> Column[Point]:
    return Column(axis.upper(), lambda p: shown(p.changed[axis]))


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"


def _csv(head: list[str], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
