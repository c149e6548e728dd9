"""Calibrated budgets against the stricter rival: open loop whose hopeless jobs leave as well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from sim.experiments.points import cost_at, falling, jagged, point
from sim.experiments.shared import table
from sim.experiments.waiting.siblings import PERCENTS
from sim.spec import Spec
from sim.trace import Trace

#: Budgets of the open-loop curve, percent, and of a trace that takes a minute for each.
BUDGETS, FEW = np.geomspace(5, 150, 24), np.geomspace(5, 150, 14)
LONG = 20_000
HEAD = ("trace", "P", "realises", "saves", "open loop there, fitted", "open loop there, read off")


def rows(title: str, trace: Trace, spec: Spec) -> Iterator[tuple[object, ...]]:
    """A row for every P."""
    leaves = replace(spec, hopeless="leave")
    free = point(trace, replace(spec, waiting="no-wait")).cost
    budgets = FEW if len(trace) > LONG else BUDGETS
    loop = [point(trace, replace(leaves, budget_percent=float(budget))) for budget in budgets]
    for percent in PERCENTS:
        held = point(trace, replace(leaves, budget_percent=percent, budget_mode="calibrated"))
        saved = 100 * (1 - held.cost / free)
        there = [100 * (1 - cost_at(curve, held.increase) / free) for curve in (falling(loop), jagged(loop))]
        against = (f"{other:.1f} % ({saved - other:+.1f})" for other in there)
        yield title, f"{percent} %", f"{held.increase:.2f} %", f"{saved:.1f} %", *against


def section(cases: Iterable[tuple[str, Trace, Spec]]) -> str:
    """This part of the page."""
    found = [row for title, trace, spec in cases for row in rows(title.split(":")[0], trace, spec)]
    return f"{INTRODUCTION}\n\n{table(HEAD, found)}"


INTRODUCTION = f"""## If open loop leaves as well

Jobs whose wait is hopeless leave under both. Curves of {len(BUDGETS)} budgets between 5 and 150 %,
{len(FEW)} for philly."""
