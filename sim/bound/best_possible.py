"""The best possible bill at a delay, and whether a budget can be spent."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from sim.bound.clairvoyant import Clairvoyant, delay_of
from sim.bound.lower import lower_bound
from sim.bound.problem import BurstProblem
from sim.outcomes import Outcomes, Result, measure
from sim.run import run
from sim.spec import Spec
from sim.sweep import no_wait
from sim.trace import Trace


@dataclass(frozen=True, slots=True)
class BestPossible:
    """Bills at one sum of delays; GPU-hours of the cloud."""

    #: Increase of the mean completion time over No-Wait that this is about, percent.
    increase_percent: float
    #: No schedule with that increase is charged less than `at_least`; one is charged `possible`.
    at_least: float
    possible: float
    no_wait: float
    #: Increase if every job waited for the cluster, percent: a budget above it cannot be spent.
    spendable_percent: float

    def above(self, result: Result) -> float | None:
        """How much dearer a simulation is than what is possible, percent; None if nothing need be paid."""
        return 100 * (result.cloud_cost / self.possible - 1) if self.possible else None

    def as_dict(self, result: Result, spec: Spec) -> dict[str, Any]:
        """Stable keys, as in `-o json`."""
        bills = {name: getattr(self, name) for name in ("at_least", "possible", "no_wait")}
        return {
            **asdict(self),
            **{f"{name}_usd": bill * spec.price_per_gpu_hour for name, bill in bills.items()},
            "above_possible_percent": self.above(result),
        }


class Yardstick:
    """Measures schedules of one trace on one cluster."""

    def __init__(self, trace: Trace, spec: Spec, engine: str = "auto") -> None:
        self._trace, self._spec = trace, spec
        base = run(trace, no_wait(spec), engine)
        self._no_wait = base.result
        self._base_delay_h = delay_of(trace, base.outcomes, spec)
        for_ever = replace(spec, waiting="infinite", factor=None, hopeless="wait", budget_mode="open")
        no_bounds: Any = {"max_wait_h": inf, "max_slowdown": None, "queue_cap": None, "no_short_jobs_h": 0.0}
        self._for_ever = run(trace, replace(for_ever, **no_bounds), engine).result
        self._problem = BurstProblem.of(trace, spec)
        self._clairvoyant = Clairvoyant(trace, spec, engine)

    def at_budget(self, percent: float) -> BestPossible:
        """The best possible if jobs take at most this many percent longer on average than under No-Wait."""
        total_h = self._no_wait.mean_jct_h * self._no_wait.jobs_counted
        return self._at(self._base_delay_h + percent / 100 * total_h, percent)

    def beside(self, outcomes: Outcomes) -> BestPossible:
        """The best possible at the increase that a simulation of the spec has realised."""
        result = measure(self._trace, outcomes, self._spec)
        delay_h = delay_of(self._trace, outcomes, self._spec)
        best = self._at(delay_h, self._increase(result.mean_jct_h))
        return replace(best, possible=min(best.possible, result.cloud_cost))

    def _at(self, delay_h: float, percent: float) -> BestPossible:
        bound = lower_bound(self._problem, delay_h)
        schedule = self._clairvoyant.best(self._problem, bound, delay_h)
        no_wait = self._no_wait.cloud_cost
        return BestPossible(
            increase_percent=percent,
            at_least=float(bound.at(delay_h)),
            possible=no_wait if schedule is None else min(schedule.cost, no_wait),
            no_wait=no_wait,
            spendable_percent=self._increase(self._for_ever.mean_jct_h),
        )

    def _increase(self, mean_jct_h: float) -> float:
        base = self._no_wait.mean_jct_h
        return 100 * (mean_jct_h / base - 1) if base else 0.0
