"""`starburst simulate`: a trace, or one's own history, under any policy."""

from __future__ import annotations

from sim.reports.figures import require_matplotlib, write_figures
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
from starburst.cli.tools.traces import at_work, check_all, jobs_of, make_directory, title_of, write


@command(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Replay a trace, or your own history, under any policy."""
    spec = options.cluster.spec()
    packing = options.packed.packing(typed(options.context), spec)
    if packing is not None:
        simulate_packed_cloud(options, packing, spec)
    elif options.axes:
        if options.outcomes is not None:
            raise UserError("--outcomes: is for one simulation; leave out --sweep or --outcomes")
        _grid(options, spec, options.axes)
    else:
        _single(options, spec)


def _single(options: SimulateOptions, spec: Spec) -> None:
    """One simulation: its figures, and its files if they were asked for."""
    spec.check()
    if options.out is not None:
        make_directory(options.out)
    trace = jobs_of(options.jobs, history=options.history)
    check_all(trace, [spec])
    with at_work(f"simulating {len(trace):,} jobs"):
        done = run(trace, spec, options.engine)
    if options.outcomes is not None:
        write("--outcomes", options.outcomes, outcomes_csv(trace, done.outcomes))
    if options.out is not None:
        write("--out", options.out / "outcomes.csv", outcomes_csv(trace, done.outcomes))
        write("--out", options.out / "gantt.svg", picture(trace, done.outcomes, spec))
    if options.output.for_people:
        print("\n".join(summary(trace, spec, done)))
    elif options.output is Format.NAME:
        print(f"simulation/{spec.waiting}")
    else:
        print_data(done.as_dict(spec), options.output)


def _grid(options: SimulateOptions, spec: Spec, texts: list[str]) -> None:
    """A simulation per cell of a grid of options."""
    axes = [parse_axis(text) for text in texts]
    cells = grid(spec, axes)
    if options.out is not None:
        require_matplotlib()
        make_directory(options.out)
    trace = jobs_of(options.jobs, history=options.history)
    check_all(trace, [cell for _, cell in cells])
    with at_work(f"simulating {len(trace):,} jobs") as progress:
        points = sweep(trace, spec, axes, engine=options.engine, progress=progress)
    listing = points_listing(points)
    if options.out is not None:
        write("--out", options.out / "results.csv", points_csv(points))
        write_figures(points, options.out, title_of(options.jobs, trace, [cell for _, cell in cells]))
    listing.print(points, options.output)
