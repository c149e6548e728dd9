"""Where `simulate` and `advise` get their jobs from, and how they show that they are at work."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sim.on_ray import check_address
from sim.readers import check_fits, from_records, on_cluster, read, spread
from sim.spec import CHOICES, Spec
from sim.sweep import Progress
from sim.trace import Trace
from starburst.app.errors import UserError
from starburst.cli.backend.session import open_store
from starburst.cli.service.server import refuse_history
from starburst.store.listings import queries
from starburst.visible import visible

JobsArgument = Annotated[str | None, typer.Argument(metavar="JOBS", help="A trace, or a generator's spec.")]


def _of_this_home(context: typer.Context, history: bool) -> bool:
    if history:
        refuse_history(context.find_root().params.get("server", ""))
    return history


HistoryOption = Annotated[
    bool, typer.Option("--history", callback=_of_this_home, help="The finished jobs of this home.")
]


EstimatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(CHOICES["runtime_estimates"]),
        help="Run-time estimates: right ones, those of the users, these as limits, or none "
        "[right; with --history given].",
    ),
]


def known_estimates(*, history: bool) -> str:
    """Which estimates are simulated if none are named: of this home's jobs those that they had."""
    return "given" if history else Spec().runtime_estimates


def _address(address: str) -> str:
    if address:
        check_address("--on", address)
    return address


OnOption = Annotated[
    str,
    typer.Option(callback=_address, metavar="ray://HOST:PORT", help="Simulate on this Ray cluster."),
]


def jobs_of(file: str | None, *, history: bool, specs: Sequence[Spec]) -> Trace:
    """The trace that was asked for; what is to be said of it goes to standard error.

    Past jobs and published traces were made for another cluster: a job that exceeds a node becomes a gang
    (`on_cluster`), and one that a cluster cannot hold is left out. In a trace of our own it is an error.
    """
    if history == (file is not None):
        raise UserError("give either JOBS or --history")
    if file is None:
        with open_store() as store:
            past = queries.past_jobs(store)
        if not past:
            raise UserError("--history: no job has finished here yet; give JOBS, a trace")
        return fitting("--history", replace(from_records(past), name="finished jobs of this home"), specs)
    found = read(file)
    tell(found.notes)
    trace = replace(found.trace, name="generated jobs" if "{" in file else Path(file).name)
    if found.published:
        return fitting(file, trace, specs)
    check_all(trace, specs)
    tell_of_priorities(file, trace, specs)
    return trace


def tell_of_priorities(name: str, trace: Trace, specs: Sequence[Spec]) -> None:
    """A note if priorities are the order of the queue and the trace has none."""
    if trace.priority is None and any(spec.order == "priority" for spec in specs):
        tell([f"{name}: names no priorities, so under the order priority the jobs go by arrival"])


def check_all(trace: Trace, specs: Sequence[Spec]) -> None:
    """Whether every job fits every cluster that is to be simulated."""
    sizes = ("nodes", "gpus_per_node", "cpus_per_node", "memory_gib_per_node")
    clusters = {tuple(getattr(spec, name) for name in sizes): spec for spec in specs}
    for spec in clusters.values():
        check_fits(on_cluster(trace, spec), spec)


def fitting(name: str, trace: Trace, specs: Sequence[Spec]) -> Trace:
    """The jobs without those that leave at once under any policy, since a cluster cannot hold them."""
    fitting, left_out = spread(trace, specs)
    if not len(fitting):
        none = f"this cluster holds none of the {len(trace):,} jobs"
        raise UserError(f"{name}: {none}; simulate more nodes, or larger ones")
    if left_out:
        tell([f"{name}: left out what this cluster cannot hold: {left_out} of {len(trace)} jobs"])
    check_all(fitting, specs)
    tell_of_priorities(name, fitting, specs)
    return fitting


def tell(notes: Iterable[str]) -> None:
    """Notes on standard error."""
    for note in notes:
        print(visible(f"note: {note}"), file=sys.stderr)


def make_directory(out: Path) -> None:
    """Make the directory of `--out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: {out}: {error.strerror}; choose another directory") from None


def write(option: str, file: Path, text: str) -> None:
    """Write a file that an option names."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{option}: {file}: {error.strerror}; name another") from None


@contextmanager
def at_work(what: str) -> Iterator[Progress]:
    """A bar on a terminal's standard error; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and of no use in a pipe
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
