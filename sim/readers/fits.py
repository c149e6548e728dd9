"""Check that the empty cluster holds every job of a trace."""

from __future__ import annotations

import numpy as np

from sim.readers.problems import Problems
from sim.spec import Spec
from sim.trace import Trace
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
