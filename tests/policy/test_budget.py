"""The control of the wait budget: a price that falls while P is unspent, and a bound on the delay."""

from __future__ import annotations

import math
import random

import pytest

from starburst.policy.budget import (
    CREDIT_PERCENT,
    GAIN,
    LEAST,
    MOST,
    SLACK_JOBS,
    TREND,
    Account,
    Budget,
    credit_s,
    exhausted_in_s,
    multiplier,
    patience,
    position,
    room,
    slack_s,
    spend,
)

HOUR = 3600.0


def account(run_h: float, delay_h: float, trend: float = 0.0) -> Account:
    return Account(run_h * HOUR, delay_h * HOUR, trend)


def test_at_first_the_factor_is_the_open_loop_one() -> None:
    assert multiplier(Account(), Budget(25, HOUR)) == 1
    assert room(Account(), Budget(25, HOUR), running=0) == math.inf


def test_the_position_is_zero_where_p_is_realised_and_least_where_the_slack_is_spent() -> None:
    exact = account(1000, 250)
    assert (position(exact, Budget(25, HOUR)), exact.spent_percent) == (0, 25)
    slack_h = slack_s(exact, Budget(25, HOUR)) / HOUR
    assert slack_h == 10 + SLACK_JOBS / 4
    assert position(account(1000, 250 + slack_h), Budget(25, HOUR)) == pytest.approx(LEAST)


def test_more_delay_never_makes_waits_longer_nor_more_jobs_wait() -> None:
    accounts = [account(1000, delay_h, 0.3) for delay_h in range(0, 500, 10)]
    waits = [multiplier(one, Budget(25, HOUR)) for one in accounts]
    assert waits == sorted(waits, reverse=True)
    rooms = [room(one, Budget(25, HOUR), running=100) for one in accounts]
    assert rooms == sorted(rooms, reverse=True)
    assert (rooms[0], rooms[-1]) == (math.inf, 0)
    trends = [
        spend(account(1000, 250), HOUR, late_h * HOUR, Budget(25, HOUR)).trend for late_h in (1, 10, 99)
    ]
    assert trends == sorted(trends, reverse=True)


@pytest.mark.parametrize("percent", [5, 25, 50])
@pytest.mark.parametrize("mean_h", [0.1, 1, 40])
@pytest.mark.parametrize("rest_h", [0, 50, 1e9])
def test_p_is_exceeded_by_slack_and_credit_at_most_however_many_would_wait(
    percent: float, mean_h: float, rest_h: float
) -> None:
    """Demand for waiting is unbounded, and the mean and rest of run times that are believed in are wrong."""
    draw, one, mean_s = random.Random(1), Account(), mean_h * HOUR
    budget = Budget(percent, mean_s, rest_h * HOUR)
    for _ in range(3000):
        running, wanting = draw.randint(0, 40), draw.randint(0, 200)
        waiting = int(min(wanting, room(one, budget, running)))
        left_s = exhausted_in_s(one, budget, running=running, waiting=waiting)
        step_s = min(draw.expovariate(1 / HOUR), left_s)
        one = spend(one, running * step_s, waiting * step_s, budget)
        over_s = one.delay_s - percent / 100 * one.run_s
        assert (
            over_s <= (slack_s(one, budget) + credit_s(one, budget)) * 1.01
        )  # sums fade within a step as well


def test_what_is_under_way_will_run_so_that_its_budget_may_be_spent_before() -> None:
    """A tenth of the run time is still to come; at P = 10 % its budget is one percent of what has run."""
    one, under_way = account(1000, 100), Budget(10, HOUR, 100 * HOUR)
    assert credit_s(one, under_way) == 10 * HOUR
    assert position(one, Budget(10, HOUR)) == 0 < position(one, under_way)
    assert position(account(1000, 110), under_way) == 0


def test_the_credit_is_bounded_as_runs_may_end_before_their_estimates() -> None:
    one = account(1000, 100)
    assert credit_s(one, Budget(10, HOUR, 1e9 * HOUR)) == CREDIT_PERCENT / 100 * 1000 * HOUR
    assert credit_s(Account(), Budget(10, HOUR, 1e9 * HOUR)) == 0


def season(*, estimates: bool) -> float:
    """300 jobs of 100 h start one an hour, then no more come; delays in percent of all run time."""
    one, mean_s = Account(), 100 * HOUR
    for hour in range(400):
        running = min(hour, 100, 400 - hour)
        rest_s = sum(range(100 - min(hour, 100), 100)) * HOUR if estimates and hour < 300 else 0.0
        budget = Budget(10, mean_s, rest_s)
        waiting = min(room(one, budget, running), 40) if hour < 300 else 0
        one = spend(one, running * HOUR, waiting * HOUR, budget)
    return one.spent_percent


def test_if_no_more_jobs_come_a_part_of_the_budget_of_the_last_was_spent() -> None:
    """A sixth of all run time is still to come when the last job starts; the credit is 1 % of the others."""
    spent = season(estimates=True) - season(estimates=False)
    assert spent == pytest.approx(5 / 6 * CREDIT_PERCENT, abs=0.1)


@pytest.mark.parametrize("need", [0.5, 4, 40])
def test_it_converges_to_the_budget_whatever_the_workload_needs(need: float) -> None:
    """Jobs of an hour, of which each is late by P · multiplier / need percent."""
    one = Account()
    for _ in range(20_000):
        late_h = 0.25 * multiplier(one, Budget(25, HOUR)) / need
        one = spend(one, HOUR, late_h * HOUR, Budget(25, HOUR))
    assert one.spent_percent == pytest.approx(25, abs=1.1)


def test_an_hour_of_delay_is_dearer_for_a_short_job() -> None:
    """A job of the mean run time has 1 / 1.3 of a very long one's factor; one of no run time has none."""
    found = [patience(hours * HOUR, HOUR) for hours in (0, 0.01, 1, 1000)]
    assert found == pytest.approx([0, 0.0323, 1 / 1.3, 1], abs=1e-3)
    assert patience(HOUR, HOUR) == pytest.approx(patience(1, 1)), "nothing depends on the unit of time"


def test_what_is_unspent_while_no_job_waits_is_not_learnt() -> None:
    """Else a quiet year would make the waits of the next rush endless."""
    one = Account()
    for _ in range(5000):
        one = spend(one, HOUR, 0, Budget(10, HOUR))
    assert one.trend == 0
    assert multiplier(one, Budget(10, HOUR)) == pytest.approx(math.exp(GAIN * MOST))


def test_the_trend_is_bounded() -> None:
    rich, poor = Account(), Account()
    for _ in range(20_000):
        rich, poor = spend(rich, HOUR, 1, Budget(10, HOUR)), spend(poor, HOUR, 9 * HOUR, Budget(10, HOUR))
    assert (rich.trend, poor.trend) == (TREND, -TREND)


def test_an_exhausted_account_lets_fewer_wait_the_more_it_is_overdrawn() -> None:
    slack_h = slack_s(account(1000, 0), Budget(10, HOUR)) / HOUR
    overdrawn = [account(1000, 100 + by * slack_h) for by in (0.9, 1.001, 1.5, 2, 3)]
    found = [room(one, Budget(10, HOUR), running=100) for one in overdrawn]
    assert found == [math.inf, 9, 5, 0, 0]


def test_the_end_of_the_account_is_foreseen() -> None:
    one = account(100, 20)
    left_s = exhausted_in_s(one, Budget(25, HOUR), running=4, waiting=10)
    after = spend(one, 4 * left_s, 10 * left_s, Budget(25, HOUR))
    assert position(after, Budget(25, HOUR)) == pytest.approx(LEAST, abs=1e-3)
    assert exhausted_in_s(one, Budget(25, HOUR), running=40, waiting=10) == math.inf
    assert exhausted_in_s(account(100, 99), Budget(25, HOUR), running=0, waiting=1) == math.inf


def test_the_past_fades() -> None:
    one = account(0, 1000)
    for _ in range(300):
        one = spend(one, 10_000 * HOUR, 0, Budget(10, HOUR))
    assert one.delay_s < HOUR


def test_work_that_is_thrown_away_is_moved_to_the_delays() -> None:
    after = spend(account(10, 0), -HOUR, HOUR, Budget(10, HOUR))
    assert (after.run_s, after.delay_s) == (9 * HOUR, HOUR)


def test_nothing_depends_on_the_unit_of_time() -> None:
    in_seconds = in_hours = Account()
    for late_h in (0.0, 0.2, 3.0, 0.0) * 50:
        in_seconds = spend(in_seconds, HOUR, late_h * HOUR, Budget(10, HOUR))
        in_hours = spend(in_hours, 1, late_h, Budget(10, 1))
    assert math.isclose(multiplier(in_seconds, Budget(10, HOUR)), multiplier(in_hours, Budget(10, 1)))
    assert in_hours.trend != 0
