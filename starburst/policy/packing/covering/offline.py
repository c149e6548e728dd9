"""Instances of least cost for tasks when nothing runs yet, and the lower bound for any packer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.policy.packing.classes import Classes, classes_of
from starburst.policy.packing.covering.cover import Cover, Limits, Pattern, cover
from starburst.policy.packing.packers.reconfigure import full
from starburst.policy.packing.plan import Plan, Situation, assemble


@dataclass(frozen=True, slots=True)
class OfflineOptimal:
    """Launches instances for all tasks, ignoring what runs."""

    limits: Limits = Limits()  # noqa: RUF009 - immutable

    def plan(self, situation: Situation) -> Plan:
        """The plan with the least rent plus lost throughput found, and a lower bound on the rent."""
        classes = classes_of(situation)
        found = planned(classes, situation, self.limits)
        interferes = found.loss_micro or bool(np.any(classes.pair != 1.0))
        least = least_rent(classes, self.limits) if interferes else found.bound_micro
        return assemble(
            situation,
            {},
            dealt(classes, found.patterns),
            unplaced=classes.unplaced,
            lower_bound=Money(least),
            reason=f"within {found.gap:.2%} of the optimum" if not found.optimal else "the optimum",
        )


def planned(classes: Classes, situation: Situation, limits: Limits) -> Cover:
    """The covering result, started from and never worse than Algorithm 1."""
    start = full(classes, classes.counts, situation.throughput)
    return cover(classes, classes.counts, throughput=situation.throughput, start=start, limits=limits)


def least_rent(classes: Classes, limits: Limits) -> int:
    """Lower bound on the rent of these tasks, micro-dollars per hour, with any loss of throughput allowed."""
    undisturbed = replace(classes, pair=np.ones_like(classes.pair))
    return cover(undisturbed, classes.counts, limits=limits).bound_micro


def dealt(classes: Classes, patterns: Sequence[Pattern]) -> list[tuple[Offer, tuple[Task, ...]]]:
    """Assign the tasks of each class in order, instance after instance."""
    given = [0] * len(classes)
    launches = []
    for k, load, times in patterns:
        for _ in range(times):
            tasks: list[Task] = []
            for c in np.flatnonzero(load):
                tasks += classes.members[c][given[c] : given[c] + int(load[c])]
                given[c] += int(load[c])
            launches.append((classes.market.offers[k], tuple(tasks)))
    return launches
