"""Compiled engine: a trace as columns; results bit for bit equal to `sim.engines.core_engine`, much faster.

Only the event loop and the queue are implemented again (`sim/array/`); waits, orders and placement scores are
those of `starburst.policy`, applied to columns or compiled.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from sim.array.columns import columns, learns_run_times
from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Floats, Trace
from starburst.policy.disciplines.registry import DISCIPLINES

if TYPE_CHECKING:
    from sim.array.cluster import NodeArrays
    from sim.array.kernel import Runs


def why_not(spec: Spec, trace: Trace | None = None, estimate_h: Floats | None = None) -> str:
    """Why this engine cannot simulate the parameters, one sentence; empty if it can.

    `estimate_h`: the estimates of the trace, NaN where there is none; all are right if None.
    """
    if find_spec("numba") is None:
        return "Numba is not installed (the extra `fast`)."
    if spec.t_max_h is not None:
        return "Jobs that come home from the cloud are simulated by the core only."
    if spec.order in DISCIPLINES:
        return f"The order {spec.order} is a discipline, which only the core follows."
    if spec.order == "fair":
        return "The order fair depends on who came before, which only the core follows."
    if spec.backfill:
        return "Backfill is simulated by the core only."
    if spec.cpu_offload and not spec.gpus_per_node:
        return "On nodes without GPUs, jobs without GPUs that leave at once are simulated by the core only."
    if spec.hopeless != "wait":
        return "Jobs that leave because their wait is hopeless are simulated by the core only."
    if spec.budget_mode != "open":
        return "A budget that is calibrated as the jobs go is simulated by the core only."
    if estimate_h is not None and np.isnan(estimate_h).any():
        return "Jobs without an estimate wait by the mean run time of such jobs, which only the core learns."
    if trace is not None and estimate_h is not None and _corrects(trace, estimate_h):
        return "Users' estimates count by what their past ones were worth, which only the core learns."
    if learns_run_times(spec):
        return f"Without a factor {spec.waiting} learns run times as jobs end, which only the core does."
    return ""


def _corrects(trace: Trace, estimate_h: Floats) -> bool:
    """Whether the core would take any estimate for too long (`starburst.policy.estimate_accuracy`)."""
    return trace.users is not None and any(trace.users) and bool((estimate_h > trace.duration_h).any())


def simulate(trace: Trace, estimate_h: Floats, spec: Spec) -> Outcomes:
    """Run all jobs of the trace to their end. `estimate_h` are the run times that the scheduler assumes."""
    why = why_not(spec, trace, estimate_h)
    if why:
        raise ValueError(why)
    kernel = import_module("sim.array.kernel")  # requires Numba, an optional extra
    jobs = columns(trace, estimate_h, spec)
    nodes = kernel.cluster.cluster(spec, jobs)
    runs = kernel.runs(len(trace))
    rules = kernel.KernelRules(
        kernel.cluster.CODES[spec.binpack],
        spec.out_of_order,
        len(trace) if spec.queue_cap is None else spec.queue_cap,
        spec.cloud_delay_s / 3600,
    )
    waiting = kernel.queue.queue(jobs, spec.out_of_order)
    simulation = kernel.Simulation(jobs, nodes, waiting, runs, rules)
    kernel.compiled.ready(kernel.run, simulation)
    kernel.run(simulation)
    return _outcomes(trace, spec, nodes, runs)


def _outcomes(trace: Trace, spec: Spec, nodes: NodeArrays, runs: Runs) -> Outcomes:
    """Convert the runs to outcomes, as `sim.engines.core_engine` does."""
    cloud, start_h, end_h = runs.in_cloud, runs.start, runs.end
    never = np.isnan(start_h)
    wait_h = np.where(never, 0.0, start_h - trace.arrival_h)
    if spec.oracle:
        start_h = np.where(cloud, trace.arrival_h, start_h)
        end_h = np.where(cloud, end_h - wait_h, end_h)
        wait_h = np.where(cloud, 0.0, wait_h)
    ran = trace.duration_h > 0
    rate = np.divide(trace.cost, trace.duration_h, out=np.zeros(len(trace)), where=ran)
    extra_h = spec.data_gravity_h + spec.cloud_delay_s / 3600
    node = np.full(len(trace), -1)
    local = ~(cloud | never)
    node[local] = nodes.slots[nodes.slot_first[local]]
    return Outcomes(
        start_h=start_h,
        end_h=end_h,
        wait_h=wait_h,
        in_cloud=cloud,
        charged=np.where(cloud, trace.cost + rate * extra_h, 0.0),
        returned=np.zeros(len(trace), bool),
        passed=runs.passed,
        node=node,
    )
