"""The reference cases as traces and specs in our words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Trace
from tests.references import expected, needs_references, rows

POLICIES = {
    "zero": "no-wait",
    "constant": "constant",
    "linear_runtime": "runtime",
    "linear_capacity": "resource",
    "linear_cost": "compute",
    "infinite": "infinite",
}
NO_LIMIT = (-1, 1_000_000)


@cache
def trace(case: str) -> Trace:
    """A case's jobs."""
    table = rows(f"{case}.csv")

    def column(name: str, kind: type) -> Any:
        return np.array([kind(row[name]) for row in table])

    return Trace(
        [row["job_id"] for row in table],
        column("arrival_h", float),
        column("duration_h", float),
        column("gpus", int),
        column("cpus", float),
        np.zeros(len(table)),
        column("nodes", int),
        column("cost", float),
    )


def spec(told: Mapping[str, Any]) -> Spec:
    """The reference's spec in our words; Star-Wait's β is its factor times its ratio ρ."""
    star = told["preempt_cloud_ratio"] > 0
    threshold = max(0.0, told["long_job_thres"])
    return Spec(
        nodes=told["cluster_size"],
        gpus_per_node=told["gpus_per_node"],
        cpus_per_node=told["cpus_per_node"],
        waiting="star" if star else POLICIES[told["waiting_policy"]],
        factor=told["waiting_factor"] * (told["preempt_cloud_ratio"] if star else 1),
        no_short_jobs_h=0.0 if star else threshold,
        t_max_h=threshold if star else None,
        max_wait_h=told["clip_time"],
        order=told["sched_alg"],
        out_of_order=bool(told["loop"]),
        backfill=told["backfill"],
        backfill_rule="artifact" if told["backfill"] else "easy",
        binpack=told["binpack_alg"],
        queue_cap=None if told["max_queue_length"] in NO_LIMIT else told["max_queue_length"],
        warmup=told["warmup_jobs"],
        oracle=bool(told["predict_wait"]),
        data_gravity_h=max(0.0, told["data_gravity"]),
    )


def assert_equal(ours: Outcomes, core: Outcomes) -> None:
    """The array engine's outcomes are the core's, bit for bit."""
    assert ours.stays == core.stays == {}, "neither lets jobs come home"
    for field in (f for f in fields(Outcomes) if f.name != "stays"):
        got, wanted = getattr(ours, field.name), getattr(core, field.name)
        assert got.dtype == wanted.dtype, field.name
        np.testing.assert_array_equal(got, wanted, field.name, strict=True)


def is_star(told: Mapping[str, Any]) -> bool:
    """Whether a run is one of Star-Wait, which the reference bills and times wrongly."""
    return bool(told["preempt_cloud_ratio"] > 0)


def exact_runs() -> list[tuple[str, str]]:
    """(case, run) of every run that is to be met to the last digit; none where the cases are not at hand."""
    if needs_references.args[0]:
        return []
    return [
        (case, name)
        for case in expected()
        for name, run in expected()[case]["runs"].items()
        if not is_star(run["spec"])
    ]


def star_runs() -> list[tuple[str, str]]:
    """(case, run) of every run of Star-Wait."""
    if needs_references.args[0]:
        return []
    runs = ((c, n, run) for c in expected() for n, run in expected()[c]["runs"].items())
    return [(case, name) for case, name, run in runs if is_star(run["spec"])]
