"""Online control of the waiting factor, so that the realised delay matches the wait budget P.

The factors of `waiting.py` are open-loop: they spend the budget only if every job waits until its deadline.
Most jobs start earlier, so only a fraction of P is used. The controller multiplies the factor according to
the delay measured so far. Under No-Wait a job starts on arrival, so every second of waiting is an increase
over No-Wait, and the increase of mean JCT is Σ delay / Σ run time. At every instant the sums grow by (waiting
jobs)·dt and (running jobs)·dt, as in Little's law. They therefore need no predictions, and a job that still
waits counts with its wait so far.

The bank is the unspent budget, P/100·Σ run time − Σ delay. The multiplier is e^(gain·bank + trend): the bank
corrects the deviation of the whole past from P, and the trend (its integral) learns the multiplier that the
workload needs. The time axis is the run time of jobs; the bank fades over WINDOW_JOBS jobs, so an old surplus
is not spent. Control is slower (a longer horizon) where many jobs run at a time, because many decisions
precede the first effect of a change, and where the run times have a heavy tail, because a few long jobs
dominate both sums.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

from starburst.domain.value import value
from starburst.policy.waiting import Load

#: Bounds of the multiplier.
LEAST, MOST = 1 / 8, 64.0
LOG_LEAST, LOG_MOST = log(LEAST), log(MOST)
#: The bank is 1 when the unspent budget is that of max(FIRST_JOBS, AT_A_TIME · tail · jobs running at a time)
#: jobs of mean run time, plus SHARE of all jobs counted so far (`horizon_jobs`).
FIRST_JOBS = 25.0
AT_A_TIME = 2.0
SHARE = 0.05
#: Jobs of mean run time after which older sums have faded by a factor of e.
WINDOW_JOBS = 3000.0
#: Gain: logarithm of the multiplier per unit of bank.
GAIN = 0.5
#: Learning rates of the trend, per unit of bank: LOWER over one horizon of jobs while the bank is negative;
#: RAISE, divided by the horizon, per offloaded job while the bank is positive.
LOWER = 0.07
RAISE = 0.75
#: The bank is clipped to ± this value, so that one burst or lull has a bounded effect.
BANK_LIMIT = 1.0


@value
class Account:
    """State of the controller: run time and delay in seconds, summed over jobs, with older amounts faded."""

    run_s: float = 0.0
    delay_s: float = 0.0
    #: Learnt logarithm of the multiplier.
    trend: float = 0.0
    #: Elapsed seconds over which the sums were collected, faded likewise.
    passed_s: float = 0.0

    @property
    def running(self) -> float:
        """Mean number of jobs running at a time."""
        return self.run_s / self.passed_s if self.passed_s > 0 else 0.0

    @property
    def spent_percent(self) -> float:
        """Realised increase of mean JCT over No-Wait, percent."""
        return 100 * self.delay_s / self.run_s if self.run_s > 0 else 0.0


def horizon_jobs(account: Account, load: Load) -> float:
    """Number of jobs with a budget that makes the bank 1; it grows with the jobs seen so far."""
    at_a_time = AT_A_TIME * load.tail * account.running
    return max(FIRST_JOBS, at_a_time) + SHARE * account.run_s / load.mean_runtime_s


def bank(account: Account, budget_percent: float, load: Load) -> float:
    """Unspent budget in units of the horizon's budget, clipped to ± BANK_LIMIT."""
    unspent_s = account.run_s - account.delay_s * 100 / budget_percent
    share = unspent_s / (horizon_jobs(account, load) * load.mean_runtime_s)
    return min(max(share, -BANK_LIMIT), BANK_LIMIT)


def multiplier(account: Account, budget_percent: float, load: Load) -> float:
    """Current multiplier of the open-loop factor."""
    return exp(_within(GAIN * bank(account, budget_percent, load) + account.trend))


def spend(
    account: Account,
    run_s: float,
    delay_s: float,
    budget_percent: float,
    load: Load,
    *,
    passed_s: float = 0.0,
) -> Account:
    """The account after `passed_s` seconds of running and waiting (both in seconds, summed over jobs).

    A negative `run_s` takes back a run whose work turned out to be lost.
    """
    jobs = max(run_s, 0.0) / load.mean_runtime_s
    keep = exp(-jobs / WINDOW_JOBS)
    total_s, late_s = account.run_s * keep + run_s, account.delay_s * keep + delay_s
    total_s, late_s = max(total_s, 0.0), max(late_s, 0.0)
    passed_s += account.passed_s * keep
    after = Account(total_s, late_s, account.trend, passed_s)
    overdrawn = min(bank(after, budget_percent, load), 0.0)
    if not overdrawn:
        return after
    share = jobs / horizon_jobs(after, load)
    return Account(total_s, late_s, _within(account.trend + LOWER * overdrawn * share), passed_s)


def left(account: Account, budget_percent: float, load: Load) -> Account:
    """The account after a job offloaded because its wait was too short; unspent budget then raises the trend.

    Without offloads longer waits would spend nothing now, and too much once the load grows.
    """
    unspent = max(bank(account, budget_percent, load), 0.0)
    share = RAISE * unspent / horizon_jobs(account, load)
    return replace(account, trend=_within(account.trend + share))


def _within(exponent: float) -> float:
    return min(max(exponent, LOG_LEAST), LOG_MOST)
