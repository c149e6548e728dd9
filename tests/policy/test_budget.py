"""The control of the budget on plants small enough to reason about."""

from __future__ import annotations

import math

import numpy as np
import pytest

from starburst.policy.budget import LEAST, MOST, Account, bank, left, multiplier, spend
from starburst.policy.waiting import Load

HOUR = 3600.0
#: A workload whose jobs run for an hour on average, exponentially.
HOURS = Load(1, HOUR, math.sqrt(2) * HOUR)


def realised(
    budget: float,
    need: list[float],
    *,
    account: Account | None = None,
    seed: int = 1,
    noise: float = 0.5,
    leave: float = 0.1,
) -> tuple[float, Account]:
    """Runs jobs of an hour; job i is late by budget · multiplier / need[i] percent of it, plus `noise`.

    One in 1/`leave` jobs waits to its end and leaves. Returns the realised increase, percent, of the last
    half of the jobs, and the account.
    """
    rng = np.random.default_rng(seed)
    account = account or Account()
    late_s: list[float] = []
    for needed in need:
        m = multiplier(account, budget, HOURS)
        late_s.append(budget / 100 * m / needed * HOUR * rng.lognormal(-(noise**2) / 2, noise))
        account = spend(account, HOUR, late_s[-1], budget, HOURS)
        if rng.random() < leave:
            account = left(account, budget, HOURS)
    half = late_s[len(late_s) // 2 :]
    return 100 * sum(half) / (len(half) * HOUR), account


def test_at_first_the_factor_is_the_open_loop_one() -> None:
    assert multiplier(Account(), 25, HOURS) == 1


@pytest.mark.parametrize("budget", [5, 10, 25])
@pytest.mark.parametrize("need", [0.5, 1, 4, 10])
def test_it_converges_to_the_budget_whatever_the_workload_needs(budget: float, need: float) -> None:
    found, _ = realised(budget, [need] * 8000)
    assert found == pytest.approx(budget, rel=0.08)


@pytest.mark.parametrize(("before", "after"), [(2, 8), (8, 2)])
def test_it_follows_a_step(before: float, after: float) -> None:
    _, account = realised(10, [before] * 3000)
    found, _ = realised(10, [after] * 8000, account=account, seed=2)
    assert found == pytest.approx(10, abs=1)


def test_heavy_tails_do_not_carry_it_away() -> None:
    found, _ = realised(10, [4] * 8000, noise=1.5)
    assert found == pytest.approx(10, abs=2)


def test_it_stays_within_its_bounds() -> None:
    _, starved = realised(10, [1e9] * 20_000)
    _, drowned = realised(10, [1e-9] * 20_000)
    assert MOST / 2 < multiplier(starved, 10, HOURS) <= MOST
    assert LEAST <= multiplier(drowned, 10, HOURS) < LEAST * 2


def test_where_nobody_leaves_longer_waits_would_spend_nothing_and_are_not_learnt() -> None:
    """Else a quiet year would make the waits of the next rush endless."""
    _, account = realised(10, [1e9] * 5000, leave=0)
    assert account.trend == 0
    assert multiplier(account, 10, HOURS) < 3


def test_more_delay_never_makes_waits_longer() -> None:
    accounts = [Account(1000 * HOUR, late * HOUR, 0.3) for late in range(0, 500, 10)]
    found = [multiplier(account, 25, HOURS) for account in accounts]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    spent = [spend(Account(1000 * HOUR, 250 * HOUR), HOUR, late, 25, HOURS) for late in (0, HOUR, 99 * HOUR)]
    trends = [account.trend for account in spent]
    assert trends == sorted(trends, reverse=True)


def test_the_bank_is_empty_when_all_that_was_earned_is_spent() -> None:
    assert bank(Account(1000.0, 250.0), 25, Load(1, 1)) == 0
    assert bank(Account(1000.0, 240.0), 25, Load(1, 1)) > 0 > bank(Account(1000.0, 260.0), 25, Load(1, 1))
    assert Account(1000.0, 250.0).spent_percent == 25


def test_the_past_fades() -> None:
    account = Account(0, 1000 * HOUR)
    for _ in range(30_000):
        account = spend(account, HOUR, 0, 10, HOURS)
    assert account.delay_s < HOUR


def test_work_that_is_thrown_away_is_moved_to_the_delays() -> None:
    account = spend(Account(10 * HOUR, 0), -HOUR, HOUR, 10, HOURS)
    assert (account.run_s, account.delay_s) == (9 * HOUR, HOUR)


def test_where_many_jobs_run_at_a_time_the_control_is_slower() -> None:
    """A long wait's effect is seen only after many others were decided."""
    few = Account(1000 * HOUR, 95 * HOUR, passed_s=100 * HOUR)
    many = Account(1000 * HOUR, 95 * HOUR, passed_s=2 * HOUR)
    assert (few.running, many.running) == (10, 500)
    assert bank(few, 10, HOURS) > 3 * bank(many, 10, HOURS) > 0
    assert left(few, 10, HOURS).trend > left(many, 10, HOURS).trend > 0


def test_where_few_long_jobs_are_most_of_the_work_the_control_is_slower() -> None:
    """Both sums hang on few jobs, and a change of the multiplier shows only when such came and waited."""
    account = Account(1000 * HOUR, 90 * HOUR, passed_s=20 * HOUR)
    even, heavy = Load(1, HOUR, HOUR), Load(1, HOUR, 5 * HOUR)
    assert (even.tail, HOURS.tail) == (1, pytest.approx(1))
    assert heavy.tail == pytest.approx(5 / math.sqrt(2))
    assert bank(account, 10, even) == pytest.approx(bank(account, 10, HOURS))
    assert bank(account, 10, HOURS) > 2 * bank(account, 10, heavy) > 0
    assert left(account, 10, HOURS).trend > left(account, 10, heavy).trend > 0


def test_nothing_depends_on_the_unit_of_time() -> None:
    in_seconds = in_hours = Account()
    a_unit = Load(1, 1, math.sqrt(2))
    for late in (0.0, 0.2, 3.0, 0.0) * 50:
        in_seconds = left(spend(in_seconds, HOUR, late * HOUR, 10, HOURS, passed_s=HOUR / 40), 10, HOURS)
        in_hours = left(spend(in_hours, 1, late, 10, a_unit, passed_s=1 / 40), 10, a_unit)
    assert math.isclose(multiplier(in_seconds, 10, HOURS), multiplier(in_hours, 10, a_unit))
