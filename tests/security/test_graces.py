"""Who may spend: neither a grace of years nor an estimate of seconds takes more than a cap allows."""

from __future__ import annotations

import pytest

from starburst.core.model.actions import Action, StopRun
from starburst.core.model.events import CancelRequested, Progress
from starburst.core.views.explain import explain
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, returns
from tests.core.capped import MACHINE, cap, capped, cloud, stands

#: What translator/manifests/pod.py lets through, and what the trial used: some 63 years.
YEARS_S = 2_000_000_000.0


def graces(actions: list[Action]) -> list[float]:
    return [action.grace_s for action in actions if isinstance(action, StopRun)]


def test_a_cap_ends_a_run_within_the_longest_grace_whatever_its_job_asks_for() -> None:
    desk = capped(cap(10))
    desk.submit(cloud("a", hours=0.001, grace_s=YEARS_S))
    desk.offload("a")
    assert graces(desk.wait(HOUR + 1)) == [600.0]
    assert "has 10 min to save its work" in desk.why("a", "stopping")


def test_a_cancel_ends_it_within_the_longest_grace_and_an_admin_has_it_end_now() -> None:
    desk = Desk(1, max_grace_s=MINUTE)
    desk.submit(job("a", grace_s=YEARS_S))
    desk.started("a")
    assert graces(desk.cancel("a")) == [MINUTE]
    assert not desk.cancel("a"), "the same word again changes nothing"
    assert graces(desk.tell(CancelRequested("a", now=True))) == [0.0]
    said = explain(desk.scheduler.state, desk["a"], str).sentence
    assert said == "is being stopped on n0: its user cancelled it, at once"
    desk.stopped("a")
    assert desk.phase("a") == "cancelled"


@pytest.mark.parametrize("why", ["return", "cap"])
def test_what_is_stopped_for_other_reasons_can_be_cancelled_now(why: str) -> None:
    if why == "cap":
        desk = capped(cap(10))
        desk.submit(cloud("a", hours=0.5))
        desk.offload("a")
        desk.wait(HOUR + 1)
    else:
        desk = Desk(1, returns="t-max", t_max_s=MINUTE)
        desk.submit(job("busy"), job("a", max_wait_s=0.0))
        desk.offload("a")
        desk.ended("busy")
        desk.wait(MINUTE)
    assert (desk.phase("a"), desk["a"].stop_why) == ("stopping", why)
    assert graces(desk.tell(CancelRequested("a", now=True))) == [0.0]
    desk.stopped("a")
    assert desk.phase("a") == "cancelled"


def test_a_return_and_a_move_have_no_longer_grace_either() -> None:
    desk = Desk(1, returns="t-max", t_max_s=MINUTE, max_grace_s=20.0)
    desk.submit(job("busy"), job("a", max_wait_s=0.0, grace_s=YEARS_S))
    desk.offload("a")
    desk.ended("busy")
    assert graces(desk.wait(MINUTE)) == [20.0]


def attack(desk: Desk, lie: bool) -> int:
    """Jobs that say "five seconds" and run on, as they may all day: the most machines at a time."""
    desk.submit(*(cloud(f"j{n}", hours=5 / HOUR, grace_s=YEARS_S) for n in range(30)))
    most = 0
    for _ in range(60):
        for name in list(desk.instances):
            desk.ready(name)
        running = [f"j{n}" for n in range(30) if desk.phase(f"j{n}") in ("starting", "running")]
        desk.started(*running)
        if lie:
            desk.tell(*(Progress(name, desk[name].attempt, 999.0, 1000.0, 1000.0) for name in running))
        most = max(most, len(desk.instances))
        desk.wait(6)
    return most


@pytest.mark.parametrize("lie", [False, True], ids=["silent", "lying-about-progress"])
def test_short_estimates_rent_no_more_machines_than_the_cap_allows(lie: bool) -> None:
    """$5 a day, $10 an hour, 6 minutes to come up at $1: so four at once by their own word, and no more."""
    desk = capped(cap(5), offers=(MACHINE,))
    assert attack(desk, lie) <= 4


def test_short_runs_that_are_short_make_room_for_others() -> None:
    """Past jobs that were short count for those that run."""
    desk = capped(cap(50), offers=(offer("m", 4, 10, ready_s=0.0),), prior_jobs=1.0, prior_runtime_s=60.0)
    desk.submit(*(cloud(f"j{n}", hours=MINUTE / HOUR) for n in range(10)))
    assert len(desk.instances) == 10
    desk.offload("j0")
    assert stands(desk).reserved < 10 * 10e6 / 60 * 5
    desk.wait(MINUTE)
    assert returns(desk.ended("j0")) == ["i-000001"]
    assert launches(desk.submit(cloud("more", hours=MINUTE / HOUR))) == ["m"]
