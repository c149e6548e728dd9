"""Simulation of one packer on one trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import process_time

from sim.errors import SimulationError
from sim.eva_replica.world import PackedWorld
from sim.packing.cloud import CloudModel
from sim.packing.inputs import Kind, PackedJob, PairThroughput
from sim.packing.results import PackedResult
from starburst.policy.packing.plan import Packer
from starburst.policy.packing.throughput import Throughput


def simulate_packed(
    trace: Sequence[PackedJob],
    cloud: CloudModel,
    packer: Packer,
    *,
    period_s: float = 300.0,
    migration_delay: float = 1.0,
    uniform_throughput: float | None = None,
    sees: Throughput | None = None,
    estimates: bool = False,
) -> PackedResult:
    """Run the trace to its end with this packer.

    `migration_delay`: factor on the duration of moves (Eva, section 6.5). `uniform_throughput`: true
    throughput of every pair, instead of `cloud.truth` (section 6.4). `sees`: the throughputs given to the
    packer; None uses a table learnt during the simulation. `estimates`: whether the packer gets the remaining
    time of tasks.

    Raises:
        SimulationError: a parameter is out of range, or a task fits no instance.
        PlanError: the packer made a plan that cannot be carried out.
    """
    before = process_time()
    _check(trace, cloud.kinds, period_s, migration_delay, uniform_throughput)
    truth = cloud.truth if uniform_throughput is None else PairThroughput(default=uniform_throughput)
    kinds = {name: kind.slowed(migration_delay) for name, kind in cloud.kinds.items()}
    world = PackedWorld(
        trace, cloud.catalog, kinds, truth, packer, period_s=period_s, sees=sees, estimates=estimates
    )
    world.run()
    order = [job.id for job in trace]
    return world.meter.result(order, process_time() - before, world.packer_cpu_seconds)


def _check(
    trace: Sequence[PackedJob],
    workloads: Mapping[str, Kind],
    period_s: float,
    migration_delay: float,
    uniform_throughput: float | None,
) -> None:
    for name, value, possible, remedy in (
        ("period_s", period_s, 0 < period_s < float("inf"), "must be more than 0"),
        ("migration_delay", migration_delay, 0 <= migration_delay < float("inf"), "must be 0 or more"),
        (
            "uniform_throughput",
            uniform_throughput,
            uniform_throughput is None or 0 < uniform_throughput <= 1,
            "must be more than 0 and at most 1",
        ),
    ):
        if not possible:
            raise SimulationError(f"{name}: {value}: {remedy}")
    for job in trace:
        if job.workload not in workloads:
            raise SimulationError(f"job {job.id}: workload: {job.workload}: is not among the workloads")
