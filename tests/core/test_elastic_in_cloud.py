"""Elastic gangs on machines that are rented as one: when the cloud takes one they go on on the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.core.model.actions import StartRun, StopRun
from starburst.core.model.events import MachinesLost, RunEnd
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Snapshot
from starburst.core.views.validate import validate
from starburst.domain.job import Job
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from starburst.policy.cost_allocation import Use
from starburst.store import codec
from tests.builders import HOUR, Desk, job, launches, offer, returns, snapshot, starts, stops
from tests.core.capped import stands

#: Machines of four GPUs at $3.60/h: a second of one costs 1000 micro-dollars.
BIG = offer("big", 4, 3.6)


def elastic(name: str = "a", *gpus: int, least: int = 1, **more: Any) -> Job:
    """A gang that has a machine of three for each of its tasks."""
    return job(name, gang=gpus or (4, 4, 4), least_tasks=least, cloud="only", hours=9, **more)


def running(*jobs: Job, **settings: Any) -> Desk:
    """A desk whose first job runs on the machines 0, 1 and 2 of an instance, and the others beside it."""
    desk = Desk(**{"offers": [BIG], "packer": "eva", "pack_period_s": 0.0, **settings})
    first, *others = jobs or (elastic(),)
    desk.submit(first)
    desk.offload(first.id)
    for each in others:
        desk.submit(each)
        desk.started(each.id)
    assert desk.instances == ["i-000001"]
    return desk


def lose(desk: Desk, *nodes: int, at: float | None = None, preempted: bool = True) -> list[Any]:
    """The cloud takes these machines of the instance, besides those that it took before."""
    known = desk.scheduler.state.fleet.instances["i-000001"].lost
    lost = known | dict.fromkeys(nodes, desk.now if at is None else at)
    return desk.tell(MachinesLost("i-000001", tuple(lost.items()), preempted))


def places(desk: Desk, name: str) -> list[tuple[int, int]]:
    """Rank and machine of each task."""
    return [(slot.rank, slot.node) for slot in desk[name].slots]


def test_it_is_stopped_with_its_grace_and_starts_again_on_the_machines_that_are_left() -> None:
    desk = running(elastic(grace_s=60.0))
    (stop,) = lose(desk, 0)
    assert isinstance(stop, StopRun)
    assert (stop.job_id, stop.grace_s) == ("a", 60.0)
    (start,) = desk.stopped("a")
    assert isinstance(start, StartRun)
    assert start.attempt == 2
    assert places(desk, "a") == [(0, 1), (1, 2)]
    assert desk.why("i-000001", "machines-lost") == (
        "lost 1 of its 3 machines; a goes on with 2 of its 3 tasks, as it is elastic"
    )
    assert desk.why("a", "shrinks") == (
        "run 1 is gone (i-000001 lost a machine that it ran on); starts again at once on i-000001 with 2 of "
        "its 3 tasks, as it is elastic"
    )
    assert desk["a"].attempt_need == "8 GPUs, 2 of its 3 tasks"
    desk.started("a")
    assert returns(desk.ended("a")) == ["i-000001"]
    assert desk.phase("a") == "succeeded"


def test_each_machine_is_paid_for_until_its_own_end() -> None:
    desk = running()
    desk.now = 1000.0
    lose(desk, 1, at=900.0)
    desk.stopped("a")
    desk.started("a")
    record = desk.scheduler.state.fleet.instances["i-000001"]
    desk.now = 2000.0
    assert record.cost(desk.now).micro_usd == (900 + 2 * 2000) * 1000
    assert record.present_rate == Money.of("7.2")
    lose(desk, 2, at=2000.0)
    desk.stopped("a")
    desk.started("a")
    assert places(desk, "a") == [(0, 0)]
    desk.now = 3000.0
    desk.ended("a")
    desk.gone("i-000001")
    assert desk["a"].cloud_micro_usd == (900 + 2000 + 3000) * 1000


def test_who_shares_the_machines_pays_less_after_the_loss() -> None:
    desk = running(elastic("a", 3, 3, 3, spread=True), job("b", 1, cloud="only", hours=1))
    (b,) = desk["b"].slots
    record = desk.scheduler.state.fleet.instances["i-000001"]
    desk.now = 1000.0
    lose(desk, next(node for node in range(3) if node != b.node))
    before, later = record.seconds(0.0, 1000.0), record.seconds(1000.0, 1600.0)
    assert sum(before.values()) == pytest.approx(1000)
    assert sum(later.values()) == pytest.approx(400)
    assert sum(record.shares(1600.0).values()) == record.cost(1600.0).micro_usd == (3 * 1000 + 2 * 600) * 1000


def test_caps_count_what_is_still_paid_for() -> None:
    desk = running(caps=(Cap(Money.of(1000), "day"),))
    lose(desk, 1, at=0.0)
    desk.now = 1000.0
    status = stands(desk)
    assert status.spent == pytest.approx(2 * 1000 * 1000)
    assert status.rate == pytest.approx(7_200_000)


def test_below_its_least_number_of_tasks_as_much_is_rented_again() -> None:
    desk = running(elastic(least=3))
    assert returns(lose(desk, 2)) == ["i-000001"]
    assert desk.why("i-000001", "machines-lost") == (
        "lost 1 of its 3 machines; the others are ended, as no elastic gang goes on there"
    )
    assert launches(desk.gone("i-000001")) == ["big"]
    assert (desk.phase("a"), len(desk["a"].slots), desk["a"].losses) == ("offloading", 3, 0)
    assert desk.why("i-000001", "gone").startswith("preempted by the cloud after")


def test_a_gang_that_is_not_elastic_is_lost_with_the_whole() -> None:
    desk = running(elastic(least=0))
    assert returns(lose(desk, 2, preempted=False)) == ["i-000001"]
    assert launches(desk.gone("i-000001")) == ["big"]
    assert desk["a"].losses == 1
    assert desk.why("i-000001", "gone").startswith("ended, for it had lost a machine after")


def test_a_machine_that_was_not_preempted_counts_as_a_loss() -> None:
    desk = running(max_losses=1)
    lose(desk, 2, preempted=False)
    assert starts(desk.stopped("a")) == ["a"]
    assert desk["a"].losses == 1
    desk.started("a")
    assert returns(lose(desk, 1, preempted=False)) == ["i-000001"]
    desk.gone("i-000001")
    assert desk.phase("a") == "failed"


def test_a_second_loss_while_it_saves_its_work_counts_when_it_starts_again() -> None:
    desk = running()
    lose(desk, 0)
    assert lose(desk, 2) == []
    assert starts(desk.stopped("a")) == ["a"]
    assert places(desk, "a") == [(0, 1)]


def test_its_run_that_ends_by_itself_meanwhile_counts() -> None:
    desk = running()
    lose(desk, 0)
    assert returns(desk.ended("a")) == ["i-000001"]
    assert desk.phase("a") == "succeeded"


def test_a_run_that_the_cloud_reports_as_lost_starts_again_there() -> None:
    desk = running()
    lose(desk, 0)
    assert starts(desk.ended("a", RunEnd.LOST, None)) == ["a"]


def test_a_cancelled_gang_does_not_go_on() -> None:
    desk = running()
    lose(desk, 0)
    desk.cancel("a")
    assert returns(desk.stopped("a")) == ["i-000001"]
    assert desk.phase("a") == "cancelled"
    desk = running()
    desk.cancel("a")
    assert returns(lose(desk, 0)) == ["i-000001"]


def test_of_other_jobs_there_only_those_on_the_lost_machine_are_lost() -> None:
    small = [job(name, 1, cloud="only", hours=1) for name in ("b", "c", "d")]
    desk = running(elastic("a", 3, 3, 3, spread=True), *small)
    (lost,) = [name for name in "bcd" if desk[name].slots[0].node == 1]
    assert stops(lose(desk, 1)) == ["a", lost]
    assert launches(desk.stopped(lost)) == ["big"]
    assert starts(desk.stopped("a")) == ["a"]
    assert sorted(desk.phase(name) for name in "bcd") == ["offloading", "running", "running"]


def test_it_takes_no_room_that_others_have() -> None:
    desk = running(elastic("a", 1, 3, 3), job("b", 1, cloud="only", hours=1))
    assert (places(desk, "a"), places(desk, "b")) == ([(0, 0), (1, 0), (2, 1)], [(0, 1)])
    lose(desk, 0)
    desk.stopped("a")
    assert places(desk, "a") == [(0, 1)], "the first two would fit there without b"


def test_nobody_joins_what_lost_a_machine() -> None:
    desk = running(elastic("a", 3, 3, 3, spread=True))
    lose(desk, 0)
    desk.stopped("a")
    desk.started("a")
    assert launches(desk.submit(job("b", 1, cloud="only", hours=1))) == ["big"]


def test_a_gang_with_fewer_tasks_does_not_move_to_where_all_of_them_would_fit() -> None:
    huge = offer("huge", 24, 21.6, cpus=256)
    gang = elastic("a", 4, 4, 4, checkpoint=True)
    desk = running(gang, offers=[BIG, huge], pack_period_s=60.0, move_min_run_s=HOUR)
    lose(desk, 0, 1)
    desk.stopped("a")
    desk.started("a")
    assert launches(desk.submit(job("b", 8, cloud="only", hours=100))) == ["huge"]
    desk.ready("i-000002")
    desk.started("b")
    desk.wait(2 * HOUR)
    assert places(desk, "a") == [(0, 2)]


def test_a_gang_whose_tasks_share_machines_has_all_of_them_again_if_they_fit() -> None:
    desk = running(elastic("a", 2, 2, 2, 2, 2))
    assert places(desk, "a") == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)]
    lose(desk, 2)
    desk.stopped("a")
    assert places(desk, "a") == [(0, 0), (1, 0), (2, 1), (3, 1)]


def test_what_is_lost_outlives_the_scheduler() -> None:
    desk = running()
    lose(desk, 1, at=5.0)
    kept = codec.decode(Snapshot, codec.encode(snapshot(desk.scheduler)))
    again = restore(desk.scheduler.state.settings, kept)
    assert again.state.fleet.instances["i-000001"].lost == {1: 5.0}
    validate(again.state)
    assert starts(again.handle([desk.end_of("a", RunEnd.STOPPED, None)], HOUR)) == ["a"]
    assert [(slot.rank, slot.node) for slot in again.state.jobs["a"].slots] == [(0, 0), (1, 2)]


def test_a_loss_that_is_known_changes_nothing() -> None:
    desk = running()
    lose(desk, 1)
    desk.stopped("a")
    before = replace(desk["a"])
    assert lose(desk, 1) == []
    assert desk["a"] == before


def test_a_loss_while_the_whole_is_given_back_is_still_billed() -> None:
    desk = running()
    desk.cancel("a")
    desk.stopped("a")
    desk.now = 1000.0
    assert lose(desk, 1, at=400.0) == []
    desk.gone("i-000001")
    assert desk["a"].cloud_micro_usd == (400 + 2 * 1000) * 1000


TIMES = st.integers(0, 1000).map(float)


@given(
    st.dictionaries(st.integers(0, 2), TIMES, max_size=2),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 12), TIMES, TIMES), min_size=1, max_size=6),
    st.tuples(TIMES, TIMES, TIMES),
)
def test_what_the_jobs_pay_adds_up_to_the_seconds_of_the_machines(
    lost: dict[int, float], uses: list[tuple[str, int, float, float]], times: tuple[float, float, float]
) -> None:
    begun, cut, ended = sorted(times)
    record = InstanceRecord("i", BIG.times(3), Money.of("10.8"), 0.0, launched_at=begun, lost=lost)
    record.billed_to = sorted({job_id for job_id, *_ in uses})
    record.uses = [Use(name, gpus / 12, min(a, b), max(a, b)) for name, gpus, a, b in uses]
    alone = [max(0.0, min(ended, lost.get(node, ended)) - begun) for node in range(3)]
    assert 3 * record.billed_s(begun, ended) == pytest.approx(sum(alone))
    assert sum(record.seconds(begun, ended).values()) == pytest.approx(record.billed_s(begun, ended))
    parts = [record.seconds(begun, cut), record.seconds(cut, ended)]
    for job_id, whole in record.seconds(begun, ended).items():
        assert whole == pytest.approx(sum(part.get(job_id, 0.0) for part in parts))
    assert sum(record.shares(ended).values()) == record.cost(ended).micro_usd


@pytest.mark.parametrize(("then", "goes_on"), [("stop", False), ("return", False), ("finish", True)])
def test_it_begins_no_run_after_a_cap_was_reached_while_it_stopped(then: str, goes_on: bool) -> None:
    """Three machines cost $10.80/h. A new run would be stopped at once, with a second grace."""
    gang = job("a", gang=(4, 4, 4), least_tasks=1, cloud="only", hours=0.1, grace_s=600.0)
    desk = running(gang, caps=(Cap(Money.of("10.8"), "day", then=then),))
    desk.wait(HOUR - 300)
    assert stops(lose(desk, 0)) == ["a"]
    desk.wait(599)
    assert stands(desk).is_reached
    actions = desk.stopped("a")
    assert starts(actions) == (["a"] if goes_on else [])
    assert stops(actions) == []
    if not goes_on:
        assert (desk.phase("a"), returns(actions)) == ("queued", ["i-000001"])
        assert desk.log("a", "capped")
