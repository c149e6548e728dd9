"""`starburst simulate --packer`: a cloud whose machines several jobs share, alone or behind the cluster."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.eva_replica.check import check_fits
from sim.eva_replica.outcomes import JobOutcome, PackedResult
from sim.eva_replica.run import simulate_packed
from sim.packing.behind import (
    Both,
    JobOf,
    Share,
    as_trace,
    gpus_per_task,
    in_seconds,
    job_maker,
    leaving,
    together,
)
from sim.packing.cloud import Cloud
from sim.packing.inputs import Kind, PackedJob
from sim.packing.workloads import drawn, gpus_of, header, is_packed, told_of
from sim.readers.packing import read_jobs
from sim.run import run
from sim.spec import Spec, option
from sim.sweep import no_wait
from sim.trace import Trace
from starburst.app.errors import UserError
from starburst.cli.output import Format, print_data
from starburst.cli.tools.traces import at_work, check_all, jobs_of, write
from starburst.policy.packing.registry import PACKERS, packer

PackerOption = Annotated[
    str | None,
    typer.Option(metavar="|".join(PACKERS), help="Jobs share rented machines; who packs them."),
]
CatalogOption = Annotated[Path | None, typer.Option(metavar="CSV", help="Packed: what can be rented.")]
WorkloadsOption = Annotated[
    Path | None, typer.Option(metavar="CSV", help="Packed: paces of workloads, and how long moves take.")
]
ColocationOption = Annotated[
    Path | None, typer.Option(metavar="CSV", help="Packed: how fast workloads run beside each other.")
]
CpuColumnOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Packed: the catalog's column of CPUs [cpu, else vcpu].")
]
PeriodOption = Annotated[float, typer.Option(metavar="S", help="Packed: from plan to plan; seconds.")]
EstimatesOption = Annotated[
    bool | None,
    typer.Option(
        "--estimates/--no-estimates", help="Packed: the packer knows how long jobs run [stratus does]."
    ),
]
KnownOption = Annotated[
    bool | None,
    typer.Option(
        "--known-colocation/--learn-colocation",
        help="Packed: it knows --colocation, or learns it on the way [owl knows it].",
    ),
]
MigrationDelayOption = Annotated[
    float, typer.Option(metavar="X", help="Packed: moves take so many times as long.")
]
UniformOption = Annotated[
    float | None,
    typer.Option(metavar="T", help="Packed: every pair runs at T of its pace, instead of --colocation."),
]
CpusPerGpuOption = Annotated[
    float, typer.Option(metavar="N", help="Packed: CPUs of a job in the cloud whose trace has none.")
]
MemoryPerGpuOption = Annotated[
    float, typer.Option(metavar="GIB", help="Packed: its memory, if the trace has none.")
]
CompareOption = Annotated[
    bool, typer.Option("--compare", help="Packed: simulate No-Packing too, and tell what is saved.")
]
SHARE = Share()

#: Options that mean something without a cluster.
_PACKED = {
    *("packer", "catalog", "workloads", "colocation", "cpu_column", "period", "estimates"),
    *("known_colocation", "migration_delay", "uniform_throughput", "compare"),
}
_BEHIND = {"cpus_per_gpu", "memory_per_gpu"}
_ALWAYS = {"jobs", "nodes", "seed", "outcomes", "output"}
_RETURNS = "no job comes back from a packed cloud, whose bill cannot be told apart by jobs"
#: What cannot be had with a packer, and why.
_NOT_PACKED = {
    "axes": "is for clouds without --packer; simulate one after the other",
    "out": "draws clouds without --packer; for the jobs of a packed one give --outcomes",
    "t_max": f"{_RETURNS}; leave it out",
    "data_gravity": "--workloads says how long jobs fetch what they need; leave it out",
    "cloud_delay": "--catalog says how long machines take to start; leave it out",
    "price_per_gpu_hour": "--catalog has the prices; leave it out",
}


@dataclass(frozen=True, slots=True)
class Packing:
    """What was asked for; `packer` is one of PACKERS. The fields are keys of `-o json`."""

    packer: str
    catalog: Path
    workloads: Path
    colocation: Path | None
    cpu_column: str | None
    period_s: float
    estimates: bool
    known_colocation: bool
    migration_delay: float
    uniform_throughput: float | None
    cpus_per_gpu: float
    memory_per_gpu: float
    compare: bool

    @property
    def title(self) -> str:
        """In a few words, for people."""
        return f"packed by {self.packer} every {self.period_s:g} s"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def packing_of(
    given: Collection[str],
    *,
    packer: str | None,
    catalog: Path | None,
    workloads: Path | None,
    estimates: bool | None,
    known_colocation: bool | None,
    spec: Spec,
    **options: Any,
) -> Packing | None:
    """The options of a packed cloud, checked; None if none is asked for. `given` names what was typed.

    Raises:
        UserError: they make no sense together.
    """
    if packer is None:
        _check_unpacked(given, spec)
        return None
    if packer not in PACKERS:
        close = get_close_matches(packer, PACKERS, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UserError(f"--packer: {packer!r}: {hint}choose one of {', '.join(PACKERS)}")
    if catalog is None:
        raise UserError("--packer: needs to know what can be rented; give --catalog CSV")
    if workloads is None:
        raise UserError("--packer: needs to know how long moves take; give --workloads CSV")
    packing = Packing(
        packer=packer,
        catalog=catalog,
        workloads=workloads,
        estimates=packer == "stratus" if estimates is None else estimates,
        known_colocation=packer == "owl" if known_colocation is None else known_colocation,
        **options,
    )
    _check_values(packing)
    _check_together(given, packing, spec)
    return packing


def _check_unpacked(given: Collection[str], spec: Spec) -> None:
    if stray := sorted((_PACKED | _BEHIND) & {*given}):
        raise UserError(f"{option(stray[0])}: is for a packed cloud; give --packer too, or leave it out")
    if spec.nodes == 0:
        raise UserError("--nodes: 0: without a cluster all jobs are in the cloud; give --packer, which packs")


def _check_values(packing: Packing) -> None:
    for name, more_than_0, most in (
        ("period_s", True, 1e9),
        ("migration_delay", False, 1e9),
        ("uniform_throughput", True, 1.0),
        ("cpus_per_gpu", False, 1e9),
        ("memory_per_gpu", False, 1e9),
    ):
        value = getattr(packing, name)
        if value is not None and not (0 <= value <= most and (value or not more_than_0)):
            least = "more than 0" if more_than_0 else "at least 0"
            raise UserError(f"{option(name)}: {value}: must be {least} and at most {most:g}")


def _check_together(given: Collection[str], packing: Packing, spec: Spec) -> None:
    for name, why in _NOT_PACKED.items():
        if name in given:
            raise UserError(f"{'--sweep' if name == 'axes' else option(name)}: {why}")
    if spec.waiting == "star":
        raise UserError(f"--waiting: star: {_RETURNS}; choose another policy")
    if packing.colocation is None and packing.uniform_throughput is None:
        raise UserError(
            "--packer: needs to know who slows whom; give --colocation CSV or --uniform-throughput T"
        )
    if packing.colocation is not None and packing.uniform_throughput is not None:
        raise UserError("--colocation: has no effect beside --uniform-throughput; leave one out")
    if packing.compare and packing.packer == "none":
        raise UserError("--compare: none is what the others are compared with; leave it out")
    if spec.nodes == 0 and (stray := sorted({*given} - _PACKED - _ALWAYS)):
        raise UserError(
            f"{option(stray[0])}: has no effect with --nodes 0, where all jobs are in the packed cloud; "
            "leave it out"
        )


def _read(packing: Packing) -> Cloud:
    return Cloud.read(
        packing.catalog,
        packing.workloads,
        packing.colocation,
        cpu_column=packing.cpu_column,
        uniform_throughput=packing.uniform_throughput,
    )


def _simulated(cloud: Cloud, jobs: Sequence[PackedJob], packing: Packing, name: str) -> PackedResult:
    """With the packer of this name."""
    return simulate_packed(
        jobs,
        cloud.catalog,
        cloud.kinds,
        cloud.truth,
        packer(name),
        period_s=packing.period_s,
        migration_delay=packing.migration_delay,
        sees=cloud.truth if packing.known_colocation else None,
        estimates=packing.estimates,
    )


def simulate_alone(
    jobs: str | None, packing: Packing, seed: int, *, outcomes: Path | None, output: Format
) -> None:
    """All jobs in the packed cloud."""
    if jobs is None:
        raise UserError("give JOBS, a trace with workloads and demands")
    if jobs.lstrip().startswith("{") or not {"gpu", "workload"} & {*header(Path(jobs))}:
        raise UserError(f"{jobs}: is for a cluster, as it has no workloads; give --nodes 1 or more")
    cloud = _read(packing)
    listed = read_jobs(jobs, cloud.kinds)
    check_fits(listed, cloud.offers)
    with at_work(f"packing {len(listed):,} jobs"):
        result = _simulated(cloud, listed, packing, packing.packer)
        base = _simulated(cloud, listed, packing, "none") if packing.compare else None
    if outcomes is not None:
        write("--outcomes", outcomes, outcomes_csv(result))
    told = result.as_dict() | {"seed": seed, "packing": packing.as_dict()}
    if base is not None:
        told |= _compared(result, base, {"cost": base.cost, "mean_jct_h": base.mean_jct_h})
    head = f"{len(listed):,} jobs {packing.title}; {len(cloud.catalog)} types of machines"
    jct = f"mean {result.mean_jct_h:.4g} h, of which {result.mean_idle_h:.3g} h not up"
    rows = [("cost", _cost(result, base)), ("completion", jct), *_rows(result)]
    rows.append(("simulated in", _took(result.cpu_seconds, result.packer_cpu_seconds)))
    _print(head, rows, told, packing, output)


def simulate_behind(
    jobs: str | None,
    packing: Packing,
    spec: Spec,
    *,
    history: bool,
    engine: str,
    outcomes: Path | None,
    output: Format,
) -> None:
    """A cluster as ever, and those who leave it in the packed cloud."""
    spec.check()
    cloud = _read(packing)
    trace, job_of, kinds = _front(jobs, packing, spec, cloud, history=history)
    check_all(trace, [spec])
    cloud = replace(cloud, kinds=kinds)
    with at_work(f"simulating {len(trace):,} jobs"):
        front = run(trace, spec, engine)
        at_once = run(trace, no_wait(spec), engine).result.mean_jct_h
        gone = leaving(trace, front.outcomes, spec.warmup, job_of)
        check_fits(gone, cloud.offers)
        result = _simulated(cloud, gone, packing, packing.packer)
        base = _simulated(cloud, gone, packing, "none") if packing.compare else None
    both, alone = (
        together(trace, front, packed, warmup=spec.warmup, no_wait_jct_h=at_once)
        for packed in (result, base or result)
    )
    if outcomes is not None:
        write("--outcomes", outcomes, outcomes_csv(result))
    echo = front.as_dict(spec)
    told = both.as_dict() | {"seed": echo["seed"], "spec": echo["spec"], "packing": packing.as_dict()}
    if base is not None:
        told |= _compared(result, base, {"cloud_cost_usd": base.cost, "mean_jct_h": alone.mean_jct_h})
    size = f"{spec.nodes} × {spec.gpus_per_node} GPUs"
    head = f"{spec.title}; {size}; {packing.title}; {len(both.jct_h):,} of {len(trace):,} jobs count"
    _print(head, _rows_of_both(both, base), told, packing, output)


def _front(
    jobs: str | None, packing: Packing, spec: Spec, cloud: Cloud, *, history: bool
) -> tuple[Trace, JobOf, dict[str, Kind]]:
    """The jobs as the cluster sees them, as the cloud does, and what they run there."""
    file = Path(jobs) if jobs is not None and not jobs.lstrip().startswith("{") else None
    if file is not None and not history and is_packed(file):
        listed = read_jobs(file, cloud.kinds)
        return as_trace(listed), listed.__getitem__, cloud.kinds
    trace = jobs_of(jobs, history=history)
    sizes = gpus_per_task(trace, cloud.most_gpus)
    lots = drawn(cloud.measured, gpus_of(packing.workloads), sizes, spec.seed)
    said = told_of(file, trace.ids, list(cloud.kinds)) if file is not None else {}
    workloads = [said.get(name, lot) for name, lot in zip(trace.ids, lots, strict=True)]
    share = Share(packing.cpus_per_gpu, packing.memory_per_gpu)
    return trace, job_maker(trace, workloads, cloud.most_gpus, share), in_seconds(cloud.kinds)


def _compared(result: PackedResult, base: PackedResult, told: dict[str, float]) -> dict[str, Any]:
    """What packing saves of the bill without it."""
    saved = 100 * (1 - result.cost / base.cost) if base.cost else 0.0
    return {"saved_percent": saved, "no_packing": told}


def _print(
    head: str, rows: list[tuple[str, str]], told: dict[str, Any], packing: Packing, output: Format
) -> None:
    if output.for_people:
        print("\n".join([head, *(f"{name:<15}{text}" for name, text in rows)]))
    elif output is Format.NAME:
        print(f"simulation/{packing.packer}")
    else:
        print_data(told, output)


def _rows_of_both(both: Both, base: PackedResult | None) -> list[tuple[str, str]]:
    result, front = both.packed, both.front.result
    share = f"{front.cloud_jobs / front.jobs_counted:.1%}"
    longer = f"{both.jct_increase_percent:+.1f} % against No-Wait in an undisturbed cloud"
    seconds = both.front.cpu_seconds + result.cpu_seconds
    return [
        ("cloud cost", _cost(result, base)),
        ("cloud jobs", f"{front.cloud_jobs:,} ({share}), mean {result.mean_jct_h:.4g} h in the cloud"),
        ("completion", f"mean {both.mean_jct_h:.4g} h, {longer}"),
        ("waiting", f"mean {round(front.mean_wait_h, 6):.4g} h"),
        ("utilization", f"{front.cluster_utilization:.1%} of the cluster"),
        *_rows(result),
        ("simulated in", _took(seconds, result.packer_cpu_seconds)),
    ]


def _rows(result: PackedResult) -> list[tuple[str, str]]:
    """What is told of any packed cloud."""
    kinds = (("GPUs", result.gpu_allocation), ("CPUs", result.cpu_allocation), ("RAM", result.ram_allocation))
    return [
        ("instances", f"{result.instances:,}, with {result.tasks_per_instance:.3g} tasks on each"),
        ("migrations", f"{result.migrations:,}"),
        ("allocation", ", ".join(f"{share:.1%} of {kind}" for kind, share in kinds)),
        ("pace", f"{result.mean_throughput:.1%} of that alone on a machine"),
        ("plans", f"{result.plans:,}, {result.full_share:.1%} of them full reconfigurations"),
    ]


def _cost(result: PackedResult, base: PackedResult | None) -> str:
    if base is None:
        return f"${result.cost:,.2f}"
    saved = _compared(result, base, {})["saved_percent"]
    than = f"{abs(saved):.1f} % {'more' if saved < 0 else 'less'} than"
    return f"${result.cost:,.2f}, {than} No-Packing's ${base.cost:,.2f}"


def _took(seconds: float, of_packer: float) -> str:
    return f"{seconds:.3g} CPU s, {of_packer:.3g} of them in the packer"


def outcomes_csv(result: PackedResult) -> str:
    """What became of every job of the packed cloud; seconds."""
    names = [field.name for field in fields(JobOutcome)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["job_id", *names[1:]])
    writer.writerows([getattr(job, name) for name in names] for job in result.jobs)
    return text.getvalue()
