"""Every waiting policy in numbers: its factor from the budget, its wait, and the sum a user reads.

The workload: E[r] = 2 GPUs, T = 1 h. The job: 2 GPUs for 1.5 h.
"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.policy.waiting import WAITING, Ask, Load, hours

HOUR = 3600.0
LOAD = Load(mean_size=2.0, mean_runtime_s=HOUR)
JOB = Ask(size=2.0, gpus=2, runtime_s=1.5 * HOUR)
HOME = Ask(size=2.0, gpus=2, runtime_s=1.5 * HOUR, returned=True)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("no-wait", 0.0),
        ("constant", 0.25 * HOUR),  # C = P·T/100
        ("runtime", 0.25),  # k = P/100
        ("resource", 0.125 * HOUR),  # k = P·T/(100·E[r])
        ("compute", 0.125),  # α = P/(100·E[r])
        ("star", 0.375 * HOUR),  # β = 3·P·T/(100·E[r])
        ("infinite", 0.0),
    ],
)
def test_the_factor_that_spends_a_budget_of_25_percent(name: str, factor: float) -> None:
    assert WAITING[name].factor(25.0, LOAD) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("name", "factor", "wait_s", "formula"),
    [
        ("no-wait", 0.0, 0.0, "nothing waits"),
        ("constant", 0.25 * HOUR, 15 * 60, "C 15 min"),
        ("runtime", 0.25, 22.5 * 60, "1.5 h × k 0.25"),
        ("resource", 0.125 * HOUR, 15 * 60, "2 GPU × k 7.5 min"),
        ("compute", 0.08, 14.4 * 60, "2 GPU × 1.5 h × α 0.08"),
        ("star", 0.25 * HOUR, 0.0, "no first wait"),
        ("infinite", 0.0, inf, "waits until there is room"),
    ],
)
def test_the_wait_of_a_job_and_its_sum(name: str, factor: float, wait_s: float, formula: str) -> None:
    policy = WAITING[name]
    assert policy.wait_s(factor, JOB) == pytest.approx(wait_s)
    assert policy.formula(factor, JOB) == formula


def test_star_wait_waits_in_proportion_to_size_once_home() -> None:
    star = WAITING["star"]
    assert star.wait_s(0.25 * HOUR, HOME) == 0.5 * HOUR
    assert star.formula(0.25 * HOUR, HOME) == "2 GPU × β 15 min"


def test_cpus_show_in_the_sum_as_gpu_equivalents() -> None:
    ask = Ask(size=2.48, gpus=2, runtime_s=HOUR)
    assert WAITING["compute"].formula(0.08, ask) == "2.48 GPU-equivalents × 1 h × α 0.08"


sizes = st.floats(0.5, 64)
lengths = st.floats(60, 1e5)


@pytest.mark.parametrize("name", ["constant", "runtime", "resource", "compute"])
@given(sizes=st.lists(sizes, min_size=1, max_size=8), runtime_s=lengths, percent=st.floats(0, 100))
def test_all_waits_together_are_the_budget(
    name: str, sizes: list[float], runtime_s: float, percent: float
) -> None:
    """Σw = P·T·N/100; with run times independent of sizes, here all alike."""
    policy = WAITING[name]
    load = Load(sum(sizes) / len(sizes), runtime_s)
    factor = policy.factor(percent, load)
    waits = sum(policy.wait_s(factor, Ask(size, round(size), runtime_s)) for size in sizes)
    assert waits == pytest.approx(percent / 100 * runtime_s * len(sizes))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (45, "45 s"),
        (864, "14.4 min"),
        (HOUR, "1 h"),
        (75 * 60, "75 min"),
        (1.5 * HOUR, "1.5 h"),
        (100 * HOUR, "100 h"),
        (2000 * HOUR, "2000 h"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert hours(seconds) == text
