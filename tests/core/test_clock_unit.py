"""The core's clock has one stated unit: a clock that runs 4,096 times as fast changes no decision."""

from dataclasses import fields, replace

import pytest

from starburst.core.model.decisions import Decision
from starburst.core.model.events import (
    Event,
    InstanceFailed,
    InstanceReady,
    InstanceUnreachable,
    JobSubmitted,
    NodesChanged,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
    Tick,
)
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Job
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from tests.builders import HOUR, job, nodes, offer

#: A power of two: binary fractions of it are exact, so that times can be compared bit for bit.
FAST = 4096.0


def story(unit_s: float) -> list[Decision]:
    """Everything that pauses or gives up after a constant time, on a clock of this unit."""
    settings = replace(Settings.on_clock(unit_s), waiting="constant", factor=HOUR / unit_s, returns="never")
    scheduler = Scheduler(settings)
    now = 0.0

    def tell(*events: Event) -> None:
        scheduler.handle(events or (Tick(),), now / unit_s)

    def wait(seconds: float) -> None:
        nonlocal now
        until = now + seconds
        while (at := scheduler.next_wakeup() * unit_s) <= until:
            now = max(now, at)
            tell()
        now = until

    def submit(each: Job) -> JobSubmitted:
        estimate_s = each.runtime_estimate_s
        assert estimate_s is not None
        return JobSubmitted(replace(each, runtime_estimate_s=estimate_s / unit_s))

    tell(NodesChanged(nodes(1)), OffersChanged((offer(),)))
    tell(submit(job("retried", 1, hours=1, retries=3)), submit(job("cloudy", 4, hours=2)))
    tell(RunStarted("retried", 1))
    wait(100)
    tell(RunEnded("retried", 1, RunEnd.EXITED, 1))
    wait(HOUR + 100)
    for machine in list(scheduler.state.fleet.instances):
        tell(InstanceFailed(machine, "no capacity"))
    wait(HOUR / 2)
    for machine in list(scheduler.state.fleet.instances):
        tell(InstanceReady(machine, now / unit_s))
        tell(RunStarted("cloudy", scheduler.state.jobs["cloudy"].attempt))
        tell(InstanceUnreachable(machine, "no answer"))
    wait(HOUR)
    for attempt in range(2, 8):
        tell(RunEnded("retried", attempt, RunEnd.NOT_STARTED, message="refused"))
        wait(700)
    return scheduler.take_changes().decisions


def test_a_faster_clock_gives_the_same_decisions_at_the_same_real_times() -> None:
    real, fast = story(1.0), story(FAST)
    assert {d.kind for d in real} >= {"retries", "offloaded", "unreachable", "not-started"}
    assert [(d.subject, d.kind, d.at) for d in real] == [(d.subject, d.kind, d.at * FAST) for d in fast]


def test_every_duration_among_the_defaults_is_converted() -> None:
    real, fast = Settings(), Settings.on_clock(FAST)
    durations = [f.name for f in fields(Settings) if f.name.endswith("_s") and f.name != "unit_s"]
    assert {"offer_pause_s", "unreachable_s", "prior_runtime_s", "max_grace_s"} <= {*durations}
    assert all(getattr(fast, name) * FAST == getattr(real, name) for name in durations)


@pytest.mark.parametrize(
    "feature",
    [
        {"packer": "eva"},
        {"max_rate": Money.of(1)},
        {"caps": (Cap(Money.of(10), "day"),)},
    ],
)
def test_what_counts_money_in_real_seconds_is_refused_on_another_clock(feature: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="real seconds"):
        replace(Settings.on_clock(FAST), **feature)
