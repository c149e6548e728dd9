"""A start that a site refused is not a run that was lost: it is waited out, and everybody is told why."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.core.model.actions import Action
from starburst.core.model.events import InstanceGone, NodesChanged, RunEnd, RunEnded, RunStalled
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Facts
from starburst.domain.job import Member
from starburst.policy.backoff import pause_s
from starburst.policy.refusals import FORGET_S, IN_A_ROW, PROBE_S, Refusals
from starburst.store import codec
from tests.builders import HOUR, MINUTE, Desk, job, launches, node, returns, snapshot, starts, stops

QUOTA = "exceeded quota: few, requested: count/jobs.batch=1"
WEBHOOK = "failed calling webhook"


def refuse(desk: Desk, *names: str, message: str = QUOTA, outage: bool = False) -> list[Action]:
    """The present attempts of these jobs are not started."""
    ends = (
        RunEnded(name, desk[name].attempt, RunEnd.NOT_STARTED, message=message, outage=outage)
        for name in names
    )
    return desk.tell(*ends)


def said(desk: Desk, name: str) -> str:
    return explain(desk.scheduler.state, desk[name], lambda at: f"{at:g}").sentence


# --- one job ------------------------------------------------------------------------------------------------


def test_a_refused_start_is_no_loss_however_often_it_is_refused() -> None:
    desk = Desk(1, max_losses=0)
    desk.submit(job("a", cloud="never"))
    for number in range(1, 30):
        assert not refuse(desk, "a")
        assert (desk.phase("a"), desk["a"].losses, desk.free()) == ("blocked", 0, 1)
        assert not desk.wait(pause_s(number) - 1)
        assert starts(desk.wait(1)) == ["a"]
    desk.started("a")
    desk.ended("a")
    assert (desk.phase("a"), desk["a"].attempt) == ("succeeded", 30)


def test_the_words_of_the_site_stand_in_the_log_the_record_and_the_explanation() -> None:
    desk = Desk(1)
    desk.submit(job("a", cloud="never"))
    refuse(desk, "a")
    told = f"was not started on n0: {QUOTA}; it is tried again in 10 s"
    assert (desk.why("a", "not-started"), desk["a"].message) == (told, told)
    assert said(desk, "a") == f"was not started: {QUOTA}; it is tried again at 10"
    desk.wait(10)
    refuse(desk, "a")
    assert said(desk, "a") == (f"was not started 2 times in a row, at last: {QUOTA}; it is tried again at 30")


def test_its_place_is_free_for_others_while_it_pauses() -> None:
    desk = Desk(8)
    desk.submit(job("sick", 8, cloud="never"))
    desk.submit(job("sound", 8, cloud="never"))
    assert starts(refuse(desk, "sick")) == ["sound"]
    desk.started("sound")
    assert not desk.wait(HOUR)
    assert "waits for 8 GPUs" in said(desk, "sick")
    assert f"its last start was refused: {QUOTA}" in said(desk, "sick")


def test_a_start_makes_the_pauses_short_again() -> None:
    desk = Desk(1)
    desk.submit(job("a", cloud="never"))
    for _ in range(3):
        refuse(desk, "a")
        desk.wait(40)
    desk.started("a")
    assert (desk["a"].refusals, desk["a"].refusal) == (0, "")
    desk.ended("a", RunEnd.DISPLACED)
    refuse(desk, "a")
    assert starts(desk.wait(10)) == ["a"]


def test_its_wait_goes_on_while_it_pauses_and_then_it_leaves() -> None:
    desk = Desk(1)
    desk.submit(job("a", max_wait_s=25.0))
    refuse(desk, "a")
    assert starts(desk.wait(10)) == ["a"]
    refuse(desk, "a")  # the next try would be at 30 s
    assert said(desk, "a").endswith("it leaves for the cloud at 25, if it can")
    assert launches(desk.wait(15)) == ["small"]
    assert "the cluster does not start it, and its wait is over" in desk.why("a", "offloaded")


def test_who_should_leave_and_cannot_is_tried_again_with_growing_pauses() -> None:
    desk = Desk(1, offers=())
    desk.submit(job("a", max_wait_s=5.0))
    tries = []
    for _ in range(6):
        refuse(desk, "a")
        began = desk.now
        while desk.phase("a") != "starting":
            desk.wait(1)
        tries.append(desk.now - began)
    assert tries[0] == 5  # its wait was over then
    assert tries[1:] == [pause_s(n) for n in range(2, 7)]
    assert (
        desk.why("a", "no-offer")
        == "stays in the queue: it would leave for the cloud, but the cloud has no offers"
    )


def test_a_refusal_of_one_that_was_cancelled_meanwhile_ends_it() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.cancel("a")
    refuse(desk, "a")
    assert (desk.phase("a"), desk.free()) == ("cancelled", 1)


def test_one_that_pauses_can_be_cancelled_and_held() -> None:
    desk = Desk(2)
    desk.submit(job("a"), job("b"))
    refuse(desk, "a", "b")
    desk.cancel("a")
    assert desk.phase("a") == "cancelled"
    desk.hold("b")
    desk.wait(3)
    desk.release("b")
    assert desk.phase("b") == "blocked"
    assert said(desk, "b") == f"was not started: {QUOTA}; it is tried again at 10"
    assert starts(desk.wait(10)) == ["b"]
    assert desk["b"].deadline == 10 + HOUR


def test_a_turn_in_an_array_is_given_to_others_meanwhile() -> None:

    desk = Desk(4)
    desk.submit(*(job(f"s-{n}", array=Member("s", n, 2, 1)) for n in range(2)))
    assert starts(refuse(desk, "s-0")) == ["s-1"]
    assert not starts(desk.wait(MINUTE))
    assert starts(desk.ended("s-1")) == ["s-0"]


def test_a_start_that_nobody_asked_to_end_and_that_ended_is_no_loss_either() -> None:
    """A crash between giving up and telling why."""
    desk = Desk(1, max_losses=0)
    desk.submit(job("a", cloud="never"))
    desk.stopped("a")
    assert desk.phase("a") == "blocked"
    assert starts(desk.wait(10)) == ["a"]


def test_one_that_began_after_all_and_was_ended_for_the_doubt_pauses_too() -> None:
    desk = Desk(1, max_losses=0)
    desk.submit(job("a", cloud="never"))
    desk.started("a")
    refuse(desk, "a", outage=True)
    assert (desk.phase("a"), desk.free()) == ("blocked", 1)


def test_in_the_cloud_each_try_is_paid_for_so_there_it_counts_as_a_loss() -> None:
    desk = Desk(max_losses=1)
    desk.submit(job("a", cloud="only"))
    desk.ready("i-000001")
    assert returns(refuse(desk, "a", message="no space left")) == ["i-000001"]
    assert not launches(desk.wait(9))
    assert launches(desk.wait(1)) == ["small"]
    desk.ready("i-000002")
    assert returns(refuse(desk, "a", message="no space left")) == ["i-000002"]
    assert desk.phase("a") == "failed"
    assert desk["a"].message == "its runs were lost 2 times, at last because no space left"


def test_a_machine_that_is_refused_keeps_its_words() -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only"))
    desk.tell(InstanceGone("i-000001", 0.0, 0.0, message="UnauthorizedOperation"))
    assert "UnauthorizedOperation" in desk.why("i-000001", "launch-failed")


# --- restarts -----------------------------------------------------------------------------------------------


def again(desk: Desk) -> Any:
    """The scheduler as it comes up after a restart."""
    kept = snapshot(desk.scheduler)
    facts = codec.decode(Facts, codec.encode(kept.facts))
    found = restore(
        desk.scheduler.state.settings, type(kept)(facts, kept.jobs, kept.instances, kept.nodes, kept.offers)
    )
    found.state.now = desk.now
    return found


def test_a_restart_changes_neither_the_pause_nor_the_wait() -> None:
    desk = Desk(1)
    desk.submit(job("a", max_wait_s=25.0))
    refuse(desk, "a")
    assert again(desk).next_wakeup() == 10
    desk.wait(10)
    refuse(desk, "a")
    assert again(desk).next_wakeup() == 25


def test_rows_of_today_are_read_as_never_refused() -> None:
    desk = Desk(1)
    text = codec.encode(snapshot(desk.scheduler).facts)
    old = text[: text.index(',"refusals"')] + "}"
    assert codec.decode(Facts, old).refusals == Refusals()


# --- a cluster that refuses everything ----------------------------------------------------------------------


def outage(desk: Desk, *names: str) -> list[Action]:
    return refuse(desk, *names, message=WEBHOOK, outage=True)


def closed(rooms: int = 20, jobs: int = 40, **settings: Any) -> Desk:
    """A cluster that has just closed, with room, and with jobs that were not tried yet."""
    desk = Desk(rooms, **settings)
    desk.submit(*(job(f"j{n:02}", rooms // 5, cloud="never") for n in range(jobs)))
    outage(desk, *(f"j{n:02}" for n in range(IN_A_ROW)))
    return desk


def test_after_some_refusals_in_a_row_one_job_at_a_time_is_tried() -> None:
    desk = closed()
    assert not starts(desk.actions)
    tried = []
    for _ in range(12):
        probe = starts(desk.wait(PROBE_S))
        assert len(probe) <= 1
        tried += probe
        if probe:
            outage(desk, *probe)
    assert len(set(tried)) == 12  # each had its turn before any had its second
    assert desk.why("cluster", "refusing") == (
        f"has refused 5 starts in a row, at last with: {WEBHOOK}; "
        "one job every 10 s is tried until one starts"
    )
    assert len(desk.log("cluster")) == 1


def test_one_start_opens_it_for_all() -> None:
    desk = closed()
    probe = starts(desk.wait(PROBE_S))
    assert starts(desk.started(*probe)) == ["j00", "j01", "j02", "j03"]
    assert desk.why("cluster", "accepting") == "starts jobs again, 10 s after it first refused one"
    assert not desk.scheduler.state.refusals.count


def test_explain_says_why_there_is_room_and_nobody_starts() -> None:
    desk = closed()
    assert f"the cluster has refused every start since 0 ({WEBHOOK}); it is tried again at 10" in said(
        desk, "j20"
    )


def test_refusals_of_single_jobs_never_close_it_for_others() -> None:
    desk = Desk(20)
    desk.submit(*(job(f"j{n}", cloud="never") for n in range(2 * IN_A_ROW)))
    refuse(desk, *(f"j{n}" for n in range(2 * IN_A_ROW)))
    assert starts(desk.submit(job("b"))) == ["b"]


def test_a_job_that_was_not_refused_yet_is_tried_before_those_that_were() -> None:
    """Fifty jobs for which a webhook always fails cannot hold up the only one that it lets through."""
    desk = Desk(10)
    desk.submit(*(job(f"bad{n:02}", cloud="never") for n in range(10)))
    outage(desk, *(f"bad{n:02}" for n in range(10)))
    desk.wait(PROBE_S)
    outage(desk, *starts(desk.actions))
    desk.now += 8
    desk.tell()
    desk.submit(job("good", cloud="never"))
    assert starts(desk.wait(2)) == ["good"]


def test_whose_wait_ends_meanwhile_leaves_and_the_log_does_not_say_for_want_of_room() -> None:
    desk = closed()
    desk.submit(job("x", max_wait_s=4.0))
    assert launches(desk.wait(4)) == ["small"]
    assert "no room" not in desk.why("x", "offloaded")
    desk.tell(NodesChanged((node("n0", 20), node("n1", 20))))
    assert desk.phase("x") == "offloading"


def test_nobody_comes_home_to_it() -> None:
    desk = Desk(4, returns="if-it-pays", t_max_s=160.0)
    desk.submit(job("big", 4, cloud="never"), job("x", 4, hours=9, checkpoint=True, max_wait_s=0.0))
    desk.offload("x")
    outage(desk, "big")
    for number in range(1, IN_A_ROW):
        desk.wait(pause_s(number))
        outage(desk, "big")
    assert not stops(desk.wait(20))
    desk.wait(200)
    assert desk.phase("big") == "starting"
    desk.started("big")
    assert stops(desk.ended("big")) == ["x"]


def test_it_stays_closed_over_a_restart_and_the_next_probe_is_due_when_it_was() -> None:
    desk = closed()
    desk.wait(4)
    fresh = again(desk)
    assert fresh.next_wakeup() == PROBE_S
    assert not fresh.handle([], 5.0)
    assert starts(fresh.handle([], PROBE_S)) == ["j05"]


def test_nothing_wakes_the_scheduler_when_nobody_waits() -> None:
    desk = closed(jobs=IN_A_ROW)
    for n in range(IN_A_ROW):
        desk.cancel(f"j{n:02}")
    assert desk.scheduler.next_wakeup() == float("inf")


def test_a_probe_that_fits_nowhere_does_not_spin() -> None:
    desk = closed(jobs=IN_A_ROW)
    desk.tell(NodesChanged((node("n0", 1),)))
    desk.wait(10)
    woken = 0
    while desk.now < HOUR:
        desk.wait(min(10.0, HOUR - desk.now))
        woken += 1
    assert woken <= HOUR / 10


def test_what_was_refused_long_ago_is_forgotten() -> None:
    known = Refusals()
    for _ in range(IN_A_ROW):
        known = known.refused(0.0, "no")
    assert known.shut(FORGET_S - 1)
    assert not known.shut(FORGET_S)
    assert known.refused(FORGET_S, "no").count == 1


@pytest.mark.parametrize("order", ["fifo", "sjf", "fair", "bf-js", "vqs", "vqs-bf"])
def test_every_order_can_be_closed_and_opened(order: str) -> None:
    desk = closed(order=order)
    for _ in range(6):
        outage(desk, *starts(desk.wait(PROBE_S)))
    waits = 0
    while not (probe := starts(desk.wait(1))):
        waits += 1
        assert waits < 400
    assert len(probe) == 1
    desk.started(*probe)
    assert sum(desk.phase(f"j{n:02}") == "starting" for n in range(40)) == 4


# --- held up ------------------------------------------------------------------------------------------------

PULL = "its container waits: ErrImagePull: manifest unknown"


def test_what_holds_up_a_run_is_said_while_it_does() -> None:
    desk = Desk(1)
    desk.submit(job("a", cloud="never"))
    desk.tell(RunStalled("a", 1, PULL))
    assert said(desk, "a").startswith("is being started on the cluster on n0")
    assert said(desk, "a").endswith(f"; held up: {PULL}")
    assert desk.why("a", "stalled") == f"is held up on n0: {PULL}"
    desk.started("a")
    assert "held up" not in said(desk, "a")
    away = "the node n0 does not answer since 13:27:10"
    desk.tell(RunStalled("a", 1, away))
    assert said(desk, "a").endswith(f"; held up: {away}")
    desk.tell(RunStalled("a", 1, ""))
    assert "held up" not in said(desk, "a")
    assert desk.why("a", "goes-on") == "goes on on n0: what held it up is over"


def test_what_held_up_a_run_is_not_said_of_the_next_one() -> None:
    desk = Desk(1)
    desk.submit(job("a", cloud="never"))
    desk.tell(RunStalled("a", 1, PULL))
    refuse(desk, "a", message=PULL)
    desk.tell(RunStalled("a", 1, "of a run that is over"))
    assert starts(desk.wait(10)) == ["a"]
    assert desk["a"].stall == ""
