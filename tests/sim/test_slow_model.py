"""The simulator does what a slow, obviously right model does, on random small cases full of exact ties."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engines.core_engine import simulate
from sim.spec import Spec
from sim.trace import Trace
from starburst.policy.waiting import WAITING, Ask
from tests.sim.slow_model import SlowModel

GPUS_PER_NODE = 4
#: Powers of two: sums of them tie exactly.
dyadic = st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0])


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A few jobs, some larger than a node, none larger than the cluster of two."""
    n = draw(st.integers(1, 25))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.0, 0.125, 0.25, 1.0]), min_size=n, max_size=n))
    gpus = np.array(draw(st.lists(st.integers(0, 2 * GPUS_PER_NODE), min_size=n, max_size=n)))
    duration_h = np.array(draw(st.lists(dyadic, min_size=n, max_size=n)))
    cpus = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 4.0]), min_size=n, max_size=n)))
    ids = [str(i) for i in range(n)]
    none = np.zeros(n)
    return Trace(ids, np.cumsum(gaps), duration_h, gpus, cpus, none, np.ones(n, int), gpus * duration_h)


specs = st.builds(
    Spec,
    nodes=st.just(2),
    gpus_per_node=st.just(GPUS_PER_NODE),
    cpus_per_node=st.sampled_from([8.0, 16.0]),
    waiting=st.sampled_from(["no-wait", "constant", "runtime", "resource", "compute", "infinite"]),
    factor=st.sampled_from([0.125, 0.25, 0.5, 1.0]),
    order=st.sampled_from(["fifo", "sjf"]),
    out_of_order=st.booleans(),
    binpack=st.sampled_from(["first-fit", "best-fit", "worst-fit"]),
    queue_cap=st.sampled_from([None, 0, 1, 3]),
)


@settings(max_examples=120)
@given(trace=traces(), spec=specs)
def test_the_core_does_as_the_slow_model(trace: Trace, spec: Spec) -> None:
    policy = WAITING[spec.waiting]
    per_gpu = spec.settings().cpus_per_gpu
    waits = [
        policy.wait_s(spec.factor or 0.0, Ask(float(g) + float(c) / per_gpu, int(g), float(d)))
        for g, c, d in zip(trace.gpus, _asked_cpus(trace), trace.duration_h, strict=True)
    ]
    slow = SlowModel(trace, waits, spec).run()
    fast = simulate(trace, trace.duration_h, spec)
    assert [job.index for job in slow] == list(range(len(trace)))
    for job in slow:
        i = job.index
        node = -1 if job.in_cloud else job.nodes[0]
        found = (fast.start_h[i], fast.in_cloud[i], fast.node[i], fast.passed[i])
        assert found == (job.start, job.in_cloud, node, job.passed), trace.ids[i]


def _asked_cpus(trace: Trace) -> list[float]:
    """CPUs over all tasks: each chunk of a split job asks for the whole job's."""
    return [sum(t.cpus for t in trace.tasks(i, GPUS_PER_NODE)) for i in range(len(trace))]
