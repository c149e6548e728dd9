"""`starburst advise`: which budget to choose."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.advice import BUDGETS
from sim.advice import advise as choose
from sim.figures import require_matplotlib, write_figures
from sim.readers.history import spread
from sim.spec import CHOICES, Spec, option
from sim.sweep import sweep
from sim.trace import Trace
from starburst.app.errors import UserError
from starburst.app.wiring.stored import live_core
from starburst.cli.backend.session import open_store
from starburst.cli.output import Format, OutputOption, print_data
from starburst.cli.tools.simulate import points_listing
from starburst.cli.tools.traces import (
    HistoryOption,
    JobsArgument,
    at_work,
    check_all,
    jobs_of,
    make_directory,
)
from starburst.core.model.settings import Settings
from starburst.domain.node import Node

DEFAULT = Spec()
#: Policies that a budget has no effect on.
WITHOUT_BUDGET = ("no-wait", "infinite")


def advise(
    *,
    jobs: JobsArgument = None,
    history: HistoryOption = False,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes of the cluster [64; with --history this home's].")
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(metavar="N", help="GPUs of a node [8; with --history this home's].")
    ] = None,
    cpus_per_node: Annotated[
        float | None, typer.Option(metavar="N", help="CPUs of a node [96; with --history this home's].")
    ] = None,
    waiting: Annotated[
        str, typer.Option(metavar="|".join(w for w in CHOICES["waiting"] if w not in WITHOUT_BUDGET))
    ] = DEFAULT.waiting,
    budget_mode: Annotated[
        str | None,
        typer.Option(metavar="|".join(CHOICES["budget_mode"]), help="[open; with --history this home's]."),
    ] = None,
    hopeless: Annotated[
        str | None,
        typer.Option(metavar="|".join(CHOICES["hopeless"]), help="[wait; with --history this home's]."),
    ] = None,
    t_max: Annotated[
        float | None, typer.Option(metavar="H", help="Runs in the cloud come home after this; hours.")
    ] = None,
    queue_cap: Annotated[
        int | None, typer.Option(metavar="Q", help="Longest queue; the last leaves.")
    ] = None,
    warmup: Annotated[
        int, typer.Option(metavar="N", help="Jobs at both ends that run but do not count.")
    ] = DEFAULT.warmup,
    price_per_gpu_hour: Annotated[
        float, typer.Option(metavar="D", help="Dollars.")
    ] = DEFAULT.price_per_gpu_hour,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the picture here.")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say which budget P to choose, by what each would have cost and delayed."""
    if waiting in WITHOUT_BUDGET:
        raise UserError(f"--waiting: {waiting!r}: has no budget to choose")
    live, home = _at_home() if history else (Settings(), ())
    given = {"nodes": nodes, "gpus_per_node": gpus_per_node, "cpus_per_node": cpus_per_node}
    spec = Spec(
        **_cluster(home, given),
        waiting=waiting,
        budget_mode=budget_mode or live.budget_mode,
        t_max_h=t_max,
        queue_cap=queue_cap,
        warmup=warmup,
        price_per_gpu_hour=price_per_gpu_hour,
        hopeless=hopeless or live.hopeless,
        # As `starburst up` schedules.
        order=live.order,
        out_of_order=live.out_of_order,
        backfill=live.backfill,
        binpack=live.placement,
        cpu_offload=live.offload_cpu_only,
    )
    spec.check()
    if out is not None:
        require_matplotlib()
        make_directory(out)
    trace = jobs_of(jobs, history=history)
    if history:
        trace = _fitting(trace, spec)
    check_all(trace, [spec])
    with at_work(f"simulating {len(trace):,} jobs") as progress:
        points = sweep(trace, spec, [BUDGETS], progress=progress)
    advice = choose(points)
    if out is not None:
        write_figures(points, out)
    if output.for_people:
        print("\n".join(advice.sentences), end="\n\n")
    if output.for_people or output is Format.NAME:
        points_listing(points).print(points, output)
        return
    told = {
        "advised_budget": advice.budget_percent,
        "sentences": list(advice.sentences),
        "budgets": [point.as_dict() for point in points],
    }
    print_data(told, output)


def _at_home() -> tuple[Settings, Sequence[Node]]:
    """How this home's `up` schedules, and its nodes as last reported; as configured if none ever were."""
    with open_store() as store:
        core = live_core(store)
    nodes = core.capacity.nodes
    return core.settings, [node for node in nodes if node.schedulable] or nodes


def _cluster(home: Sequence[Node], given: Mapping[str, float | None]) -> dict[str, Any]:
    """The simulated cluster's size: as given, else as it is at home, else the default."""
    told = {name: value for name, value in given.items() if value is not None}
    missing = [option(name) for name in given if name not in told]
    if not home or not missing:
        return told
    sizes = Counter((n.capacity.gpus, n.capacity.cpus, n.capacity.memory_gib) for n in home)
    if len(sizes) > 1:
        here = "; ".join(f"{count} × {g} GPUs, {c:g} CPUs, {m:g} GiB" for (g, c, m), count in sizes.items())
        raise UserError(
            f"--history: {here}: these nodes are not alike, but simulated ones are; give {', '.join(missing)}"
        )
    ((gpus, cpus, memory_gib),) = sizes
    as_here = {"nodes": len(home), "gpus_per_node": gpus, "cpus_per_node": cpus}
    return {**as_here, "memory_gib_per_node": memory_gib, **told}


def _fitting(trace: Trace, spec: Spec) -> Trace:
    """The jobs without those that leave at once under any budget, since the cluster cannot hold them."""
    fitting, left_out = spread(trace, spec)
    if not len(fitting):
        raise UserError("--history: this cluster holds none of the jobs that have ended here; give --nodes")
    if left_out:
        note = f"note: --history: left out what this cluster cannot hold: {left_out} of {len(trace)} jobs"
        print(note, file=sys.stderr)
    return fitting
