"""`starburst advise`: which budget to choose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.advice import BUDGETS
from sim.advice import advise as choose
from sim.figures import require_matplotlib, write_figures
from sim.spec import CHOICES, Spec
from sim.sweep import sweep
from starburst.app.errors import UserError
from starburst.cli.output import Format, OutputOption, print_data
from starburst.cli.simulate import points_listing
from starburst.cli.traces import HistoryOption, JobsArgument, at_work, check_all, jobs_of, make_directory
from starburst.core.settings import Settings

DEFAULT = Spec()
LIVE = Settings()
#: Policies that a budget has no effect on.
WITHOUT_BUDGET = ("no-wait", "infinite")


def advise(
    *,
    jobs: JobsArgument = None,
    history: HistoryOption = False,
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster.")] = DEFAULT.nodes,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node.")] = DEFAULT.gpus_per_node,
    cpus_per_node: Annotated[float, typer.Option(help="CPUs of a node.")] = DEFAULT.cpus_per_node,
    waiting: Annotated[
        str, typer.Option(metavar="|".join(w for w in CHOICES["waiting"] if w not in WITHOUT_BUDGET))
    ] = DEFAULT.waiting,
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
    spec = Spec(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        waiting=waiting,
        t_max_h=t_max,
        queue_cap=queue_cap,
        warmup=warmup,
        price_per_gpu_hour=price_per_gpu_hour,
        # As `starburst up` schedules unless told otherwise.
        order=LIVE.order,
        out_of_order=LIVE.out_of_order,
        binpack=LIVE.placement,
        cpu_offload=LIVE.offload_cpu_only,
    )
    spec.check()
    if out is not None:
        require_matplotlib()
        make_directory(out)
    trace = jobs_of(jobs, history=history)
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
