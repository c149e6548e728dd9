"""Whether the empty cluster holds the jobs of a trace, and a trace made to fit a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from sim.readers.columns import chosen
from sim.readers.problems import Problems
from sim.spec import Spec
from sim.trace import Floats, Trace
from starburst.domain.resources import MIB_PER_GIB, MILLI

_MEND = "give the cluster more, or take the job out of the trace"


def check_fits(trace: Trace, spec: Spec) -> None:
    """Raise SimulationError with the jobs that the empty cluster does not hold, by id and number."""
    problems = Problems("trace", "{file}: job {line}")
    gpus_per_task = np.where(trace.nodes > 1, -(-trace.gpus // trace.nodes), 0)
    limits = {
        "gpus": (trace.gpus, spec.nodes * spec.gpus_per_node, 1, "in all"),
        "gpus per node": (gpus_per_task, spec.gpus_per_node, 1, "a node"),
        "cpus per node": (trace.cpus / trace.nodes, spec.cpus_per_node, MILLI, "a node"),
        "memory_gib per node": (
            trace.memory_gib / trace.nodes,
            spec.memory_gib_per_node,
            MIB_PER_GIB,
            "a node",
        ),
    }
    bad = np.zeros(len(trace), bool)
    for name, (demand, most, grain, where) in limits.items():
        over = np.rint(demand * grain) > round(most * grain)
        for row in np.flatnonzero(over):
            value = f"{float(demand[row]):.15g} (id {trace.ids[row]})"
            problems.add(int(row) + 1, name, value, f"there are {most:g} {where}; {_MEND}")
        bad |= over
    for row in np.flatnonzero(~bad & (trace.nodes > 1)):
        if trace.nodes[row] > spec.nodes:
            value = f"{trace.nodes[row]} (id {trace.ids[row]})"
            problems.add(int(row) + 1, "nodes", value, f"there are {spec.nodes} nodes; {_MEND}")
    problems.check()


def spread(trace: Trace, specs: Iterable[Spec]) -> tuple[Trace, int]:
    """The jobs that all of these clusters hold, for `on_cluster`; and the number of the others."""
    kept = np.ones(len(trace), bool)
    for spec in specs:
        kept &= np.isfinite(_fewest_nodes(trace, spec))
    rows = np.flatnonzero(kept)
    return replace(chosen(trace, rows), foreign=True), len(trace) - len(rows)


def on_cluster(trace: Trace, spec: Spec) -> Trace:
    """A foreign trace with its jobs on the fewest nodes of this cluster that hold them; another as it is."""
    if not trace.foreign:
        return trace
    return replace(trace, nodes=_fewest_nodes(trace, spec).astype(np.int64))


def _fewest_nodes(trace: Trace, spec: Spec) -> Floats:
    """The fewest nodes that hold each job, infinity where the cluster has not enough of them.

    A job's source may tell only of its total resources. One that exceeds a node is treated as a gang, and so
    is one that asks for CPUs or memory beside more GPUs than a node has.
    """
    cpus = _nodes(trace.cpus, spec.cpus_per_node)
    memory = _nodes(trace.memory_gib, spec.memory_gib_per_node)
    gpus = _nodes(trace.gpus.astype(np.float64), spec.gpus_per_node)
    split = (gpus > trace.nodes) & (trace.cpus == 0) & (trace.memory_gib == 0) & (trace.nodes == 1)
    fewest = np.maximum(np.maximum(cpus, memory), np.where(split, 1, gpus))
    nodes = np.maximum(trace.nodes, fewest)
    return np.where((nodes <= spec.nodes) & (gpus <= spec.nodes), nodes, np.inf)


def _nodes(demand: Floats, most: float) -> Floats:
    """The fewest nodes that hold a demand when it is shared out evenly; infinity if none can."""
    return np.ceil(demand / most - 1e-9) if most else np.where(demand > 0, np.inf, 1)
