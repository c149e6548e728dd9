"""A budget that means what it says: online control of the waiting factor.

The factors of `waiting.py` are open-loop: they spend the budget only if every job waits to its end, and most
start earlier, so a fraction of P is used. Here a multiplier on the factor follows what is really spent. Under
No-Wait a job starts when it arrives, so all delay of our making is an increase over it, and the increase of
mean JCT is Σ delay / Σ run time. Both sums grow at every instant by (jobs waiting now)·dt and (jobs running
now)·dt, as in Little's law: nothing need be known in advance, and jobs that still wait count for what they
have waited so far.

The bank is what was earned and not spent, P/100·Σ run time − Σ delay, and the multiplier is e^(gain·bank +
trend): the bank pulls the whole past to P, the trend (its integral) learns the multiplier that the workload
needs. Time is counted in run time of jobs, and the bank fades over a long window: a surplus of long ago is
not spent. A cluster that runs many jobs at a time decides on many before it sees what longer waits did, and
where few long jobs are most of the work both sums hang on those, so the control is slower there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log

from starburst.policy.waiting import Load

#: The multiplier's bounds.
LEAST, MOST = 1 / 8, 64.0
#: The bank is 1 when the budget of this many jobs of mean run time, or of so many for every job that runs at
#: a time (more if the tail of run times is heavy), and of this share of all, is unspent.
FIRST_JOBS = 25.0
AT_A_TIME = 2.0
SHARE = 0.05
#: Jobs after which the past counts e times less.
WINDOW_JOBS = 3000.0
#: Log of the multiplier per bank.
GAIN = 0.5
#: What the trend learns per bank: over as many jobs as the bank is of, and from each job that leaves.
LOWER = 0.07
RAISE = 0.75
#: A bank beyond ± this changes nothing more: one burst or one lull must not turn everything over.
BANK_LIMIT = 1.0


@dataclass(frozen=True, slots=True)
class Account:
    """The state of the control. Seconds of run time and of delay, summed over jobs, older ones faded."""

    run_s: float = 0.0
    delay_s: float = 0.0
    #: Learnt logarithm of the multiplier.
    trend: float = 0.0
    #: Seconds that passed meanwhile.
    passed_s: float = 0.0

    @property
    def running(self) -> float:
        """How many jobs run at a time, on average."""
        return self.run_s / self.passed_s if self.passed_s > 0 else 0.0

    @property
    def spent_percent(self) -> float:
        """Realised increase of mean JCT over No-Wait."""
        return 100 * self.delay_s / self.run_s if self.run_s > 0 else 0.0


def horizon_jobs(account: Account, load: Load) -> float:
    """How many jobs' budget makes the bank 1: few at first, to learn fast, more as more was seen."""
    at_a_time = AT_A_TIME * load.tail * account.running
    return max(FIRST_JOBS, at_a_time) + SHARE * account.run_s / load.mean_runtime_s


def bank(account: Account, budget_percent: float, load: Load) -> float:
    """Budget earned and not spent, in budgets of the horizon, within ± BANK_LIMIT."""
    unspent_s = account.run_s - account.delay_s * 100 / budget_percent
    share = unspent_s / (horizon_jobs(account, load) * load.mean_runtime_s)
    return min(max(share, -BANK_LIMIT), BANK_LIMIT)


def multiplier(account: Account, budget_percent: float, load: Load) -> float:
    """What the open-loop factor is to be multiplied by now."""
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
    """The account after `passed_s` seconds in which jobs ran and were delayed (seconds, summed over jobs).

    A run that turns out to have been for nothing is taken back by a negative `run_s`.
    """
    jobs = max(run_s, 0.0) / load.mean_runtime_s
    keep = exp(-jobs / WINDOW_JOBS)
    total_s, late_s = account.run_s * keep + run_s, account.delay_s * keep + delay_s
    after = Account(max(total_s, 0.0), max(late_s, 0.0), account.trend, account.passed_s * keep + passed_s)
    overdrawn = min(bank(after, budget_percent, load), 0.0)
    share = jobs / horizon_jobs(after, load)
    return replace(after, trend=_within(after.trend + LOWER * overdrawn * share))


def left(account: Account, budget_percent: float, load: Load) -> Account:
    """The account after a job left, its wait too short: while there is budget, others may wait longer.

    Only then: if nobody leaves, longer waits would spend nothing now, and too much when the load grows.
    """
    unspent = max(bank(account, budget_percent, load), 0.0)
    share = RAISE * unspent / horizon_jobs(account, load)
    return replace(account, trend=_within(account.trend + share))


def _within(exponent: float) -> float:
    return min(max(exponent, log(LEAST)), log(MOST))
