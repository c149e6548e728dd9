"""A job of n nodes in a trace takes n distinct nodes, as the published simulator has it."""

from __future__ import annotations

import numpy as np
import pytest

from sim.engines import array_engine
from sim.engines.core_engine import simulate
from sim.readers.columns import trace_of
from sim.spec import Spec
from sim.trace import Trace

SPEC = Spec(nodes=2, gpus_per_node=8, waiting="infinite", factor=1.0)


def two_jobs() -> Trace:
    """Half of node 0 is taken for ten hours; then a job of two nodes and eight GPUs comes."""
    return trace_of(
        ["half", "wide"],
        np.array([0.0, 1.0]),
        np.array([10.0, 1.0]),
        np.array([4.0, 8.0]),
        nodes=np.array([1.0, 2.0]),
    )


def whole_node_first() -> Trace:
    """Node 0 is full for ten hours, and node 1 alone could hold both halves of the second job."""
    return trace_of(
        ["full", "wide"],
        np.array([0.0, 1.0]),
        np.array([10.0, 1.0]),
        np.array([8.0, 8.0]),
        nodes=np.array([1.0, 2.0]),
    )


@pytest.mark.parametrize(("trace", "start_h"), [(two_jobs(), 1.0), (whole_node_first(), 10.0)])
def test_the_tasks_of_a_job_of_two_nodes_share_none(trace: Trace, start_h: float) -> None:
    assert simulate(trace, trace.duration_h, SPEC).start_h[1] == start_h
    if not array_engine.why_not(SPEC):
        assert array_engine.simulate(trace, trace.duration_h, SPEC).start_h[1] == start_h
