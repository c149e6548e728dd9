"""How long a job may wait for the cluster before it leaves for the cloud.

Source: Starburst (ATC'24), sections "Dynamic waiting" and "Wait budget". Notation: P the budget in percent,
T mean run time, r a job's size in GPU equivalents, t its run time, k a policy's factor. A budget of P percent
allows B = P·T·N/100 seconds of waiting over N jobs; each policy shares B out in its own way, and its factor
follows from that (`factor`). Factors are in SI: seconds, seconds per GPU, or a plain ratio.

`factor` and `wait_s` are plain arithmetic: given columns for numbers they work entry by entry, so that the
simulator can ask about a whole trace at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

HOUR_S = 3600.0
#: β ≈ X·β_r: only jobs that come home share the budget, so each gets X times as much (paper, X = 3).
STAR_X = 3.0


@dataclass(frozen=True, slots=True)
class Load:
    """What the factors need to know of the workload as a whole."""

    #: E[r], GPU equivalents.
    mean_size: float
    #: T, seconds.
    mean_runtime_s: float
    #: Root mean square of the run times, seconds; 0 if nobody knows.
    rms_runtime_s: float = 0.0

    @property
    def tail(self) -> float:
        """How heavy the tail of the run times is: 1 if they are exponential, or even."""
        return max(1.0, self.rms_runtime_s / (math.sqrt(2) * self.mean_runtime_s))


@dataclass(frozen=True, slots=True)
class Ask:
    """What a policy may know of one job."""

    #: r, GPU equivalents.
    size: float
    gpus: int
    #: t, seconds; the user's estimate or the workload's mean.
    runtime_s: float
    #: Home from the cloud: this is its second wait.
    returned: bool = False


class WaitingPolicy(Protocol):
    """One way of sharing out the budget."""

    #: As people write it in papers and see it in reasons.
    title: str
    #: Symbol and unit of the factor in reasons; "h" factors are given in hours by people.
    symbol: str
    factor_in_hours: bool

    def factor(self, budget_percent: float, load: Load) -> float:
        """The factor k that spends a budget of P percent on this workload."""

    def wait_s(self, factor: float, ask: Ask) -> float:
        """Seconds a job may wait; infinity means until there is room."""

    def formula(self, factor: float, ask: Ask) -> str:
        """The sum behind `wait_s` in people's units, e.g. "2 GPU × 1.5 h × α 0.08"."""


class NoWait:
    """w = 0: what does not fit at once leaves."""

    title = "No-Wait"
    symbol = ""
    factor_in_hours = False

    def factor(self, budget_percent: float, load: Load) -> float:
        """There is nothing to share out."""
        return 0.0

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = 0."""
        return 0.0

    def formula(self, factor: float, ask: Ask) -> str:
        """No formula, a rule."""
        return "nothing waits"


class ConstantWait:
    """w = C, the same for all; C = P·T/100."""

    title = "Constant-Wait"
    symbol = "C"
    factor_in_hours = True

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
    """w = α·r·t, in proportion to what the job costs; α = P/(100·E[r])."""

    title = "Compute-Wait"
    symbol = "α"
    factor_in_hours = False

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
    """First w = 0; a job that the cloud did not finish within T_max comes home and waits β·r.

    Needs no run-time estimates. Goes with the return policy "t-max".
    """

    title = "Star-Wait"
    symbol = "β"
    factor_in_hours = True

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
    """w = ∞: nothing leaves for lack of room."""

    title = "Infinite-Wait"
    symbol = ""
    factor_in_hours = False

    def factor(self, budget_percent: float, load: Load) -> float:
        """There is nothing to share out."""
        return 0.0

    def wait_s(self, factor: float, ask: Ask) -> float:
        """w = ∞."""
        return math.inf

    def formula(self, factor: float, ask: Ask) -> str:
        """No formula, a rule."""
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
    """A duration as people say it: "45 s", "14 min", "1.5 h"; under a millisecond it is none."""
    if abs(seconds) < 1e-3:
        return "0 s"
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 5400 and abs(seconds - HOUR_S) > 1:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / HOUR_S:.3g} h" if seconds < 1000 * HOUR_S else f"{seconds / HOUR_S:.0f} h"


def gpus(ask: Ask) -> str:
    """A job's size as people say it: GPUs, or GPU equivalents where CPUs weigh in."""
    return f"{ask.gpus} GPU" if ask.size == ask.gpus else f"{ask.size:.3g} GPU-equivalents"
