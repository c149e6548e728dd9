"""Backfill as in the published simulator; its one published run is in test_reference_cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.engines.core_engine import simulate
from sim.outcomes import Outcomes
from sim.run import estimates
from sim.spec import Spec
from sim.trace import Trace

#: arrival (h), run time (h), GPUs
Row = tuple[float, float, int]


def trace(rows: Sequence[Row]) -> Trace:
    arrival, duration, gpus = (np.array(column) for column in zip(*rows, strict=True))
    ids, none = [str(i) for i in range(len(rows))], np.zeros(len(rows))
    ones = np.ones(len(rows), np.int64)
    return Trace(ids, arrival.astype(float), duration.astype(float), gpus, none, none, ones, gpus * duration)


def play(rows: Sequence[Row], rule: str = "artifact", **more: Any) -> Outcomes:
    told = {"nodes": 1, "gpus_per_node": 4, "waiting": "infinite", "backfill": True, **more}
    spec = Spec(**told, backfill_rule=rule)
    jobs = trace(rows)
    return simulate(jobs, estimates(jobs, spec), spec)


def test_the_first_job_reserves_and_those_that_end_before_pass_it() -> None:
    rows = [(0, 4, 2), (1, 1, 4), (2, 1, 2), (2, 3, 2)]
    assert play(rows).start_h.tolist() == [0, 4, 2, 5], "the last would still run at 4"
    assert play(rows).passed.tolist() == [False, False, True, False]


def test_it_reserves_only_where_just_as_many_gpus_as_it_needs_come_free() -> None:
    rows = [(0, 4, 2), (0, 8, 1), (1, 1, 2), (1.5, 9, 1)]
    fitting = [(0, 4, 1), (0, 8, 2), (1, 1, 2), (1.5, 9, 1)]
    assert play(rows).start_h.tolist() == [0, 0, 4, 1.5], "at 4 there are 3 free: too many, till one is taken"
    assert play(fitting).start_h.tolist() == [0, 0, 4, 5], "at 4 there are 2 free, and both are reserved"
    assert play(rows, "easy").start_h.tolist() == [0, 0, 4, 1.5]


def test_who_has_reserved_waits_for_it_even_when_another_node_is_free_sooner_than_believed() -> None:
    ends_sooner: dict[str, Any] = {"nodes": 2, "gpus_per_node": 1, "estimate_error": 60.0}
    for seed in range(40):
        rows: list[Row] = [(0, 4, 1), (0, 5, 1), (1, 1, 1), (1, 1, 1)]
        believed = estimates(trace(rows), Spec(estimate_error=60.0, seed=seed))
        if believed[1] < 4 and believed[0] > 5:
            out = play(rows, seed=seed, **ends_sooner)
            assert out.node.tolist()[2:] == [1, 0], "the first in the queue took the second node"
            assert out.start_h.tolist()[2:] == [5, 4]
            return
    raise AssertionError("no seed tells the runs' ends in the wrong order")


def test_a_reservation_after_its_own_deadline_is_not_made() -> None:
    rows = [(0, 4, 2), (1, 1, 4), (2, 9, 2)]
    soon, late = (play(rows, waiting="constant", factor=k) for k in (2.0, 3.5))
    assert soon.in_cloud.tolist() == [False, True, False]
    assert soon.start_h.tolist() == [0, 3, 2]
    assert late.in_cloud.tolist() == [False, False, False]
    assert late.start_h.tolist() == [0, 4, 5]


def test_whoever_has_reserved_cannot_expire() -> None:
    """Not even at the very instant of its start, when without a reservation it would leave."""
    rows = [(0, 4, 4), (1, 1, 4)]
    assert play(rows, waiting="constant", factor=3.0).in_cloud.tolist() == [False, False]
    assert play(rows, "easy", waiting="constant", factor=3.0).in_cloud.tolist() == [False, True]


rows_of_eighths = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 2, 3, 4, 4, 6])),
    min_size=1,
    max_size=25,
).map(lambda rows: [(a / 8, d / 8, g) for a, d, g in sorted(rows)])


@given(
    rows_of_eighths,
    st.sampled_from([0.0, 50.0, 200.0]),
    st.sampled_from([None, 0, 3]),
    st.sampled_from(["fifo", "sjf", "edf"]),
)
def test_every_job_runs_once_and_no_gpu_is_promised_twice(
    rows: list[Row], error: float, cap: int | None, order: str
) -> None:
    more: dict[str, Any] = {
        "waiting": "compute",
        "factor": 0.3,
        "estimate_error": error,
        "queue_cap": cap,
        "order": order,
    }
    out = play(rows, nodes=2, **more)
    arrival, duration, gpus = (np.array(column) for column in zip(*rows, strict=True))
    assert not np.isnan(out.end_h).any()
    assert (out.start_h >= arrival).all()
    assert np.allclose(out.end_h - out.start_h, duration)
    for now in out.start_h[~out.in_cloud]:
        runs = ~out.in_cloud & (out.start_h <= now) & (out.end_h > now)
        assert gpus[runs].sum() <= 8
