"""Waiting policies: the time a job may wait for the cluster before it offloads.

Source: Starburst (ATC'24), sections "Dynamic waiting" and "Wait budget". Notation: P the budget in percent, T
mean run time, r a job's size in GPU equivalents, t its run time, k a policy's factor. A budget of P percent
allows B = P·T·N/100 seconds of waiting over N jobs. Each policy divides B among jobs by its own formula, from
which its factor follows (`factor`). Factors are in SI units: seconds, seconds per GPU, or a plain ratio.

`factor` and `wait_s` use plain arithmetic, so they also accept arrays entry by entry; the simulator evaluates
a whole trace in one call.
"""

from __future__ import annotations

import math
from typing import Protocol

from starburst.domain.value import value

HOUR_S = 3600.0
#: β ≈ X·β_r: only jobs that return share the budget, so each gets X times as much (paper, X = 3).
STAR_X = 3.0


@value
class Load:
    """Statistics of the whole workload that the factors depend on."""

    #: E[r], GPU equivalents.
    mean_size: float
    #: T, seconds.
    mean_runtime_s: float


@value
class Ask:
    """The attributes of a job that a waiting policy may use."""

    #: r, GPU equivalents.
    size: float
    gpus: int
    #: t, seconds; the user's estimate or the workload's mean.
    runtime_s: float
    #: The job returned from the cloud: this is its second wait.
    returned: bool = False


class WaitingPolicy(Protocol):
    """One way of dividing the wait budget among jobs."""

    #: Name in papers and in reasons.
    title: str
    #: Symbol of the factor in reasons; with `factor_in_hours` the factor is configured and shown in hours.
    symbol: str
    factor_in_hours: bool
    #: Whether the wait depends on the run time.
    takes_runtime: bool

    def factor(self, budget_percent: float, load: Load) -> float:
        """The factor k that spends a budget of P percent on this workload."""

    def wait_s(self, factor: float, ask: Ask) -> float:
        """Seconds a job may wait; infinity means until capacity is free."""

    def formula(self, factor: float, ask: Ask) -> str:
        """The product behind `wait_s` in display units, e.g. "2 GPU × 1.5 h × α 0.08"."""


class NoWait:
    """w = 0: a job that cannot start at once offloads."""

    title = "No-Wait"
    symbol = ""
    factor_in_hours = False
    takes_runtime = False

    def factor(self, budget_percent: float, load: Load) -> float:
        """Always 0: the policy has no factor."""
        return 0.0

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = 0."""
        return 0.0

    def formula(self, factor: float, ask: Ask) -> str:
        """A fixed phrase: the policy has no formula."""
        return "nothing waits"


class ConstantWait:
    """w = C, the same for all jobs; C = P·T/100."""

    title = "Constant-Wait"
    symbol = "C"
    factor_in_hours = True
    takes_runtime = False

    def factor(self, budget_percent: float, load: Load) -> float:
        """C = B/N = P·T/100."""
        return budget_percent / 100 * load.mean_runtime_s

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = C."""
        return factor

    def formula(self, factor: float, ask: Ask) -> str:
        """C."""
        return f"C {hours(factor)}"


class RuntimeWait:
    """w = k·t; k = P/100."""

    title = "Runtime-Wait"
    symbol = "k"
    factor_in_hours = False
    takes_runtime = True

    def factor(self, budget_percent: float, load: Load) -> float:
        """B/Σt = P/100."""
        return budget_percent / 100

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = k·t."""
        return factor * ask.runtime_s

    def formula(self, factor: float, ask: Ask) -> str:
        """t × k."""
        return f"{hours(ask.runtime_s)} × k {factor:.3g}"


class ResourceWait:
    """w = k·r; k = P·T/(100·E[r])."""

    title = "Resource-Wait"
    symbol = "k"
    factor_in_hours = True
    takes_runtime = False

    def factor(self, budget_percent: float, load: Load) -> float:
        """B/Σr = P·T/(100·E[r]), seconds per GPU equivalent."""
        return budget_percent / 100 * load.mean_runtime_s / load.mean_size

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = k·r."""
        return factor * ask.size

    def formula(self, factor: float, ask: Ask) -> str:
        """r × k."""
        return f"{gpus(ask)} × k {hours(factor)}"


class ComputeWait:
    """w = α·r·t, in proportion to the job's compute (and so its cost); α = P/(100·E[r])."""

    title = "Compute-Wait"
    symbol = "α"
    factor_in_hours = False
    takes_runtime = True

    def factor(self, budget_percent: float, load: Load) -> float:
        """α = B/Σ(r·t) = P/(100·E[r]), taking r and t as independent."""
        return budget_percent / 100 / load.mean_size

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = α·r·t."""
        return factor * ask.size * ask.runtime_s

    def formula(self, factor: float, ask: Ask) -> str:
        """r × t × α."""
        return f"{gpus(ask)} × {hours(ask.runtime_s)} × α {factor:.2g}"


class StarWait:
    """At first w = 0; a job that does not end within T_max in the cloud returns and waits β·r.

    Needs no run-time estimates. Intended for the return policy "t-max".
    """

    title = "Star-Wait"
    symbol = "β"
    factor_in_hours = True
    takes_runtime = False

    def factor(self, budget_percent: float, load: Load) -> float:
        """β ≈ X·β_r, β_r = P·T/(100·E[r]), seconds per GPU equivalent."""
        return STAR_X * budget_percent / 100 * load.mean_runtime_s / load.mean_size

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = 0 at first, β·r after the return."""
        return factor * ask.size if ask.returned else 0.0

    def formula(self, factor: float, ask: Ask) -> str:
        """r × β."""
        return f"{gpus(ask)} × β {hours(factor)}" if ask.returned else "no first wait"


class Infinite:
    """w = ∞: no job offloads for lack of capacity."""

    title = "Infinite-Wait"
    symbol = ""
    factor_in_hours = False
    takes_runtime = False

    def factor(self, budget_percent: float, load: Load) -> float:
        """Always 0: the policy has no factor."""
        return 0.0

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = ∞."""
        return math.inf

    def formula(self, factor: float, ask: Ask) -> str:
        """A fixed phrase: the policy has no formula."""
        return "waits until there is room"


WAITING: dict[str, WaitingPolicy] = {
    "no-wait": NoWait(),
    "constant": ConstantWait(),
    "runtime": RuntimeWait(),
    "resource": ResourceWait(),
    "compute": ComputeWait(),
    "star": StarWait(),
    "infinite": Infinite(),
}


def hours(seconds: float) -> str:
    """A duration with a suitable unit: "45 s", "14 min", "1.5 h"; below 5 ms "0 s"."""
    if seconds < 100:
        return f"{round(seconds, 2):.3g} s" if abs(seconds) >= 0.005 else "0 s"
    if seconds < 5400 and abs(seconds - HOUR_S) > 1:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / HOUR_S:.3g} h" if seconds < 1000 * HOUR_S else f"{seconds / HOUR_S:.0f} h"


def gpus(ask: Ask) -> str:
    """A job's size for display: GPUs, or GPU equivalents where CPUs raise the size."""
    return f"{ask.gpus} GPU" if ask.size == ask.gpus else f"{ask.size:.3g} GPU-equivalents"
