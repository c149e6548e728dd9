"""What `starburst advise` tells: of one trace which budget and why, of several a line each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sim.reports.advice import Advice, about_estimates, advise
from sim.reports.amounts import dollars, percent
from sim.sweep import SweepPoint
from sim.trace import Trace
from starburst.cli.output import Column, Format, Listing, print_data
from starburst.cli.tools.simulate_report import points_listing, rows_of, who_pays


@dataclass(frozen=True, slots=True)
class AdvisedTrace:
    """A trace, its grid of budgets, and the advice."""

    #: As it was given on the command line.
    trace: str
    points: list[SweepPoint]
    advice: Advice
    #: The advised budget under other estimates; None if waiting saves nothing.
    otherwise: SweepPoint | None = None

    @classmethod
    def of(cls, trace: str, points: list[SweepPoint]) -> AdvisedTrace:
        """The advice that follows from a grid."""
        return cls(trace, points, advise(points))

    def beside(self, trace: Trace, otherwise: SweepPoint) -> AdvisedTrace:
        """With a sentence on what the advised budget would save under other estimates."""
        assert self.best is not None
        sentences = (*self.advice.sentences, about_estimates(trace, self.best, otherwise))
        return replace(self, advice=replace(self.advice, sentences=sentences), otherwise=otherwise)

    @property
    def best(self) -> SweepPoint | None:
        """The simulation of the advised budget; None if waiting saves nothing."""
        return next((p for p in self.points if p.spec.budget_percent == self.advice.budget_percent), None)

    def as_dict(self) -> dict[str, Any]:
        """Stable keys, as in `-o json`."""
        return {
            "advised_budget": self.advice.budget_percent,
            "sentences": list(self.advice.sentences),
            "budgets": [point.as_dict() for point in self.points],
            "other_estimates": None if self.otherwise is None else self.otherwise.as_dict(),
        }


def print_advice(found: AdvisedTrace, output: Format) -> None:
    """The advice for one trace, with its grounds."""
    if output.for_people:
        print("\n".join(found.advice.sentences), end="\n\n")
    if output.for_people or output is Format.NAME:
        points_listing(found.points).print(found.points, output)
        if output.for_people and found.best is not None:
            print(f"\nWho pays at P = {found.best.spec.budget_percent:g} %:")
            print("\n".join(rows_of(who_pays(found.best.slowdowns))))
        return
    print_data(found.as_dict(), output)


def _percent(best: SweepPoint | None, what: str) -> str:
    """A percentage of the advised point; without advice nothing is saved and nothing takes longer."""
    return percent(0.0 if best is None else getattr(best, what))


TRACES: Listing[AdvisedTrace] = Listing(
    kind="trace",
    name=lambda it: it.trace,
    keys=lambda it: {"trace": it.trace, **it.as_dict()},
    columns=(
        Column("TRACE", lambda it: it.trace),
        Column("JOBS", lambda it: f"{it.points[0].no_wait.jobs_counted:,}", right=True),
        Column("BUDGET", lambda it: "–" if it.best is None else f"{it.best.spec.budget_percent:g}"),
        Column("NO-WAIT COST", lambda it: dollars(it.points[0].no_wait.cloud_cost_usd), right=True),
        Column("SAVED", lambda it: _percent(it.best, "saved_percent"), right=True),
        Column("LONGER", lambda it: _percent(it.best, "jct_percent"), right=True),
    ),
    empty="",
)
