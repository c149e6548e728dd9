"""Who pays: slowdowns per size class and user, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.outcomes import Outcomes
from sim.readers.columns import trace_of
from sim.slowdowns import slowdowns
from sim.spec import Spec
from sim.trace import Trace

SPEC = Spec(nodes=1, gpus_per_node=8)


def waited(
    hours: list[float], run_h: list[float], gpus: list[int], users: list[str]
) -> tuple[Trace, Outcomes]:
    """Jobs that all arrive at once and wait this long on the cluster."""
    wait, run, n = np.array(hours), np.array(run_h), len(hours)
    trace = trace_of([str(i) for i in range(n)], np.zeros(n), run, np.array(gpus, float), users=users)
    none = np.zeros(n, bool)
    return trace, Outcomes(wait, wait + run, wait, none, np.zeros(n), none, none, np.zeros(n, int))


def test_groups_and_percentiles() -> None:
    trace, outcomes = waited([0, 1, 3, 10, 2], [1, 1, 1, 2, 0.5], [1, 1, 1, 16, 8], ["a", "b", "a", "b", ""])
    told = slowdowns(trace, outcomes, SPEC)
    everyone = told.everyone
    assert (everyone.jobs, everyone.longest_wait_h) == (5, 10)
    assert (everyone.p50_slowdown, everyone.p90_slowdown, everyone.p99_slowdown) == (4, 5, 5)
    assert [(g.name, g.jobs, g.p50_slowdown, g.p99_slowdown) for g in told.classes] == [
        ("1 GPU", 3, 2, 2),
        ("5-8 GPUs", 1, 5, 5),
        ("9-32 GPUs", 1, 6, 6),
    ]
    assert told.worst_class.name == "9-32 GPUs"
    assert [(g.name, g.p99_slowdown, g.longest_wait_h) for g in told.users] == [
        ("", 5, 2),
        ("b", 2, 10),
        ("a", 1, 3),
    ], "the worst first; of two jobs p99 is the lower, as it is not interpolated"


def test_a_run_of_a_second_counts_as_ten_and_nobody_is_sped_up() -> None:
    trace, outcomes = waited([0, 9 / 3600, 20 / 3600], [1 / 3600] * 3, [1, 1, 1], ["u"] * 3)
    (user,) = slowdowns(trace, outcomes, SPEC).users
    assert (user.p50_slowdown, user.longest_wait_h) == (1, pytest.approx(20 / 3600))
    (single,) = slowdowns(*waited([20 / 3600], [1 / 3600], [1], ["u"]), SPEC).users
    assert single.p99_slowdown == pytest.approx(2.1)


def test_the_warm_up_does_not_count_and_a_trace_may_have_no_users() -> None:
    trace, outcomes = waited([50, 0, 1, 50], [1] * 4, [1] * 4, ["a"] * 4)
    told = slowdowns(replace(trace, users=None), outcomes, replace(SPEC, warmup=1))
    assert (told.users, told.everyone.jobs) == ((), 3), "the last is counted, as in the published simulator"
    assert told.everyone.p50_slowdown == 2
