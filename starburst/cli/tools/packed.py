"""`starburst simulate --packer`: a cloud whose machines several jobs share, alone or behind the cluster."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from sim.eva_replica.check import check_fits
from sim.eva_replica.run import simulate_packed
from sim.packing.burst import Both, simulate_burst
from sim.packing.cloud import CloudModel
from sim.packing.demands import JobOf, Share, as_trace, gpus_per_task, in_seconds, job_maker
from sim.packing.inputs import Kind, PackedJob
from sim.packing.results import JobOutcome, PackedResult
from sim.packing.workloads import drawn, gpus_of, header, is_packed, workloads_of
from sim.readers import on_cluster
from sim.readers.packing import read_jobs
from sim.run import run
from sim.spec import Spec
from sim.sweep import no_wait
from sim.trace import Trace
from starburst.app.errors import UserError
from starburst.cli.output import Format, print_data
from starburst.cli.tools.packed_options import Packing
from starburst.cli.tools.simulate_options import SimulateOptions
from starburst.cli.tools.traces import at_work, check_all, jobs_of, tell_of_priorities, write
from starburst.policy.packing.registry import packer


def _read(packing: Packing) -> CloudModel:
    return CloudModel.read(
        packing.catalog,
        packing.workloads,
        packing.colocation,
        cpu_column=packing.cpu_column,
        uniform_throughput=packing.uniform_throughput,
    )


def _simulated(cloud: CloudModel, jobs: Sequence[PackedJob], packing: Packing, name: str) -> PackedResult:
    """With the packer of this name."""
    return simulate_packed(
        jobs,
        cloud,
        packer(name),
        period_s=packing.period_s,
        migration_delay=packing.migration_delay,
        sees=cloud.truth if packing.known_colocation else None,
        estimates=packing.estimates,
    )


def simulate_packed_cloud(options: SimulateOptions, packing: Packing, spec: Spec) -> None:
    """All jobs in a packed cloud or, with nodes, those that leave the cluster."""
    if spec.nodes:
        _simulate_behind(options, packing, spec)
    else:
        _simulate_alone(options, packing)


def _simulate_alone(options: SimulateOptions, packing: Packing) -> None:
    """All jobs in the packed cloud."""
    jobs = options.jobs
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
    if options.outcomes is not None:
        write("--outcomes", options.outcomes, outcomes_csv(result))
    told = result.as_dict() | {"seed": options.cluster.seed, "packing": packing.as_dict()}
    if base is not None:
        told |= _compared(result, base, {"cost": base.cost, "mean_jct_h": base.mean_jct_h})
    head = f"{len(listed):,} jobs {packing.title}; {len(cloud.catalog)} types of machines"
    jct = f"mean {result.mean_jct_h:.4g} h, of which {result.mean_idle_h:.3g} h not up"
    rows = [("cost", _cost(result, base)), ("completion", jct), *_rows(result)]
    rows.append(("simulated in", _took(result.cpu_seconds, result.packer_cpu_seconds)))
    _print(head, rows, told, packing, options.output)


def _simulate_behind(options: SimulateOptions, packing: Packing, spec: Spec) -> None:
    """The cluster and its cloud, under the scheduler that ships."""
    spec.check()
    if options.engine not in ("auto", "core"):
        raise UserError(f"--engine: {options.engine}: only the core shares machines; choose core or auto")
    cloud = _read(packing)
    trace, job_of, kinds = _front(options, packing, spec, cloud)
    check_all(trace, [spec])
    cloud = replace(cloud, kinds={name: kind.slowed(packing.migration_delay) for name, kind in kinds.items()})
    with at_work(f"simulating {len(trace):,} jobs"):
        burst = partial(
            simulate_burst,
            trace,
            job_of,
            spec,
            cloud,
            period_s=packing.period_s,
            knows_colocation=packing.known_colocation,
            no_wait_jct_h=run(trace, no_wait(spec)).result.mean_jct_h,
        )
        both = burst(packer_name=packing.packer)
        alone = burst(packer_name="none") if packing.compare else None
    if options.outcomes is not None:
        write("--outcomes", options.outcomes, outcomes_csv(both.packed))
    base = None if alone is None else alone.packed
    echo = both.front.as_dict(spec)
    told = both.as_dict() | {"seed": echo["seed"], "spec": echo["spec"], "packing": packing.as_dict()}
    if alone is not None:
        apart = {"cloud_cost_usd": alone.packed.cost, "mean_jct_h": alone.mean_jct_h}
        told |= _compared(both.packed, alone.packed, apart)
    size = f"{spec.nodes} × {spec.gpus_per_node} GPUs"
    head = f"{spec.title}; {size}; {packing.title}; {len(both.jct_h):,} of {len(trace):,} jobs count"
    _print(head, _rows_of_both(both, base), told, packing, options.output)


def _front(
    options: SimulateOptions, packing: Packing, spec: Spec, cloud: CloudModel
) -> tuple[Trace, JobOf, dict[str, Kind]]:
    """The jobs as the cluster sees them, as the cloud does, and what they run there."""
    jobs, history = options.jobs, options.history
    file = Path(jobs) if jobs is not None and not jobs.lstrip().startswith("{") else None
    if file is not None and not history and is_packed(file):
        listed = read_jobs(file, cloud.kinds)
        trace = as_trace(listed)
        tell_of_priorities(str(file), trace, [spec])
        return trace, listed.__getitem__, cloud.kinds
    trace = on_cluster(jobs_of(jobs, history=history, specs=[spec]), spec)
    largest = min(cloud.most_gpus, spec.gpus_per_node)
    sizes = gpus_per_task(trace, largest)
    lots = drawn(cloud.measured, gpus_of(packing.workloads), sizes, spec.seed)
    said = workloads_of(file, trace.ids, list(cloud.kinds)) if file is not None else {}
    workloads = [said.get(name, lot) for name, lot in zip(trace.ids, lots, strict=True)]
    share = Share(packing.cpus_per_gpu, packing.memory_per_gpu)
    return trace, job_maker(trace, workloads, largest, share), in_seconds(cloud.kinds)


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
