"""`starburst advise`: which budget to choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.reports.advice import BUDGETS, other_estimates
from sim.reports.figures import require_matplotlib, write_figures
from sim.reports.title import title_of
from sim.spec import CHOICES, HOUR_S, Spec, option
from sim.sweep import sweeps
from sim.trace import Trace
from starburst.app.errors import UserError
from starburst.app.wiring.stored import live_core
from starburst.cli.backend.session import open_store
from starburst.cli.output import Format, OutputOption
from starburst.cli.tools.advise_report import TRACES, AdvisedTrace, print_advice
from starburst.cli.tools.options import command
from starburst.cli.tools.traces import (
    EstimatesOption,
    HistoryOption,
    OnOption,
    at_work,
    jobs_of,
    known_estimates,
    make_directory,
    tell,
)
from starburst.core.model.settings import Settings
from starburst.domain.node import Node

DEFAULT = Spec()
#: With fewer jobs the knee of the curve is mostly noise.
FEW_JOBS = 500
#: What the size of a cluster consists of.
SIZES: Mapping[str, float | None] = dict.fromkeys(("nodes", "gpus_per_node", "cpus_per_node"))
#: Policies that a budget has no effect on.
WITHOUT_BUDGET = ("no-wait", "infinite")
WITH_BUDGET = "|".join(name for name in CHOICES["waiting"] if name not in WITHOUT_BUDGET)


@dataclass(frozen=True)
class AdviseOptions:
    """All options of the command, in the order of `--help`."""

    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="JOBS…", help="Traces, or generators' specs.")
    ] = None
    history: HistoryOption = False
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes of the cluster [64; with --history this home's].")
    ] = None
    gpus_per_node: Annotated[
        int | None, typer.Option(metavar="N", help="GPUs of a node [8; with --history this home's].")
    ] = None
    cpus_per_node: Annotated[
        float | None, typer.Option(metavar="N", help="CPUs of a node [96; with --history this home's].")
    ] = None
    memory_gib_per_node: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="Memory of a node; GiB [1,000,000; with --history this home's]."),
    ] = None
    waiting: Annotated[
        str | None, typer.Option(metavar=WITH_BUDGET, help="[compute; with --history this home's].")
    ] = None
    budget_mode: Annotated[
        str | None,
        typer.Option(metavar="|".join(CHOICES["budget_mode"]), help="[open; with --history this home's]."),
    ] = None
    hopeless: Annotated[
        str | None,
        typer.Option(metavar="|".join(CHOICES["hopeless"]), help="[wait; with --history this home's]."),
    ] = None
    runtime_estimates: EstimatesOption = None
    t_max: Annotated[
        float | None, typer.Option(metavar="H", help="Runs in the cloud come home after this; hours.")
    ] = None
    queue_cap: Annotated[
        int | None,
        typer.Option(
            metavar="Q", help="Longest queue; the last leaves [no limit; with --history this home's]."
        ),
    ] = None
    warmup: Annotated[int, typer.Option(metavar="N", help="Jobs at both ends that run but do not count.")] = (
        DEFAULT.warmup
    )
    price_per_gpu_hour: Annotated[float, typer.Option(metavar="D", help="Dollars.")] = (
        DEFAULT.price_per_gpu_hour
    )
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the picture here.")] = None
    on: OnOption = ""
    output: OutputOption = Format.TABLE

    def spec(self) -> Spec:
        """What is simulated with each budget: with --history as this home's `up` schedules.

        Raises:
            UserError: the policy has no budget, or the home's nodes are not alike.
        """
        if self.waiting in WITHOUT_BUDGET:
            raise UserError(f"--waiting: {self.waiting!r}: has no budget to choose")
        live, home = settings_at_home() if self.history else (Settings(), ())
        if self.waiting or live.waiting in WITHOUT_BUDGET:
            live = replace(live, waiting=self.waiting or DEFAULT.waiting)
        size = cluster_size(home, {name: getattr(self, name) for name in SIZES})
        asked = {
            "memory_gib_per_node": self.memory_gib_per_node,
            "budget_mode": self.budget_mode,
            "hopeless": self.hopeless,
            "t_max_h": self.t_max,
            "queue_cap": self.queue_cap,
        }
        return Spec(
            **size | policy_of(live) | {name: value for name, value in asked.items() if value is not None},
            runtime_estimates=self.runtime_estimates or known_estimates(history=self.history),
            warmup=self.warmup,
            price_per_gpu_hour=self.price_per_gpu_hour,
        )


@command(AdviseOptions)
def advise(options: AdviseOptions) -> None:
    """Choose a budget P. Each is told with its cost and delay on a trace or the history."""
    spec, out = options.spec(), options.out
    spec.check()
    names: list[str | None] = [*options.jobs] if options.jobs else [None]
    if out is not None:
        if len(names) > 1:
            raise UserError("--out: is for one trace; leave it out, or give one JOBS")
        require_matplotlib()
        make_directory(out)
    traces = [jobs_of(name, history=options.history, specs=[spec]) for name in names]
    with at_work(f"simulating {sum(map(len, traces)):,} jobs") as progress:
        bases = [(trace, with_queues_of(trace, spec)) for trace in traces]
        grids = sweeps(bases, [BUDGETS], on=options.on, progress=progress)
    found = [AdvisedTrace.of(name or "", points) for name, points in zip(names, grids, strict=True)]
    chosen = [(at, each.best.spec) for at, each in enumerate(found) if each.best is not None]
    if chosen:
        with at_work("simulating other estimates") as progress:
            bases = [(traces[at], best) for at, best in chosen]
            others = sweeps(bases, [other_estimates(spec)], on=options.on, progress=progress)
        for (at, _), (other,) in zip(chosen, others, strict=True):
            found[at] = found[at].beside(traces[at], other)
    try:
        if out is not None:
            write_figures(grids[0], out, title_of(traces[0], [spec]))
    finally:  # what was simulated is not lost where a picture cannot be written
        _tell(found, options.output)


def _tell(found: Sequence[AdvisedTrace], output: Format) -> None:
    """The advice, and for which traces it may be chance."""
    for advised in found:
        jobs = advised.points[0].no_wait.jobs_counted
        if jobs < FEW_JOBS:
            few = f"{jobs} jobs are few: the advice may be chance; from {FEW_JOBS} jobs on it is sounder"
            tell([few if len(found) == 1 else f"{advised.trace}: {few}"])
    if len(found) == 1:
        print_advice(found[0], output)
    else:
        TRACES.print(found, output)


def settings_at_home() -> tuple[Settings, Sequence[Node]]:
    """How this home's `up` schedules, and its nodes as last reported; as configured if none ever were."""
    with open_store() as store:
        core = live_core(store)
    nodes = core.state.capacity.nodes
    return core.state.settings, [node for node in nodes if node.schedulable] or nodes


def policy_of(live: Settings) -> dict[str, Any]:
    """The fields of `Spec` that schedule as `up` does, without budget and factor.

    Of returns there is T_max alone, for `star`, which waits after one.
    """
    return {
        "waiting": live.waiting,
        "budget_mode": live.budget_mode,
        "hopeless": live.hopeless,
        "cpu_offload": live.offload_cpu_only,
        "no_short_jobs_h": live.short_job_s / HOUR_S,
        "t_max_h": live.t_max_s / HOUR_S if live.waiting == "star" else None,
        "max_wait_h": live.max_wait_s / HOUR_S,
        "max_slowdown": live.max_slowdown,
        "order": live.order,
        "out_of_order": live.out_of_order,
        "backfill": live.backfill,
        "binpack": live.placement,
        "queue_cap": live.queue_limit,
        "shares": tuple((queue.name, queue.share) for queue in live.queues if live.order == "fair"),
    }


def with_queues_of(trace: Trace, spec: Spec) -> Spec:
    """The spec without the shares of queues that no job of the trace is in."""
    known = set(trace.queues or ())
    return replace(spec, shares=tuple(share for share in spec.shares if share[0] in known))


def cluster_size(home: Sequence[Node], given: Mapping[str, float | None] = SIZES) -> dict[str, Any]:
    """The simulated cluster's size: as given, else as it is at home, else the default.

    Raises:
        UserError: the nodes of the home are not alike.
    """
    told = {name: value for name, value in given.items() if value is not None}
    missing = [option(name) for name in given if name not in told]
    if not home or not missing:
        return told
    sizes = shapes(home)
    if len(sizes) > 1:
        raise UserError(
            f"--history: {shapes_text(sizes)}: these nodes are not alike, and advise simulates nodes of one "
            f"shape; give the nearest by {', '.join(missing)}"
        )
    ((gpus, cpus, memory_gib),) = sizes
    as_here = {"nodes": len(home), "gpus_per_node": gpus, "cpus_per_node": cpus}
    return {**as_here, "memory_gib_per_node": memory_gib, **told}


def shapes(nodes: Sequence[Node]) -> Counter[tuple[int, float, float]]:
    """The number of nodes of each shape: GPUs, CPUs, GiB."""
    return Counter((n.capacity.gpus, n.capacity.cpus, n.capacity.memory_gib) for n in nodes)


def shapes_text(found: Mapping[tuple[int, float, float], int]) -> str:
    """Shapes for people: "2 × 4 GPUs, 32 CPUs, 244 GiB; 1 × 0 GPUs, 64 CPUs, 32 GiB"."""
    return "; ".join(
        f"{count} × {gpus} GPUs, {cpus:g} CPUs, {gib:g} GiB" for (gpus, cpus, gib), count in found.items()
    )
