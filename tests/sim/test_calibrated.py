"""A calibrated budget is what is realised, and a restart in the middle of it changes no decision."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from sim.experiments.points import Curve, cost_at, falling, point
from sim.experiments.shared import SMALL, doubling
from sim.readers.columns import chosen
from sim.spec import Spec
from sim.trace import Trace
from sim.world import SimJob
from starburst.core.state import Changes
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Facts
from starburst.store import codec
from tests.builders import HOUR, arrival, job, snapshot, world
from tests.references import needs_references
from tests.sim.cases import trace

#: Traces, with the number of their jobs that are run, all of which count.
JOBS = {"phillylike_r24": 2000, "tab4_s1.0": 500, "doubled load": 3000}
#: Number of open-loop budgets, 0.5 to 300 percent: enough to know what each realised increase costs there.
#: The costs of few jobs jump from one budget to the next.
OPEN = {"phillylike_r24": 14, "tab4_s1.0": 40, "doubled load": 14}
#: Points by which less than P may be realised; of 500 jobs the last ones bring a budget that nobody needs.
BELOW = {"phillylike_r24": 2, "tab4_s1.0": 4, "doubled load": 2}
#: Budgets, percent. The bill of so few jobs is chaotic: neighbouring budgets differ by a tenth of No-Wait's.
BUDGETS = {"phillylike_r24": (5, 25), "tab4_s1.0": (5, 7, 10, 14, 18, 21, 25, 30), "doubled load": (5, 25)}


@cache
def case(name: str) -> tuple[Trace, Spec]:
    """Its jobs, and a calibrated budget on its cluster."""
    spec = replace(SMALL, budget_mode="calibrated")
    jobs = doubling(1, JOBS[name]) if name == "doubled load" else chosen(trace(name), np.arange(JOBS[name]))
    return jobs, spec


def open_loop(name: str) -> tuple[float, Curve]:
    """What No-Wait costs, and what open loop costs at which increase of mean JCT, GPU-hours."""
    jobs, spec = case(name)
    loose = replace(spec, budget_mode="open")
    budgets = np.geomspace(0.5, 300, OPEN[name]).tolist()
    points = [point(jobs, replace(loose, budget_percent=percent)) for percent in budgets]
    return point(jobs, replace(loose, waiting="no-wait")).cost, falling(points)


@needs_references
@pytest.mark.parametrize("name", JOBS)
def test_p_percent_are_p_percent_and_save_no_less_than_open_loop_does_there(name: str) -> None:
    """Each budget holds; over the budgets, the bill is that of a factor tuned in hindsight, or less."""
    jobs, spec = case(name)
    free, curve = open_loop(name)
    dearer = []
    for percent in BUDGETS[name]:
        held = point(jobs, replace(spec, budget_percent=percent))
        assert percent - BELOW[name] < held.increase < percent + 2
        dearer.append((held.cost - cost_at(curve, held.increase)) / free)
    assert sum(dearer) <= 0, dearer


@needs_references
def test_open_loop_realises_a_fraction_of_p() -> None:
    jobs, spec = case("phillylike_r24")
    assert point(jobs, replace(spec, budget_mode="open", budget_percent=10)).increase < 4


def rush() -> list[SimJob]:
    """300 jobs, more than eight GPUs can hold; every third comes without an estimate, every fifth saves."""
    rng = np.random.default_rng(5)
    at, jobs = 0.0, []
    for n in range(300):
        at += float(rng.exponential(0.2 * HOUR))
        hours = float(rng.exponential())
        item = job(
            f"j{n}",
            int(rng.choice([1, 2, 4])),
            hours=hours if n % 3 else None,
            checkpoint=n % 5 == 0,
            grace_s=0,
        )
        jobs.append(arrival(item, at=at, takes=hours * HOUR))
    return jobs


@cache
def decisions(dies_after: int, returns: str, hopeless: str) -> list[str]:
    """The log; after so many steps the scheduler is rebuilt from what a store would have of it."""
    lines: list[str] = []
    steps = 0

    def on_step(now: float, changes: Changes) -> None:
        nonlocal steps
        steps += 1
        lines.extend(codec.encode([*row, row.reason]) for row in changes.decisions)
        if steps == dies_after:
            left = snapshot(virtual.scheduler)
            stored = replace(left, facts=codec.decode(Facts, codec.encode(left.facts)))
            virtual.scheduler = restore(virtual.scheduler.state.settings, stored)

    virtual = world(
        4,
        4,
        on_step=on_step,
        budget_mode="calibrated",
        budget_percent=20,
        returns=returns,
        hopeless=hopeless,
        t_max_s=HOUR / 2,
    )
    virtual.submit(rush())
    virtual.run()
    assert steps > dies_after
    return lines


@pytest.mark.parametrize("dies_after", [1, 100, 333, 500])
@pytest.mark.parametrize(
    ("returns", "hopeless"), [("never", "wait"), ("t-max", "wait"), ("if-it-pays", "leave")]
)
def test_a_restart_midway_changes_no_decision(dies_after: int, returns: str, hopeless: str) -> None:
    assert decisions(dies_after, returns, hopeless) == decisions(0, returns, hopeless)


def test_the_reason_says_what_calibration_did() -> None:
    waits = [line for line in decisions(0, "never", "wait") if '"waits"' in line]
    assert ", calibrated ×1: 0 % of the 20 % spent so far)" in waits[0]
    assert ", calibrated ×1: 0 %" not in waits[-1]
