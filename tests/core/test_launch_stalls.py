"""A launch that is held up: those that wait for its machine say why, until it goes on."""

from __future__ import annotations

import pytest

from starburst.core.model.events import Event, InstanceFailed, InstanceReady, InstanceStalled
from starburst.core.views.explain import explain
from starburst.store.rows import job_progress
from tests.builders import Desk, job, offer

WHY = "SkyPilot's API server does not answer"


def leaving() -> Desk:
    """A desk with a job that waits for the launch of i-000001."""
    desk = Desk(offers=[offer("big", 4, 1)])
    desk.submit(job("a", cloud="only"))
    assert desk.phase("a") == "offloading"
    return desk


def said(desk: Desk) -> str:
    return explain(desk.scheduler.state, desk["a"], str).sentence


def test_the_job_says_what_holds_it_up_in_lists_and_in_its_explanation() -> None:
    desk = leaving()
    desk.tell(InstanceStalled("i-000001", f"{WHY}\n"))
    assert job_progress(desk["a"])["message"] == WHY
    assert said(desk).endswith(f"is coming up; held up: {WHY}")


@pytest.mark.parametrize("event", [InstanceStalled("i-000001", ""), InstanceReady("i-000001", 0.0)])
def test_that_is_over_when_the_launch_goes_on_and_when_its_machine_is_up(event: Event) -> None:
    desk = leaving()
    desk.tell(InstanceStalled("i-000001", WHY))
    desk.tell(event)
    assert WHY not in said(desk)
    assert job_progress(desk["a"])["message"] == ""


def test_what_waits_for_another_machine_hears_nothing_of_it() -> None:
    desk = leaving()
    desk.tell(InstanceFailed("i-000001", "sold out"))
    desk.tell(InstanceStalled("i-000001", WHY))
    desk.tell(InstanceStalled("i-000009", WHY))
    assert WHY not in said(desk)
