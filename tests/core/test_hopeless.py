"""No hopeless waits: who cannot start before its deadline, by estimates, leaves at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.engines.core_engine import simulate
from sim.outcomes import Outcomes
from sim.spec import Spec
from sim.trace import Trace
from starburst.core.model.events import NodesChanged
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from tests.builders import HOUR, Desk, job, nodes, snapshot


def busy(*hours: float | None, **settings: Any) -> Desk:
    """A node of 4 GPUs for each of these estimates, taken whole by a run that began now."""
    desk = Desk(*(4 for _ in hours), **{"hopeless": "leave", **settings})
    names = [f"busy{rank}" for rank in range(len(hours))]
    desk.submit(*(job(name, 4, hours=h, cloud="never") for name, h in zip(names, hours, strict=True)))
    desk.started(*names)
    return desk


def test_a_job_that_cannot_start_in_time_leaves_at_once_and_says_why() -> None:
    desk = busy(2, 3)
    desk.submit(job("a", 2))
    assert desk.phase("a") == "offloading"
    assert desk.why("a", "offloaded") == (
        "leaves for the cloud: by the estimates of what runs on the cluster, it will not have 2 GPUs free "
        "before the wait is over; rents small at $1.00/h"
    )


@pytest.mark.parametrize("hours", [(2, 0.9), (0.9, 2), (2, None)], ids=["later", "first", "no estimate"])
def test_a_job_that_may_start_in_time_waits(hours: tuple[float | None, ...]) -> None:
    desk = busy(*hours)
    desk.submit(job("a", 2))
    assert desk.phase("a") == "queued"


def test_an_end_exactly_at_the_deadline_is_too_late() -> None:
    """At one instant expired waits leave before anything is placed."""
    desk = busy(1)
    desk.submit(job("a"))
    assert desk.phase("a") == "offloading"


def test_a_gang_needs_all_its_nodes_in_time() -> None:
    desk = busy(0.5, 2)
    desk.submit(job("both", gang=(4, 4)), job("half", gang=(2, 2)))
    assert (desk.phase("both"), desk.phase("half")) == ("offloading", "queued")


def test_a_run_past_its_estimate_may_end_at_any_time() -> None:
    desk = busy(2)
    desk.now = 2.5 * HOUR
    desk.submit(job("a"))
    assert desk.phase("a") == "queued"


def test_hope_can_be_lost_while_waiting() -> None:
    """`next` takes the room that `a` hoped for, and keeps it for long."""
    desk = busy(0.5)
    desk.submit(job("next", 4, hours=9, cloud="never"), job("a"))
    assert desk.phase("a") == "queued"
    desk.now = HOUR / 2
    desk.ended("busy0")
    assert desk.phase("a") == "queued"
    desk.started("next")
    assert desk.phase("a") == "offloading"


def test_hope_can_be_lost_with_a_node() -> None:
    desk = busy(0.5, 9)
    desk.submit(job("a"))
    up, down = nodes(4, 4)[1], replace(nodes(4)[0], schedulable=False)
    desk.tell(NodesChanged((down, up)))
    assert desk.phase("a") == "offloading"


def test_who_may_not_or_cannot_leave_waits_on() -> None:
    desk = busy(9, offers=())
    desk.submit(job("stays", cloud="never"), job("a"))
    assert desk["a"].deadline == HOUR
    assert (desk.phase("stays"), desk.phase("a")) == ("queued", "queued")


def test_unless_told_so_a_wait_is_sat_out() -> None:
    desk = busy(9, hopeless="wait")
    desk.submit(job("a"))
    assert desk.phase("a") == "queued"


def test_a_restart_changes_nobodys_prospects() -> None:
    desk = busy(0.5, 9)
    desk.submit(job("a"), job("next", 4, hours=9, cloud="never"))
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert not again.handle((), 60)
    validate(again.state)


def rush(seed: int) -> Trace:
    """200 jobs on eight GPUs that hold two thirds of them."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 6], 200)
    hours = rng.exponential(1, 200)
    none = np.zeros(200)
    ids = [str(number) for number in range(200)]
    arrival_h = np.cumsum(rng.exponential(0.25, 200))
    return Trace(ids, arrival_h, hours, gpus, none, none, np.ones(200, int), gpus * hours)


@pytest.mark.parametrize("seed", range(10))
def test_with_right_estimates_the_same_jobs_leave_and_each_of_them_no_later(seed: int) -> None:
    trace = rush(seed)

    def run(hopeless: str) -> Outcomes:
        spec = Spec(nodes=2, gpus_per_node=4, factor=0.3, out_of_order=True, hopeless=hopeless)
        return simulate(trace, trace.duration_h, spec)

    sat_out, left = run("wait"), run("leave")
    assert np.array_equal(left.in_cloud, sat_out.in_cloud)
    home = ~left.in_cloud
    assert np.array_equal(left.start_h[home], sat_out.start_h[home])
    assert np.all(left.wait_h <= sat_out.wait_h + 1e-9)
    assert left.wait_h.sum() < 0.9 * sat_out.wait_h.sum()
