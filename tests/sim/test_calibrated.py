"""A calibrated budget is what is realised, and a restart in the middle of it changes no decision."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from sim.core_engine import simulate
from sim.spec import Spec
from sim.trace import Trace
from sim.world import SimJob
from starburst.core.snapshot import Facts, restore
from starburst.core.state import Changes
from starburst.store import codec
from tests.builders import HOUR, arrival, job, snapshot, world
from tests.references import needs_references
from tests.sim.cases import trace

SPEC = Spec(
    nodes=4,
    cpus_per_node=48,
    binpack="best-fit",
    out_of_order=True,
    budget_percent=10,
    budget_mode="calibrated",
    warmup=500,
)


def increase(jobs: Trace, spec: Spec) -> float:
    """Realised increase of mean JCT over No-Wait after warm-up, percent."""
    outcomes = simulate(jobs, jobs.duration_h, spec)
    counted = slice(spec.warmup, len(jobs) - spec.warmup + 1)
    delay_h = (outcomes.end_h - jobs.arrival_h - jobs.duration_h)[counted]
    return float(100 * delay_h.sum() / jobs.duration_h[counted].sum())


@needs_references
def test_ten_percent_are_ten_percent_give_or_take_two() -> None:
    jobs = trace("phillylike_r24")
    assert increase(jobs, SPEC) == pytest.approx(10, abs=2)
    assert increase(jobs, replace(SPEC, budget_mode="open")) < 4


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
            virtual.scheduler = restore(virtual.scheduler.settings, stored)

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
