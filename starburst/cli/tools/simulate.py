"""`starburst simulate`: a trace, or one's own history, under any policy."""

from __future__ import annotations

from dataclasses import replace

from sim.bound.best_possible import Yardstick
from sim.compiled import build
from sim.readers import on_cluster
from sim.reports.figures import require_matplotlib, write_figures
from sim.reports.title import title_of
from sim.reports.window import picture
from sim.run import run
from sim.spec import Spec
from sim.sweep import grid, parse_axis, sweep
from starburst.app.errors import UserError
from starburst.cli.output import Format, print_data
from starburst.cli.tools.options import command, typed
from starburst.cli.tools.packed import simulate_packed_cloud
from starburst.cli.tools.simulate_options import SimulateOptions
from starburst.cli.tools.simulate_report import outcomes_csv, points_csv, points_listing, summary
from starburst.cli.tools.traces import at_work, jobs_of, make_directory, tell, write


@command(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Replay a trace, or your own history, under any policy."""
    spec = options.cluster.spec(history=options.history)
    if options.engine == "compiled" and build.ready() is None:
        tell(["the core is compiled for this machine, once: that takes some four minutes"])
    packing = options.packed.packing(typed(options.context), spec)
    if options.on and (packing is not None or not options.axes):
        raise UserError(
            "--on: is for a grid of simulations without a packer; give --sweep, or leave out --on"
        )
    if packing is not None:
        simulate_packed_cloud(options, packing, spec)
    elif options.axes:
        for name, asked in (("--outcomes", options.outcomes), ("--bound", options.bound)):
            if asked:
                raise UserError(f"{name}: is for one simulation; leave out --sweep or {name}")
        _grid(options, spec, options.axes)
    else:
        _single(options, spec)


def _single(options: SimulateOptions, spec: Spec) -> None:
    """One simulation: its figures, and its files if they were asked for."""
    spec.check()
    if options.out is not None:
        make_directory(options.out)
    trace = on_cluster(jobs_of(options.jobs, history=options.history, specs=[spec]), spec)
    with at_work(f"simulating {len(trace):,} jobs"):
        done = run(trace, spec, options.engine)
    freely = None
    if spec.max_slowdown is not None:
        freely = run(trace, replace(spec, max_slowdown=None), options.engine)
    best = None
    if options.bound:
        with at_work("looking for the best possible"):
            best = Yardstick(trace, spec, options.engine).beside(done.outcomes)
    if options.outcomes is not None:
        write("--outcomes", options.outcomes, outcomes_csv(trace, done.outcomes))
    if options.out is not None:
        write("--out", options.out / "outcomes.csv", outcomes_csv(trace, done.outcomes))
        write("--out", options.out / "gantt.svg", picture(trace, done.outcomes, spec))
    if options.output.for_people:
        print("\n".join(summary(trace, spec, done, best, freely)))
    elif options.output is Format.NAME:
        print(f"simulation/{spec.waiting}")
    else:
        told = done.as_dict(spec)
        if best is not None:
            told["best_possible"] = best.as_dict(done.result, spec)
        if freely is not None:
            told["without_max_slowdown"] = {**freely.result.as_dict(), **freely.slowdowns.as_dict()}
        print_data(told, options.output)


def _grid(options: SimulateOptions, spec: Spec, texts: list[str]) -> None:
    """A simulation per cell of a grid of options."""
    axes = [parse_axis(text) for text in texts]
    cells = grid(spec, axes)
    if options.cluster.budget is not None and any(cell.has_idle_budget for _, cell in cells):
        raise UserError("--budget: has no effect beside --sweep factor=…; leave one out")
    if options.out is not None:
        require_matplotlib()
        make_directory(options.out)
    trace = jobs_of(options.jobs, history=options.history, specs=[cell for _, cell in cells])
    with at_work(f"simulating {len(trace):,} jobs") as progress:
        points = sweep(trace, spec, axes, engine=options.engine, on=options.on, progress=progress)
    try:
        if options.out is not None:
            write("--out", options.out / "results.csv", points_csv(points))
            write_figures(points, options.out, title_of(trace, [cell for _, cell in cells]))
    finally:  # what was simulated is not lost where a file cannot be written
        points_listing(points).print(points, options.output)
