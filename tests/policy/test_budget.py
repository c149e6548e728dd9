"""The control of the wait budget: a price that falls while P is unspent, and a bound on the delay."""

from __future__ import annotations

import math
import random

import pytest

from starburst.policy.budget import (
    BRIEF,
    GAIN,
    GUESS,
    LEAST,
    LOW,
    MOST,
    SLACK_JOBS,
    TREND,
    Account,
    Budget,
    exhausted_in_s,
    guess,
    learn,
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
    trends = [learn(one, HOUR, HOUR, Budget(25, HOUR)).trend for one in accounts]
    assert trends == sorted(trends, reverse=True)


@pytest.mark.parametrize("percent", [5, 25, 50])
@pytest.mark.parametrize("mean_h", [0.1, 1, 40])
@pytest.mark.parametrize("rest_h", [0, 50, 1e4])
def test_p_is_exceeded_by_the_slack_and_p_percent_of_what_is_believed(
    percent: float, mean_h: float, rest_h: float
) -> None:
    """Demand for waiting is unbounded; the mean run time is wrong, and what is still to run never runs."""
    draw, one, budget = random.Random(1), Account(), Budget(percent, mean_h * HOUR, rest_h * HOUR)
    for _ in range(3000):
        running, wanting = draw.randint(0, 40), draw.randint(0, 200)
        waiting = int(min(wanting, room(one, budget, running)))
        left_s = exhausted_in_s(one, budget, outlasting=running, waiting=waiting)
        step_s = min(draw.expovariate(1 / HOUR), left_s)
        one = spend(one, running * step_s, waiting * step_s, budget)
        over_s = one.delay_s - percent / 100 * one.run_s
        believed_s = percent / 100 * budget.rest_s
        assert over_s <= slack_s(one, budget) * 1.01 + believed_s  # sums fade within a step as well


def test_the_budget_of_a_job_counts_from_its_arrival() -> None:
    one, arrived = account(1000, 110), Budget(10, HOUR, 100 * HOUR)
    assert position(one, arrived) == 0 > position(one, Budget(10, HOUR))
    spent = spend(one, HOUR, 0, arrived)
    assert spent.spent_percent == pytest.approx(100 * 110 / 1101, rel=1e-3)


def test_what_a_job_is_predicted_to_wait_is_charged_before_it_has_waited() -> None:
    """But it sends no job away: the prediction may be wrong."""
    one, promised = account(1000, 100), Budget(10, HOUR, 0, 900 * HOUR)
    assert multiplier(one, promised) == pytest.approx(guess(one, promised) * math.exp(GAIN * LOW))
    assert room(one, promised, running=10) == math.inf


def test_a_late_job_is_taken_to_wait_as_long_again() -> None:
    known = account(1000, 200)
    assert position(known, Budget(25, HOUR, 0, 40 * HOUR, 7 * HOUR)) == position(
        known, Budget(25, HOUR, 0, 47 * HOUR)
    )


@pytest.mark.parametrize("need", [0.5, 4, 40])
def test_it_converges_to_the_budget_whatever_the_workload_needs(need: float) -> None:
    """Jobs of an hour, of which each is late by P · multiplier / need percent."""
    one = Account()
    for _ in range(20_000):
        late_h = 0.25 * multiplier(one, Budget(25, HOUR)) / need
        one = learn(one, HOUR, late_h * HOUR, Budget(25, HOUR))
        one = spend(one, HOUR, late_h * HOUR, Budget(25, HOUR))
    assert one.spent_percent == pytest.approx(25, abs=1.1)


def test_an_hour_of_delay_is_dearer_for_a_short_job() -> None:
    """A job of the mean run time has 1 / 1.1 of a very long one's factor; one of no run time has none."""
    found = [patience(hours * HOUR, HOUR) for hours in (0, 0.01, 1, 1000)]
    assert found == pytest.approx([0, 1 / 11, 1 / (1 + BRIEF), 1], abs=1e-3)
    assert patience(HOUR, HOUR) == pytest.approx(patience(1, 1)), "nothing depends on the unit of time"


def test_what_is_unspent_while_no_job_waits_is_not_learnt() -> None:
    """Else a quiet year would make the waits of the next rush endless."""
    one = Account()
    for _ in range(5000):
        one = learn(spend(one, HOUR, 0, Budget(10, HOUR)), HOUR, 0, Budget(10, HOUR))
    assert one.trend == 0
    assert multiplier(one, Budget(10, HOUR)) == pytest.approx(GUESS * math.exp(GAIN * MOST))


def test_the_first_guess_is_the_reciprocal_of_the_share_that_finds_no_room() -> None:
    """At the beginning, and if all have to wait, it is 1; jobs of other lengths count by their run time."""
    assert guess(Account(), Budget(10, HOUR)) == 1
    for share, found in ((1, 1), (0.5, 2), (0.1, 10), (0.001, GUESS)):
        one, draw = Account(), random.Random(2)
        for _ in range(20_000):
            hours = draw.choice((0.5, 1.5))
            one = spend(one, hours * HOUR, 0, Budget(10, HOUR))
            if draw.random() < share:
                one = learn(one, hours * HOUR, 1, Budget(10, HOUR))
        assert guess(one, Budget(10, HOUR)) == pytest.approx(found, rel=0.05)


def test_an_account_of_an_older_version_goes_on_with_its_trend() -> None:
    """It has no share that found no room: a guess of 30 would make all waits thirty times as long at once."""
    old, budget = Account(1000 * HOUR, 100 * HOUR, trend=0.5), Budget(10, HOUR)
    assert guess(old, budget) == 1
    assert guess(spend(old, HOUR, 0, budget), budget) == pytest.approx(1, abs=0.01)
    assert guess(spend(Account(), 1000 * HOUR, 0, budget), budget) > 10


def test_the_trend_is_bounded() -> None:
    rich, poor = Account(), Account()
    for _ in range(20_000):
        rich, poor = (
            spend(rich, HOUR, 1, Budget(10, HOUR)),
            spend(poor, HOUR, 9 * HOUR, Budget(10, HOUR)),
        )
        rich, poor = (learn(one, HOUR, 1, Budget(10, HOUR)) for one in (rich, poor))
    assert (rich.trend, poor.trend) == (TREND, -TREND)


def test_an_exhausted_account_lets_fewer_wait_the_more_it_is_overdrawn() -> None:
    slack_h = slack_s(account(1000, 0), Budget(10, HOUR)) / HOUR
    overdrawn = [account(1000, 100 + by * slack_h) for by in (0.9, 1.001, 1.5, 2, 3)]
    found = [room(one, Budget(10, HOUR), running=100) for one in overdrawn]
    assert found == [math.inf, 9, 5, 0, 0]


def test_the_end_of_the_account_is_foreseen() -> None:
    one = account(100, 20)
    left_s = exhausted_in_s(one, Budget(25, HOUR), outlasting=4, waiting=10)
    after = spend(one, 4 * left_s, 10 * left_s, Budget(25, HOUR))
    assert position(after, Budget(25, HOUR)) == pytest.approx(LEAST, abs=1e-3)
    assert exhausted_in_s(one, Budget(25, HOUR), outlasting=40, waiting=10) == math.inf
    assert exhausted_in_s(account(100, 99), Budget(25, HOUR), outlasting=0, waiting=1) == math.inf


def test_the_past_fades() -> None:
    one = account(0, 1000)
    for _ in range(300):
        one = spend(one, 100_000 * HOUR, 0, Budget(10, HOUR))
    assert one.delay_s < HOUR


def test_work_that_is_thrown_away_is_moved_to_the_delays() -> None:
    after = spend(account(10, 0), -HOUR, HOUR, Budget(10, HOUR))
    assert (after.run_s, after.delay_s) == (9 * HOUR, HOUR)


def test_nothing_depends_on_the_unit_of_time() -> None:
    in_seconds = in_hours = Account()
    for late_h in (0.0, 0.2, 3.0, 0.0) * 50:
        in_seconds = spend(in_seconds, HOUR, late_h * HOUR, Budget(10, HOUR))
        in_seconds = learn(in_seconds, HOUR, late_h * HOUR, Budget(10, HOUR))
        in_hours = learn(spend(in_hours, 1, late_h, Budget(10, 1)), 1, late_h, Budget(10, 1))
    assert math.isclose(multiplier(in_seconds, Budget(10, HOUR)), multiplier(in_hours, Budget(10, 1)))
    assert in_hours.trend != 0
