"""Machines that are billed and come to nothing are not rented in a loop."""

from __future__ import annotations

from starburst.core.model.events import InstanceFailed, InstanceGone
from starburst.core.views.restoring import restore
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, snapshot

#: A launch takes half an hour of a machine that nobody can log in to, then it has failed.
LIMIT_S = 30 * MINUTE


def desk_with_a_job() -> Desk:
    desk = Desk(offers=[offer("big", 4, 12)], offer_pause_s=MINUTE)
    desk.submit(job("a", cloud="only"))
    return desk


def fail(desk: Desk, number: int, billed_s: float = LIMIT_S) -> None:
    desk.now += LIMIT_S
    desk.tell(InstanceFailed(f"i-{number:06d}", "nobody can log in", False, desk.now - billed_s, desk.now))


def pauses(desk: Desk, count: int, billed_s: float = LIMIT_S) -> list[float]:
    """Seconds between the end of a failed launch and the next one, so many times."""
    found = []
    for number in range(1, count + 1):
        fail(desk, number, billed_s)
        since = desk.now
        while not launches(desk.wait(MINUTE)):
            assert desk.now - since < 2 * HOUR
        found.append(desk.now - since)
    return found


def test_pauses_double_up_to_an_hour_while_launches_are_billed_and_fail() -> None:
    assert [seconds / MINUTE for seconds in pauses(desk_with_a_job(), 9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_spot_machine_that_is_taken_again_and_again_before_it_comes_up_is_not_rented_in_a_loop() -> None:
    desk = Desk(offers=[offer("spot", 4, 3, spot=True)], offer_pause_s=MINUTE)
    desk.submit(job("a", cloud="only"))
    found = []
    for number in range(1, 5):
        desk.now += 2 * MINUTE
        desk.tell(InstanceGone(f"i-{number:06d}", desk.now - MINUTE, desk.now, preempted=True))
        since = desk.now
        while not launches(desk.actions or desk.wait(MINUTE)):
            assert desk.now - since < HOUR
        found.append((desk.now - since) / MINUTE)
    assert found == [1, 2, 4, 8]
    assert "the cloud took it before it came up" in desk.why("i-000004", "launch-failed")
    assert desk.why("i-000004", "gone").startswith("preempted by the cloud after 60 s")


def test_what_fails_and_costs_nothing_is_asked_for_as_often_as_ever() -> None:
    assert pauses(desk_with_a_job(), 4, billed_s=0.0) == [MINUTE] * 4


def test_a_job_that_begins_on_such_a_machine_proves_it() -> None:
    desk = desk_with_a_job()
    pauses(desk, 4)
    desk.ready("i-000005")
    assert desk.scheduler.state.fleet.wasted == {"big": 4}
    desk.started("a")
    assert desk.scheduler.state.fleet.wasted == {}


def test_a_restart_forgets_none_of_it() -> None:
    desk = desk_with_a_job()
    pauses(desk, 4)
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert again.state.fleet.wasted == {"big": 4}
