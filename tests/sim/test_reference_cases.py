"""The published results, met to 1e-9, and job by job where ends, deadlines and arrivals tie exactly."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from sim.engines import array_engine
from sim.engines.core_engine import simulate
from sim.outcomes import Outcomes, measure
from sim.spec import Spec
from tests.references import expected, needs_references, rows
from tests.sim.cases import assert_equal, exact_runs, spec, star_runs, trace

pytestmark = needs_references


#: The case of the most jobs, and its runs that go through the core too; the other cases do so in all runs.
LARGE = "phillylike_r24"
LARGE_IN_CORE = ("compute_oo_firstfit", "constant_noo", "resource_oo")


@cache
def run(case: str, name: str) -> tuple[Spec, Outcomes]:
    """One run of the reference, through the core."""
    told = spec(expected()[case]["runs"][name]["spec"])
    jobs = trace(case)
    return told, simulate(jobs, jobs.duration_h, told)


@pytest.mark.parametrize(("case", "name"), exact_runs())
def test_every_figure_of_every_run(case: str, name: str) -> None:
    """By both engines, and so equal; most runs of the large case by the fast one alone."""
    jobs, told = trace(case), spec(expected()[case]["runs"][name]["spec"])
    in_arrays = not array_engine.why_not(told)  # Numba is here, and the engine can do this run
    if in_arrays:
        fast = array_engine.simulate(jobs, jobs.duration_h, told)
        assert_met(case, name, fast)
    if not in_arrays or case != LARGE or name in LARGE_IN_CORE:
        _, outcomes = run(case, name)
        assert_met(case, name, outcomes)
        if in_arrays:
            assert_equal(fast, outcomes)


def assert_met(case: str, name: str, outcomes: Outcomes) -> None:
    """The figures are the reference's."""
    told = expected()[case]["runs"][name]
    figures = measure(trace(case), outcomes, spec(told["spec"])).as_dict()
    wanted = told["expected"]
    assert {key: figures[key] for key in wanted} == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_the_array_engine_does_most_of_them() -> None:
    pytest.importorskip("numba", reason="the array engine needs the extra `fast`")
    runs = [spec(expected()[case]["runs"][name]["spec"]) for case, name in exact_runs()]
    assert sum(not array_engine.why_not(told) for told in runs) == 47


def test_the_reference_has_the_runs_this_test_counts_on() -> None:
    assert (len(exact_runs()), len(star_runs())) == (14 + 17 + 7 + 10, 3 + 3 + 2 + 3)


@pytest.mark.parametrize("name", [name for case, name in exact_runs() if case == "micro_ties"])
def test_micro_ties_job_by_job(name: str) -> None:
    _, outcomes = run("micro_ties", name)
    wanted = [row for row in rows("micro_ties.outcomes.csv") if row["variant"] == name]
    assert len(wanted) == len(outcomes.start_h) == 240
    for index, row in enumerate(wanted):
        node = -1 if row["nodes"] == "" else int(row["nodes"].split()[0])
        found = (outcomes.start_h[index], outcomes.in_cloud[index], outcomes.node[index])
        assert found == (float(row["start_h"]), row["cloud"] == "1", node), row["idx"]


@pytest.mark.parametrize(("case", "name"), star_runs())
def test_star_wait_is_charged_for_every_stay_and_waits_beta_r_after_its_return(case: str, name: str) -> None:
    """The reference forgets the first stay and shortens the second wait; ours do what must hold."""
    told, out = run(case, name)
    jobs = trace(case)
    assert told.t_max_h is not None
    assert told.factor is not None
    back, away = out.returned, out.in_cloud
    rate = jobs.cost / jobs.duration_h
    stays_h = np.where(back, told.t_max_h, 0.0) + np.where(away, jobs.duration_h, 0.0)
    assert out.charged == pytest.approx(stays_h * rate, rel=1e-9, abs=1e-12)
    once = away & ~back
    assert np.all(jobs.duration_h[once] <= told.t_max_h + 1e-9), "what stayed was done within T_max"
    assert back.any()
    twice = away & back
    if told.queue_cap is None:
        assert out.wait_h[twice] == pytest.approx((told.factor * jobs.gpus)[twice], rel=1e-9)
