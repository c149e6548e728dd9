"""Recommendation of a wait budget from the simulated cost and delay of several budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.reports.amounts import dollars, percent, span
from sim.reports.figures import knee
from sim.run import estimates
from sim.spec import Spec
from sim.sweep import Axis, SweepPoint
from sim.trace import Trace

BUDGETS = Axis("budget_percent", (5.0, 10.0, 25.0, 50.0, 100.0))


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation and its reasons."""

    #: None: no budget would have lowered the cost.
    budget_percent: float | None
    sentences: tuple[str, ...]


def advise(points: Sequence[SweepPoint]) -> Advice:
    """Choose the budget at the knee of cost against mean completion time; No-Wait is one of the choices."""
    base, spec = points[0].no_wait, points[0].spec
    setting = (
        f"Without waiting, {base.jobs_counted:,} jobs on {spec.nodes} × {spec.gpus_per_node} GPUs "
        f"would have cost {dollars(base.cloud_cost_usd)} in the cloud and taken {span(base.mean_jct_h, 3)} "
        "each on average."
    )
    pairs = [(p.result.cloud_cost, p.result.mean_jct_h) for p in points]
    at = knee([(base.cloud_cost, base.mean_jct_h), *pairs]) - 1
    if at < 0:
        reason = (
            "No budget would have cost less." if base.cloud_cost else "Nothing would have left for the cloud."
        )
        return Advice(None, (setting, reason, "Keep No-Wait, or ask again when the load has grown."))
    best = points[at]
    calibrated = ", calibrated" if spec.budget_mode == "calibrated" else ""
    saved_usd = base.cloud_cost_usd - best.result.cloud_cost_usd
    choice = (
        f"Choose P = {best.spec.budget_percent:g} %{calibrated}: it would have saved "
        f"{percent(best.saved_percent)} of that ({dollars(saved_usd)}), and jobs would have taken "
        f"{percent(best.jct_percent)} longer."
    )
    return Advice(best.spec.budget_percent, (setting, choice, _neighbours(points, at)))


def _neighbours(points: Sequence[SweepPoint], at: int) -> str:
    """The savings and delays of the next smaller and the next larger budget."""
    beside = [points[i] for i in (at - 1, at + 1) if 0 <= i < len(points)]
    parts = [
        f"P = {p.spec.budget_percent:g} % would have saved {percent(p.saved_percent)} "
        f"at {percent(p.jct_percent, signed=True)}"
        for p in beside
    ]
    return "; ".join(parts) + "."


def other_estimates(spec: Spec) -> Axis:
    """What advice is compared with: no estimates if it takes them as right, else right ones."""
    return Axis("runtime_estimates", ("none" if spec.runtime_estimates == "right" else "right",))


def about_estimates(trace: Trace, best: SweepPoint, other: SweepPoint) -> str:
    """What the advised budget would save under other estimates of run times."""
    saves = (
        f"P = {best.spec.budget_percent:g} % would have saved {percent(other.saved_percent)} "
        f"at {percent(other.jct_percent, signed=True)}"
    )
    if best.spec.runtime_estimates == "right":
        return f"This takes every run time as known in advance; if no job had an estimate, {saves}."
    return f"{estimated_jobs(trace, best.spec)}; if each had a right one, {saves}."


def estimated_jobs(trace: Trace, spec: Spec) -> str:
    """How many jobs a simulation knows an estimate of: "3 of 40 jobs had an estimate of their run time"."""
    if spec.runtime_estimates == "limits" and trace.estimate_h is not None:
        known, what = np.isfinite(trace.estimate_h), "a time limit, and none an estimate of its run time"
    else:
        known, what = np.isfinite(estimates(trace, spec)), "an estimate of their run time"
    return f"{int(known.sum()):,} of {len(trace):,} jobs had {what}"
