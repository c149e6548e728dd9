"""The unit of the core's clock does not change what a simulation gives, but for ties."""

from __future__ import annotations

import numpy as np
import pytest

from sim.engines import core_engine
from sim.spec import Spec
from sim.trace import Trace


def trace(jobs: int) -> Trace:
    """Jobs of unlike sizes without ties, some with a longest wait of their own."""
    draw = np.random.default_rng(7)
    gpus = draw.choice([1, 2, 4, 8], jobs)
    duration_h = draw.lognormal(0.0, 1.0, jobs)
    zeros, ones = np.zeros(jobs), np.ones(jobs, int)
    waits = np.where(draw.random(jobs) < 0.2, draw.random(jobs), np.nan)
    ids = [str(i) for i in range(jobs)]
    arrival_h = np.cumsum(draw.exponential(0.3, jobs))
    return Trace(ids, arrival_h, duration_h, gpus, zeros, zeros, ones, gpus * duration_h, max_wait_h=waits)


@pytest.mark.parametrize(
    "spec",
    [
        Spec(nodes=2, waiting="compute", factor=0.05, cloud_delay_s=90, data_gravity_h=0.1),
        Spec(nodes=2, waiting="star", factor=0.2, t_max_h=0.4, no_short_jobs_h=0.1),
        Spec(nodes=2, waiting="compute", budget_mode="calibrated", out_of_order=True),
    ],
    ids=["compute", "star", "calibrated"],
)
def test_a_clock_in_seconds_gives_what_a_clock_in_hours_does(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = trace(60)
    hours = core_engine.simulate(jobs, jobs.duration_h, spec)
    monkeypatch.setattr(core_engine, "CLOCK_UNIT_S", 1.0)
    seconds = core_engine.simulate(jobs, jobs.duration_h, spec)

    assert hours.in_cloud.any()
    assert not hours.in_cloud.all()
    for name in ("start_h", "end_h", "wait_h", "charged"):
        assert getattr(seconds, name) == pytest.approx(getattr(hours, name), abs=1e-9), name
    for name in ("in_cloud", "returned", "passed", "node"):
        assert getattr(seconds, name).tolist() == getattr(hours, name).tolist(), name
