"""A calibrated budget as a price: who waits, who leaves at once, and who leaves when the budget is spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.engines.core_engine import simulate
from sim.experiments.shared import gpu_jobs
from sim.spec import Spec
from starburst.core.model.events import InstanceFailed, NodesChanged, Progress, RunEnd, RunEnded
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.policy.budget import SLACK_JOBS, SLACK_PERCENT, Account
from starburst.policy.forecast_bias import PRIOR_JOBS, Lateness, size_class
from tests.builders import HOUR, Desk, job, node, snapshot


def priced(*gpus: int, **settings: Any) -> Desk:
    """Jobs of 0.1 h may wait an hour at first, jobs of an hour 18; no job comes home."""
    return Desk(*gpus, **{"waiting": "compute", "factor": 20, "budget_mode": "calibrated", **settings})


def busy(hours: float, **settings: Any) -> Desk:
    """Four GPUs, taken by a run of so many hours that began now."""
    desk = priced(4, **settings)
    desk.submit(job("busy", 4, hours=hours))
    desk.started("busy")
    return desk


def test_a_job_waits_if_its_predicted_delay_is_worth_less_than_its_cloud_run() -> None:
    desk = busy(2)
    desk.submit(job("long", hours=1), job("short", hours=0.1))
    assert (desk.phase("long"), desk.phase("short")) == ("queued", "offloading")
    assert desk.why("short", "offloaded").startswith(
        "leaves for the cloud: it is predicted to wait 2 h, and so much delay is worth more today than "
        "what its cloud run costs; rents small"
    )


def test_the_jobs_ahead_are_part_of_the_prediction() -> None:
    desk = busy(0.5)
    desk.submit(*(job(f"ahead{n}", 4, hours=1) for n in range(2)))
    desk.submit(job("a", hours=0.1))
    assert [desk.phase(name) for name in ("ahead0", "ahead1", "a")] == ["queued", "queued", "offloading"]


def test_a_small_job_that_passes_the_others_is_predicted_to_start_in_its_hole() -> None:
    """Of four GPUs one is free in .05 h; the job of four ahead starts after two hours."""
    desk = priced(4)
    desk.submit(job("long", 3, hours=2), job("brief", hours=0.05))
    desk.started("long", "brief")
    desk.submit(job("large", 4, hours=1))
    desk.submit(job("small", hours=0.1))
    assert (desk.phase("large"), desk.phase("small")) == ("queued", "queued")
    large, small = desk["large"].wait, desk["small"].wait
    assert large is not None
    assert small is not None
    assert (large.predicted_s, small.predicted_s) == (2 * HOUR, 0.05 * HOUR)


def test_where_no_job_passes_another_it_waits_for_those_ahead() -> None:
    desk = priced(4, out_of_order=False)
    desk.submit(job("long", 3, hours=2), job("brief", hours=0.05))
    desk.started("long", "brief")
    desk.submit(job("large", 4, hours=1))
    desk.submit(job("small", hours=0.1))
    assert (desk.phase("large"), desk.phase("small")) == ("queued", "offloading")


def test_a_job_that_waits_leaves_once_others_have_made_its_delay_dearer_than_its_cloud_run() -> None:
    """It may wait for an hour at first; those that come after it are to wait for most of the budget."""
    desk = busy(0.6, budget_percent=1)
    desk.submit(job("a", hours=0.1))
    desk.wait(0.1 * HOUR)
    assert desk.phase("a") == "queued"
    for n in range(9):
        desk.submit(job(f"b{n}", 4, hours=1))
    assert desk.phase("a") == "offloading"
    assert desk.why("a", "offloaded").startswith(
        "leaves for the cloud: it is predicted to wait 36 min, of which 6 min have passed, and so much delay "
        "is worth more today than what its cloud run costs; "
    )


def test_only_nodes_that_admit_the_job_count() -> None:
    old, new = node("old", 4, labels=(("kind", "old"),)), node("new", 4, labels=(("kind", "new"),))
    desk = priced()
    desk.tell(NodesChanged((old, new)))
    desk.submit(job("on-old", 4, hours=9, node_selector=(("kind", "old"),)), job("on-new", 4, hours=0.5))
    desk.started("on-old", "on-new")
    desk.submit(
        job("new", hours=0.1, node_selector=(("kind", "new"),)),
        job("old", hours=0.1, node_selector=(("kind", "old"),)),
    )
    assert (desk.phase("new"), desk.phase("old")) == ("queued", "offloading")


def test_who_may_not_leave_waits_on() -> None:
    desk = busy(9)
    desk.submit(job("stays", hours=0.1, cloud="never"))
    assert desk.phase("stays") == "queued"


def test_if_no_offer_holds_it_a_dear_job_waits_on() -> None:
    desk = busy(9, offers=())
    desk.submit(job("a", hours=0.1))
    assert desk.phase("a") == "queued"


def test_a_job_that_was_to_leave_at_once_and_cannot_is_in_nobodys_way() -> None:
    """It has no wait, so nobody knows for how long it would run."""
    desk = busy(0.5, offers=(), short_job_s=0.2 * HOUR)
    desk.submit(job("short", hours=0.1))
    desk.submit(job("a", 4, hours=1))
    state = desk.scheduler.state
    assert (desk["short"].wait, desk.phase("short"), desk.phase("a")) == (None, "queued", "queued")
    assert state.forecast.wait_s(desk["short"], desk.now) == 0.5 * HOUR
    wait = desk["a"].wait
    assert wait is not None
    assert wait.predicted_s == 0.5 * HOUR
    assert "predicted start" not in explain(state, desk["short"], str).sentence


def test_when_the_account_is_exhausted_the_cheapest_leave_until_it_recovers() -> None:
    """One per cent of an hour's mean run allows 15 minutes; at one running job nobody may wait after that."""
    desk = busy(2, budget_percent=1, factor=1000)
    desk.submit(job("dear", 2, hours=1), job("cheap", hours=1))
    desk.wait(HOUR / 4 * 0.4)
    assert (desk.phase("dear"), desk.phase("cheap")) == ("queued", "queued")
    desk.now = desk.scheduler.next_wakeup()
    desk.tell()
    assert desk.now < HOUR / 4
    assert desk.phase("cheap") == "offloading"
    assert "as the wait budget is spent" in desk.why("cheap", "offloaded")


def test_a_progress_report_moves_the_prediction() -> None:
    desk = busy(9)
    desk.tell(Progress("busy", 1, done=99, total=100, per_s=1 / 60))
    desk.submit(job("a", hours=0.1))
    assert desk.phase("a") == "queued"


def test_a_run_that_outlasts_its_estimate_is_expected_to_take_as_long_again() -> None:
    desk = busy(1)
    desk.wait(3 * HOUR)
    desk.submit(job("a", hours=0.5))
    assert desk.phase("a") == "queued"
    wait = desk["a"].wait
    assert wait is not None
    assert wait.predicted_s == 3 * HOUR


def test_jobs_that_wait_longer_than_predicted_stretch_the_predictions_of_their_size_only() -> None:
    """The run ahead takes three hours, not one: seen while they wait, after a restart, and afterwards."""
    desk = busy(1)
    desk.submit(job("large", 4, hours=1))
    desk.wait(3 * HOUR)
    desk.tell()
    state = desk.scheduler.state
    waiting = state.meter.biases(state.queue.jobs())
    mean_h = state.load.load.mean_runtime_s / HOUR
    assert waiting[size_class(4)] == pytest.approx(1 + 2 / (1 + PRIOR_JOBS * mean_h))
    assert waiting[size_class(1)] == 1
    again = restore(state.settings, snapshot(desk.scheduler)).state
    assert again.meter.biases(again.queue.jobs()) == waiting
    desk.ended("busy")
    desk.started("large")
    assert state.meter.account.lateness[size_class(4)] == Lateness(HOUR, 2 * HOUR)
    assert state.meter.account.lateness[size_class(1)] == Lateness()
    desk.submit(job("next", 4, hours=2), job("small", hours=2))
    foretold = [wait.predicted_s for name in ("next", "small") if (wait := desk[name].wait)]
    assert foretold == [HOUR * state.meter.biases(())[size_class(4)], 3 * HOUR], "the small one comes behind"


def test_the_time_that_a_lost_run_took_is_no_wait_beyond_its_prediction() -> None:
    desk = busy(1)
    desk.submit(job("a", hours=2))
    desk.wait(HOUR)
    desk.ended("busy")
    desk.started("a")
    desk.wait(HOUR)
    desk.tell(RunEnded("a", 1, RunEnd.LOST))
    desk.started("a")
    assert all(sums.late_s == 0 for sums in desk.scheduler.state.meter.account.lateness)


def test_jobs_of_one_instant_are_charged_one_after_another() -> None:
    """Each may wait for hours, but P of all run time is only enough for some of them."""
    desk = busy(2, budget_percent=10)
    desk.submit(*(job(f"a{n:02}", 4, hours=1) for n in range(30)))
    phases = [desk.phase(f"a{n:02}") for n in range(30)]
    assert phases == sorted(phases, reverse=True), "who comes first waits"
    waits = [desk[f"a{n:02}"].wait for n in range(30) if phases[n] == "queued"]
    foretold_h = sum(wait.predicted_s or 0 for wait in waits if wait) / HOUR
    assert 0.1 * 32 < foretold_h < 0.1 * (32 + SLACK_JOBS) + 32
    alone = busy(2, budget_percent=10)
    alone.submit(job("last", 4, hours=1))
    assert alone.phase("last") == "queued", "not by its own price"


def test_who_leaves_counts_until_it_runs_and_who_is_cancelled_no_more() -> None:
    """Else the boot of their machines would take the budget of a thousand jobs that leave."""
    desk = busy(9)
    known = desk.scheduler.state.meter
    desk.submit(job("a", hours=0.1), job("b", hours=0.1))
    assert (desk.phase("a"), set(known.to_run)) == ("offloading", {"a", "b"})
    desk.cancel("b")
    assert set(known.to_run) == {"a"}


def test_after_a_restart_what_was_foretold_is_charged_again() -> None:
    desk = busy(2, budget_percent=10)
    desk.submit(*(job(f"a{n:02}", 4, hours=1) for n in range(9)))
    desk.wait(HOUR / 4)
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler)).state
    assert again.meter.multiplier == desk.scheduler.state.meter.multiplier < 1
    assert again.meter.to_run == desk.scheduler.state.meter.to_run
    assert again.meter.exhausted_at(desk.now) == desk.scheduler.state.meter.exhausted_at(desk.now)


def test_a_dear_job_that_cannot_leave_is_charged_before_and_after_a_restart_alike() -> None:
    desk = busy(9, offers=())
    desk.submit(job("a", hours=0.1))
    desk.wait(HOUR / 4)
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler)).state
    assert desk.phase("a") == "queued"
    assert again.meter.multiplier == desk.scheduler.state.meter.multiplier < 1


def test_the_story_says_that_a_job_waits_on_as_the_launch_that_it_left_for_failed() -> None:
    """It left early, so that it has the rest of its wait, while its offer pauses."""
    desk = busy(2)
    desk.submit(job("a", hours=0.1))
    desk.tell(InstanceFailed("i-000001", "broken"))
    assert desk.why("a", "waits-on") == (
        "is in the queue again, as no machine came up for it: its wait has 73.2 min left"
    )


def test_explain_prices_the_delay_beside_the_cloud_run() -> None:
    """A run of three hours costs $3, and a wait of 30 h makes an hour of delay worth a dime."""
    desk = busy(2, factor=12)
    desk.submit(job("a", hours=3))
    desk.now = 0.5 * HOUR
    desk.tell()
    state = desk.scheduler.state
    state.meter.account = Account(no_room_s=4.5 * HOUR)  # as if nothing was spent, and all had to wait
    sentence = explain(state, desk["a"], str).sentence
    assert sentence.endswith(
        "; an hour of its delay is worth $0.10 here today; leaving now costs $3.00, predicted start in 1.5 h"
    )


@pytest.mark.parametrize("waiting", ["no-wait", "infinite"])
def test_a_policy_without_a_factor_has_nothing_to_calibrate(waiting: str) -> None:
    desk = busy(9, waiting=waiting)
    desk.submit(job("a", hours=1))
    desk.wait(99 * HOUR)
    assert desk.phase("a") == ("queued" if waiting == "infinite" else "offloading")
    assert not desk.scheduler.state.meter.calibrated


@pytest.mark.parametrize("error", [0, 100], ids=["right", "wrong"])
@pytest.mark.parametrize("seed", range(4))
def test_the_budget_is_never_overspent_by_more_than_its_slack(seed: int, error: float) -> None:
    """Twice what the cluster holds, heavy tails; estimates right, or off by a factor of up to two."""
    rng = np.random.default_rng(seed)
    gpus, hours = rng.choice([1, 2, 4], 300), rng.lognormal(-1, 1.8, 300)
    trace = gpu_jobs(np.cumsum(rng.exponential(float(np.mean(gpus * hours)) / 16, 300)), hours, gpus)
    spec = Spec(nodes=2, gpus_per_node=4, out_of_order=True, budget_percent=10, budget_mode="calibrated")
    guess = hours * rng.uniform(1 - error / 100, 1 + error / 100, 300)
    out = simulate(trace, guess, spec)
    delay_h = float(np.sum(out.start_h - trace.arrival_h))
    mean_h = max(1.0, float(hours.mean()))
    believed = error / 100 * 3  # percent of all run time for which wrong estimates stood at the end
    assert delay_h <= (10 + SLACK_PERCENT + believed) / 100 * hours.sum() + 0.1 * SLACK_JOBS * mean_h
    assert delay_h > 0.05 * hours.sum()
