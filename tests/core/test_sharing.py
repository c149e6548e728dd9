"""Jobs that leave together are packed together, and share a machine and its bill."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.core.parts.fleet import Fleet
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.steps import offload
from starburst.core.views.restoring import restore
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.policy.cost_allocation import Use
from starburst.policy.packing.packers.none import NoPacking
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, returns, snapshot, starts

BIG, SMALL = offer("big", 4, 3), offer("small", 1, 1)


def test_without_a_packer_each_job_has_a_machine_of_its_own() -> None:
    desk = Desk(offers=[BIG, SMALL])
    assert launches(desk.submit(*(job(f"j{n}", cloud="only") for n in range(4)))) == ["small"] * 4


def test_jobs_that_leave_at_one_instant_share_what_is_cheaper_together() -> None:
    desk = Desk(offers=[BIG, SMALL], packer="eva")
    assert launches(desk.submit(*(job(f"j{n}", cloud="only") for n in range(4)))) == ["big"]
    assert starts(desk.ready("i-000001")) == ["j0", "j1", "j2", "j3"]
    assert desk.why("j1", "offloaded").endswith("rents big at $3.00/h with j0, j2, j3")
    assert desk.why("i-000001", "launched") == "rented big at $3.00/h for j0, j1, j2, j3"


def test_who_leaves_waits_a_moment_for_company() -> None:
    desk = Desk(offers=[BIG, SMALL], packer="eva", pack_window_s=30.0)
    assert desk.submit(job("a", cloud="only"), job("b", cloud="only")) == []
    assert desk.phase("a") == "offloading"
    desk.now = 20
    assert desk.submit(job("c", cloud="only"), job("d", cloud="only")) == []
    assert desk.scheduler.next_wakeup() == 30
    assert launches(desk.wait(10)) == ["big"]


def test_more_jobs_than_a_step_packs_are_packed_in_several_steps_of_one_instant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offload, "PACKED_PER_STEP", 4)
    desk = Desk(offers=[BIG, SMALL], packer="eva", pack_window_s=30.0)
    desk.submit(*(job(f"j{n}", cloud="only") for n in range(10)))
    steps = []
    while desk.scheduler.next_wakeup() == 30:
        steps.append(launches(desk.scheduler.handle((), 30.0)))
    assert steps == [["big"], ["big"], ["small", "small"]]
    assert all(desk.nodes_of(f"j{n}") for n in range(10))


def test_who_is_cancelled_while_it_waits_for_company_rents_nothing() -> None:
    desk = Desk(offers=[SMALL], packer="eva", pack_window_s=30.0)
    desk.submit(job("a", cloud="only"))
    desk.cancel("a")
    assert desk.phase("a") == "cancelled"
    assert desk.wait(MINUTE) == []


def test_who_left_for_want_of_room_stays_if_there_is_some_before_a_machine_is_asked_for() -> None:
    desk = Desk(4, offers=[SMALL], packer="eva", pack_window_s=30.0)
    desk.submit(job("first", 4), job("a", max_wait_s=MINUTE), job("b", cloud="only"))
    desk.started("first")
    desk.wait(MINUTE + 10)
    assert desk.phase("a") == "offloading"
    assert starts(desk.ended("first")) == ["a"]
    assert launches(desk.wait(MINUTE)) == []


def test_a_restart_forgets_nobody_who_waits_for_company() -> None:
    desk = Desk(offers=[SMALL], packer="eva", pack_window_s=30.0)
    desk.submit(job("a", cloud="only"))
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert launches(again.handle((), 30.0)) == ["small"]


def test_a_job_joins_a_machine_that_others_need_for_longer_anyway() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(job("a", 2, cloud="only", hours=2))
    desk.offload("a")
    assert starts(desk.submit(job("b", 1, cloud="only", hours=1))) == ["b"]
    assert desk.nodes_of("b") == ["i-000001"]
    assert desk.why("b", "offloaded").endswith(
        "joins i-000001 (big at $3.00/h), which a needs for longer anyway"
    )


def test_a_job_that_does_not_fit_gets_another_machine() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(job("a", 2, cloud="only", hours=2))
    desk.offload("a")
    assert launches(desk.submit(job("b", 3, cloud="only", hours=1))) == ["big"]


@pytest.mark.parametrize(("hours", "gets"), [(2.5, []), (3.5, ["small"])])
def test_a_job_that_needs_a_machine_longer_joins_it_if_that_costs_less_than_one_of_its_own(
    hours: float, gets: list[str]
) -> None:
    """Half an hour more of the big one costs $1.50, two and a half hours of a small one $2.50."""
    desk = Desk(offers=[BIG, SMALL], packer="eva")
    desk.submit(job("a", 3, cloud="only", hours=2))
    desk.offload("a")
    assert launches(desk.submit(job("b", 1, cloud="only", hours=hours))) == gets
    if not gets:
        assert desk.why("b", "offloaded").endswith(
            "joins i-000001 (big at $3.00/h), which a needs too: 30 min more of it cost $1.50, less than a "
            "machine of its own"
        )


@pytest.mark.parametrize(
    ("offers", "gets"), [([BIG, SMALL], ["small"]), ([BIG], [])], ids=["dearer", "as dear"]
)
def test_a_job_of_unknown_length_joins_no_machine_that_costs_more_an_hour_than_its_own(
    offers: list[Offer], gets: list[str]
) -> None:
    desk = Desk(offers=offers, packer="eva")
    desk.submit(job("a", 3, cloud="only", hours=2))
    desk.offload("a")
    unknown = job("b", 1, cloud="only", hours=None)
    desk.now = 1.1 * HOUR
    assert launches(desk.submit(unknown)) == gets


def test_who_joins_next_needs_a_machine_no_longer_than_who_joined_before() -> None:
    desk = Desk(offers=[BIG, SMALL], packer="eva")
    desk.submit(job("a", 2, cloud="only", hours=2))
    desk.offload("a")
    desk.submit(job("b", 1, cloud="only", hours=2.5), job("c", 1, cloud="only", hours=2.5))
    assert desk.nodes_of("b") == desk.nodes_of("c") == ["i-000001"]
    assert desk.why("c", "offloaded").endswith("which a, b needs for longer anyway")


def test_a_shared_machine_is_given_back_when_the_last_job_leaves_it() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(job("a", 2, cloud="only", hours=2), job("b", 2, cloud="only", hours=1))
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.now = HOUR
    assert returns(desk.ended("b")) == []
    desk.now = 2 * HOUR
    assert returns(desk.ended("a")) == ["i-000001"]


def test_the_bill_is_split_by_what_each_had_of_the_machine_and_how_long() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(job("a", 3, cloud="only", hours=2), job("b", 1, cloud="only", hours=1))
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.now = HOUR
    desk.ended("b")
    desk.now = 2 * HOUR
    desk.ended("a")
    desk.gone("i-000001")
    assert desk["a"].cloud_micro_usd + desk["b"].cloud_micro_usd == 6_000_000
    assert desk["b"].cloud_micro_usd == pytest.approx(3_000_000 / 4, abs=1)


def test_all_jobs_of_a_machine_that_does_not_come_look_elsewhere_together() -> None:
    desk = Desk(offers=[BIG, offer("dear", 4, 9)], packer="eva")
    desk.submit(job("a", 2, cloud="only"), job("b", 2, cloud="only"))
    assert launches(desk.no_launch("i-000001")) == ["dear"]
    assert desk.nodes_of("a") == desk.nodes_of("b") == ["i-000002"]


def test_a_gang_may_span_machines_that_others_share() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(job("g", gang=(3, 3), cloud="only"), job("b", 1, cloud="only"), job("c", 1, cloud="only"))
    assert len(desk.instances) == 2
    assert starts(desk.ready(*desk.instances)) == ["b", "c", "g"] or desk.phase("g") == "starting"


def test_unreachable_is_not_dead() -> None:
    desk = Desk(offers=[BIG], unreachable_s=MINUTE)
    desk.submit(job("a", cloud="only"))
    desk.offload("a")
    assert desk.cut_off("i-000001") == []
    assert desk.wait(MINUTE - 1) == []
    assert desk.phase("a") == "running"
    desk.heard_of("i-000001")
    assert desk.wait(HOUR) == []


def test_who_is_not_heard_of_for_too_long_is_ended_before_its_jobs_start_anew() -> None:
    desk = Desk(offers=[BIG], unreachable_s=MINUTE)
    desk.submit(job("a", cloud="only"))
    desk.offload("a")
    desk.cut_off("i-000001")
    assert returns(desk.wait(MINUTE)) == ["i-000001"]
    assert desk.phase("a") == "running"
    assert launches(desk.gone("i-000001")) == ["big"]


def test_the_grace_survives_a_restart() -> None:
    desk = Desk(offers=[BIG], unreachable_s=MINUTE)
    desk.submit(job("a", cloud="only"))
    desk.offload("a")
    desk.cut_off("i-000001")
    desk.now = 30
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    assert again.next_wakeup() == MINUTE
    assert returns(again.handle((), MINUTE)) == ["i-000001"]


@given(
    st.lists(st.tuples(*[st.floats(0, 1e4)] * 2, st.floats(0, 1)), min_size=1, max_size=9),
    st.integers(0, 10**12),
)
def test_parts_of_a_bill_add_up_whatever_the_shares(uses: list[tuple[float, ...]], rate: int) -> None:
    fleet = Fleet(NoPacking())
    record = InstanceRecord("i-1", BIG, Money(rate), 0.0, launched_at=0.0, ended_at=HOUR)
    fleet.instances[record.id] = record
    record.billed_to = [f"j{n}" for n in range(len(uses))]
    record.uses = [Use(f"j{n}", share, at, at + during) for n, (at, during, share) in enumerate(uses)]
    parts = fleet.settle(record)
    assert sum(parts.values()) == record.micro_usd
    assert min(parts.values()) >= 0
