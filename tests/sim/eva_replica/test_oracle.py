"""One machine per task has an exact answer: what Eva's artifact and its paper (Tables 13 and 14) report."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.eva_replica.run import simulate_packed
from sim.packing.cloud import CloudModel
from sim.packing.results import PackedResult
from sim.readers.packing import read_jobs
from starburst.policy.packing.packers.none import NoPacking
from tests.references import SHARED, needs_references

EVA: Path = SHARED / "cases" / "eva"
pytestmark = needs_references


def simulated(trace: str) -> PackedResult:
    files = (EVA / f"{name}.csv" for name in ("instance_types", "workloads", "colocation_throughput"))
    cloud = CloudModel.read(*files, cpu_column="vcpu")
    return simulate_packed(read_jobs(EVA / f"{trace}.csv", cloud.kinds), cloud, NoPacking())


def test_two_hundred_jobs_come_out_to_the_cent() -> None:
    result = simulated("trace_pai_200")
    assert f"{result.cost:.2f}" == "20736.38"
    assert f"{result.mean_jct_h:.2f}" == "17.67"
    assert f"{result.tasks_per_instance:.2f}" == "0.99"
    assert (result.instances, result.migrations, result.mean_throughput) == (200, 0, pytest.approx(1))


@pytest.mark.volume
@pytest.mark.parametrize(
    ("trace", "cost", "jct_h"),
    [("trace_pai_full_gavel", "831227.28", "16.81"), ("trace_pai_full_alibaba", "442333.74", "9.18")],
)
def test_the_whole_traces_come_out_to_the_cent(trace: str, cost: str, jct_h: str) -> None:
    """Of Alibaba's the dollars are reported only: 442,334."""
    result = simulated(trace)
    assert f"{result.cost:.2f}" == cost
    assert f"{result.mean_jct_h:.2f}" == jct_h
    assert f"{result.mean_idle_h:.2f}" == "0.10"  # Table 14
    assert result.instances == 6274
