"""Online control of the waiting factor, so that the realised delay is the wait budget P and never much more.

The factors of `waiting.py` are open-loop: they spend the budget only if every job waits until its deadline.
Most jobs start earlier, so only a fraction of P is used. The control multiplies the factor. The reciprocal of
the factor is a price: under Compute-Wait a job may wait until its delay, at the price of an hour of delay, is
worth as much as its cloud run, so that one price holds for all jobs.

Under No-Wait a job starts on arrival. Every second of waiting is therefore an increase over No-Wait, and the
increase of mean JCT is Σ delay / Σ run time. At every instant the sums grow by (waiting jobs)·dt and (running
jobs)·dt, as in Little's law: they need no estimates.

Unspent is P/100·Σ run time − Σ delay. Run time is counted as it passes; the rest of the runs under way counts
in advance, by estimates, as far as it adds at most CREDIT_PERCENT to the increase: what has begun will run,
and once no more jobs come, none is left to spend its budget.

The slack is SLACK_PERCENT of Σ run time plus the budget of SLACK_JOBS jobs, without which a handful of jobs
would exhaust it. The position is unspent / slack: 0 is P exactly.

The multiplier is e^(GAIN·position + trend), a mirror descent on the price: the trend sums positions, each
weighted by its share of the run time so far (a step of 1/t, whose regret is logarithmic in t).

An hour of delay is dearer for a short job: its factor is that of others times t / (t + BRIEF·T), with its own
and the mean run time t and T. Short jobs are most of the jobs and little of the work, so that it costs little
to send them away, and most of the large slowdowns are theirs.

At position −1 the account is exhausted. The scheduler then sends away the waiting jobs that are cheapest in
the cloud until at most P per hundred running jobs wait, fewer at a lower position. So P is exceeded by the
slack at most, and by the credit if the runs under way end long before their estimates.
"""

from __future__ import annotations

from math import exp, inf

from starburst.domain.value import value

#: Slack: percent of the run time so far, and number of jobs of mean run time whose budget is added.
SLACK_PERCENT = 1.0
SLACK_JOBS = 25.0
#: Percent of the run time so far by which the rest of the runs under way may raise the budget in advance.
CREDIT_PERCENT = 1.0
#: Logarithm of the multiplier per unit of the position, and the bounds of the position therein.
GAIN = 2.0
LEAST, MOST = -1.0, 1.5
#: Change of the trend per unit of the position while the run time so far grows by a factor of e.
LEARNING = 1.5
#: Mean run times that are added to a job's own where the patience of short jobs is computed.
BRIEF = 0.3
#: Bound of the position in one step of the trend, and of the trend.
STEP, TREND = 3.0, 6.0
#: Jobs of mean run time after which older sums have faded by a factor of e.
WINDOW_JOBS = 100_000.0


@value
class Account:
    """State of the control: run time and delay in seconds, summed over jobs, with older amounts faded."""

    run_s: float = 0.0
    delay_s: float = 0.0
    #: Learnt logarithm of the multiplier.
    trend: float = 0.0

    @property
    def spent_percent(self) -> float:
        """Realised increase of mean JCT over No-Wait, percent."""
        return 100 * self.delay_s / self.run_s if self.run_s > 0 else 0.0


@value
class Budget:
    """What the account is measured by."""

    #: P.
    percent: float
    #: Mean run time of past jobs.
    mean_run_s: float
    #: What the present runs still take, by estimates, summed.
    rest_s: float = 0.0


def slack_s(account: Account, budget: Budget) -> float:
    """Seconds of delay by which P may be exceeded."""
    return (SLACK_PERCENT * account.run_s + budget.percent * SLACK_JOBS * budget.mean_run_s) / 100


def credit_s(account: Account, budget: Budget) -> float:
    """Seconds of delay that the rest of the runs under way adds to the budget in advance."""
    return min(budget.percent * budget.rest_s, CREDIT_PERCENT * account.run_s) / 100


def position(account: Account, budget: Budget) -> float:
    """Unspent delay in units of the slack: 0 where P is realised, −1 where the account is exhausted."""
    unspent_s = budget.percent / 100 * account.run_s + credit_s(account, budget) - account.delay_s
    return unspent_s / slack_s(account, budget)


def multiplier(account: Account, budget: Budget) -> float:
    """Current multiplier of the open-loop factor."""
    return exp(GAIN * _within(position(account, budget), LEAST, MOST) + account.trend)


def patience(runtime_s: float, mean_run_s: float) -> float:
    """What a factor is multiplied by for the job's own run time: near 1 for a long job, 0 for a short one."""
    return runtime_s / (runtime_s + BRIEF * mean_run_s)


def spend(account: Account, run_s: float, delay_s: float, budget: Budget) -> Account:
    """The account after so many seconds of running and of waiting, each summed over jobs.

    A negative `run_s` takes back a run whose work turned out to be lost. Unspent budget teaches nothing while
    no job waits: longer waits would not be used then, and would be too long in the next rush.
    """
    keep = exp(-max(run_s, 0.0) / (budget.mean_run_s * WINDOW_JOBS))
    total_s, late_s = max(account.run_s * keep + run_s, 0.0), max(account.delay_s * keep + delay_s, 0.0)
    after = Account(total_s, late_s, account.trend)
    where = _within(position(after, budget), -STEP, STEP)
    if run_s <= 0 or (delay_s <= 0 and where > 0):
        return after
    share = run_s / (total_s + 2 * SLACK_JOBS * budget.mean_run_s)
    return Account(total_s, late_s, _within(account.trend + LEARNING * where * share, -TREND, TREND))


def room(account: Account, budget: Budget, running: int) -> float:
    """Number of jobs that may wait now; infinity until the account is exhausted."""
    where = position(account, budget)
    return inf if where > LEAST else int(budget.percent / 100 * running * max(0.0, 1 + where - LEAST))


def exhausted_in_s(account: Account, budget: Budget, *, running: int, waiting: int) -> float:
    """Seconds until the account is exhausted if nothing changes; infinity if it never is, or is already.

    While the rest of the runs adds more than its bound, the credit grows with the run time, and no answer is
    beyond the time at which that ends; from then on the runs earn what was credited for them.
    """
    where = position(account, budget)
    if where <= LEAST:
        return inf
    left_s = (where - LEAST) * slack_s(account, budget)
    surplus_s = (budget.percent * budget.rest_s - CREDIT_PERCENT * account.run_s) / 100
    if surplus_s > 0:
        earned = (budget.percent + CREDIT_PERCENT) / 100 * running
    else:
        earned = 0.0 if budget.rest_s > 0 else budget.percent / 100 * running
    growth = waiting - earned - SLACK_PERCENT / 100 * running
    in_s = left_s / growth if growth > 0 else inf
    return min(in_s, surplus_s / earned) if surplus_s > 0 and running else in_s


def _within(number: float, least: float, most: float) -> float:
    return min(max(number, least), most)
