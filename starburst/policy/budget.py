"""Online control of the waiting factor, so that the realised delay is the wait budget P and never much more.

The factors of `waiting.py` are open-loop: they spend the budget only if every job waits until its deadline.
Most jobs start earlier, so only a fraction of P is used. The control multiplies the factor. The reciprocal of
the factor is a price: under Compute-Wait a job may wait until its delay, at the price of an hour of delay, is
worth as much as its cloud run, so that one price holds for all jobs.

Under No-Wait a job starts on arrival. Every second of waiting is therefore an increase over No-Wait, and the
increase of mean JCT is Σ delay / Σ run time over the jobs that have arrived. Run times are counted on
arrival, by estimates, and corrected by what passes: of a run that ends early the rest is taken back, one that
goes on for longer adds to the sum. Delays are counted in advance as well: a job that is left to wait is
charged what it is predicted to wait. Without that the price falls on until the first of a long queue have
waited, and by then far too much has been promised.

Unspent is P/100·Σ run time − Σ delay. The slack is SLACK_PERCENT of Σ run time plus the budget of SLACK_JOBS
jobs, without which a handful of jobs would exhaust it. The position is unspent / slack: 0 is P exactly.

The multiplier is guess · e^(GAIN·position + trend), a mirror descent on the price: with every job that
arrives the trend moves by the position, weighted by the job's share of all run time so far (a step of 1/t,
whose regret is logarithmic in t). The guess is 1 / (share of run time that finds no room on arrival): only
those jobs can wait, for the budget of all. Constant multipliers that are chosen in hindsight are close to it.

An hour of delay is dearer for a short job: its factor is that of others times t / (t + BRIEF·T), with its own
and the mean run time t and T. Short jobs are most of the jobs and little of the work, so that it costs little
to send them away, and most of the large slowdowns are theirs.

Who is late by its prediction is taken to wait as long again as it has waited. By how much predictions are too
short in general is a matter of the forecast (`forecast_bias.py`).

Only what jobs have waited, not what is predicted, exhausts the account, at position −1:
the scheduler then sends away the waiting jobs that are cheapest in the cloud until at most P per hundred
running jobs wait, fewer at a lower position. So P is exceeded by the slack at most, and by P per hundred of
what the estimates of the jobs that run or wait are too long in sum.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf

from starburst.domain.value import value
from starburst.policy.forecast_bias import PUNCTUAL, Lateness

#: Slack: percent of the run time of all jobs, and number of jobs of mean run time whose budget is added.
SLACK_PERCENT = 1.0
SLACK_JOBS = 25.0
#: Logarithm of the multiplier per unit of the position, and the bounds of the position therein.
GAIN = 2.0
LOW, MOST = -3.0, 0.75
#: Largest first guess of the multiplier.
GUESS = 30.0
#: Position at which the account is exhausted.
LEAST = -1.0
#: Change of the trend per unit of the position while the run time of all jobs grows by a factor of e.
LEARNING = 0.75
#: Mean run times that are added to a job's own where the patience of short jobs is computed.
BRIEF = 0.1
#: Bound of the position in one step of the trend, and of the trend.
STEP, TREND = 3.0, 4.0
#: Jobs of mean run time after which older sums have faded by a factor of e.
WINDOW_JOBS = 1_000_000.0


@value
class Account:
    """State of the control: run time and delay in seconds, summed over jobs, with older amounts faded."""

    run_s: float = 0.0
    delay_s: float = 0.0
    #: Learnt logarithm of the multiplier.
    trend: float = 0.0
    #: What the jobs that have arrived will still run, by estimates, as of the last entry.
    rest_s: float = 0.0
    #: How late jobs were by what was first predicted, by size class.
    lateness: tuple[Lateness, ...] = PUNCTUAL
    #: Of the run time of the jobs that have arrived, that of jobs for which there was no room then. An
    #: account of an older version does not know it (None): all its run time is taken, and its trend goes on.
    no_room_s: float | None = None

    @property
    def spent_percent(self) -> float:
        """Realised increase of mean JCT over No-Wait, percent, of the jobs that have arrived."""
        total_s = self.run_s + self.rest_s
        return 100 * self.delay_s / total_s if total_s > 0 else 0.0


@value
class Budget:
    """What the account is measured by."""

    #: P.
    percent: float
    #: Mean run time of past jobs.
    mean_run_s: float
    #: What the jobs that run or wait will still run, by estimates, summed.
    rest_s: float = 0.0
    #: What the jobs that wait will still wait, as predicted, summed.
    to_wait_s: float = 0.0
    #: What the jobs have waited that should have started by now, as predicted, summed.
    late_s: float = 0.0


def total_s(account: Account, budget: Budget) -> float:
    """Run time of the jobs that have arrived."""
    return account.run_s + budget.rest_s


def slack_s(account: Account, budget: Budget) -> float:
    """Seconds of delay by which P may be exceeded."""
    return (SLACK_PERCENT * total_s(account, budget) + budget.percent * SLACK_JOBS * budget.mean_run_s) / 100


def position(account: Account, budget: Budget) -> float:
    """Unspent delay in units of the slack: 0 where P is realised, −1 where the account is exhausted."""
    spent_s = account.delay_s + budget.to_wait_s + budget.late_s
    return (budget.percent / 100 * total_s(account, budget) - spent_s) / slack_s(account, budget)


def multiplier(account: Account, budget: Budget) -> float:
    """Current multiplier of the open-loop factor."""
    swing = GAIN * _within(position(account, budget), LOW, MOST)
    return guess(account, budget) * exp(swing + account.trend)


def guess(account: Account, budget: Budget) -> float:
    """The multiplier before anything is learnt: all run time over that of the jobs that found no room."""
    prior_s = 2 * SLACK_JOBS * budget.mean_run_s
    return min((total_s(account, budget) + prior_s) / (_no_room_s(account) + prior_s), GUESS)


def _no_room_s(account: Account) -> float:
    return account.run_s if account.no_room_s is None else account.no_room_s


def patience(runtime_s: float, mean_run_s: float) -> float:
    """What a factor is multiplied by for the job's own run time: near 1 for a long job, 0 for a short one."""
    return runtime_s / (runtime_s + BRIEF * mean_run_s)


def spend(account: Account, run_s: float, delay_s: float, budget: Budget) -> Account:
    """The account after so many seconds of running and of waiting, summed over jobs.

    A negative `run_s` takes back a run whose work turned out to be lost.
    """
    keep = exp(-max(run_s, 0.0) / (budget.mean_run_s * WINDOW_JOBS))
    run_s, delay_s = account.run_s * keep + run_s, account.delay_s * keep + delay_s
    return replace(
        account,
        run_s=max(run_s, 0.0),
        delay_s=max(delay_s, 0.0),
        rest_s=budget.rest_s,
        no_room_s=_no_room_s(account) * keep,
    )


def learn(account: Account, runtime_s: float, predicted_s: float, budget: Budget) -> Account:
    """The account after the arrival of a job that runs and is predicted to wait for so many seconds.

    Unspent budget teaches nothing by a job that need not wait: longer waits would not be used, and would be
    too long in the next rush.
    """
    where = _within(position(account, budget), -STEP, STEP)
    if predicted_s > 0:
        account = replace(account, no_room_s=_no_room_s(account) + runtime_s)
    elif where > 0:
        return account
    share = runtime_s / (total_s(account, budget) + 2 * SLACK_JOBS * budget.mean_run_s)
    trend = _within(account.trend + LEARNING * where * share, -TREND, TREND)
    return replace(account, trend=trend, rest_s=budget.rest_s)


def room(account: Account, budget: Budget, running: int) -> float:
    """Number of jobs that may wait now; infinity until the account is exhausted by what they have waited."""
    where = position(account, _so_far(budget))
    return inf if where > LEAST else int(budget.percent / 100 * running * max(0.0, 1 + where - LEAST))


def exhausted_in_s(account: Account, budget: Budget, *, outlasting: int, waiting: int) -> float:
    """Seconds until the account is exhausted if nothing changes; infinity if it never is, or is already.

    `outlasting`: runs that have outlasted their estimates, the only ones that add to the run time.
    """
    where = position(account, _so_far(budget))
    if where <= LEAST:
        return inf
    growth = waiting - (budget.percent + SLACK_PERCENT) / 100 * outlasting
    return (where - LEAST) * slack_s(account, budget) / growth if growth > 0 else inf


def _so_far(budget: Budget) -> Budget:
    return Budget(budget.percent, budget.mean_run_s, budget.rest_s)


def _within(number: float, least: float, most: float) -> float:
    return min(max(number, least), most)
