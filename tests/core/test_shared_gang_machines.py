"""Instances of several machines: other jobs join them as they join one machine, each task on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.fleet import Fleet
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.join_search import Leaver
from starburst.core.steps.interference import SETTLED_S, slowed_by, teaches
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Snapshot
from starburst.core.views.validate import InvariantError, validate
from starburst.domain.cloud import OfferRules
from starburst.domain.job import Job
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.gangs import seat
from starburst.policy.packing.packers.none import NoPacking
from starburst.store import codec
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, returns, snapshot, starts, stops

#: A machine of four GPUs; a gang that leaves one of them free on each of its machines.
BIG = offer("big", 4, 3)


def leaving(name: str, *gpus: int, hours: float = 1, **more: Any) -> Job:
    return job(name, gang=gpus, hours=hours, cloud="only", **more)


def with_gang(*gpus: int, **settings: Any) -> Desk:
    """A desk whose gang "a" runs for two hours on a machine for each of its tasks."""
    desk = Desk(**{"offers": [BIG], "packer": "eva", **settings})
    desk.submit(leaving("a", *gpus, hours=2, spread=True))
    desk.offload("a")
    return desk


def places(record: JobRecord) -> list[tuple[str, int]]:
    return [(slot.where, slot.node) for slot in record.slots]


def test_a_job_of_one_task_joins_the_machine_with_least_room_for_it() -> None:
    desk = with_gang(1, 3)
    assert starts(desk.submit(leaving("b", 1))) == ["b"]
    assert places(desk["b"]) == [("i-000001", 1)]
    assert desk.why("b", "offloaded").endswith(
        "joins i-000001 (2 × big at $6.00/h), which a needs for longer anyway"
    )


def test_a_gang_joins_as_many_machines_as_it_has_tasks() -> None:
    desk = with_gang(3, 3, 3)
    assert starts(desk.submit(leaving("b", 1, 1, 1))) == ["b"]
    assert places(desk["b"]) == [("i-000001", 0), ("i-000001", 1), ("i-000001", 2)]


def test_a_smaller_gang_joins_some_of_the_machines() -> None:
    desk = with_gang(4, 3, 3)
    assert starts(desk.submit(leaving("b", 1, 1))) == ["b"]
    assert places(desk["b"]) == [("i-000001", 1), ("i-000001", 2)]


def test_tasks_of_a_gang_share_a_machine_unless_it_is_spread() -> None:
    desk = with_gang(2, 2)
    desk.submit(leaving("b", 1, 1))
    assert places(desk["b"]) == [("i-000001", 0), ("i-000001", 0)]
    desk = with_gang(2, 2)
    desk.submit(leaving("b", 1, 1, spread=True))
    assert places(desk["b"]) == [("i-000001", 0), ("i-000001", 1)]


@pytest.mark.parametrize(
    "other",
    [
        leaving("b", 2),  # one GPU is free on each of two machines
        leaving("b", 1, 1, 1),
        leaving("b", 1, hours=5),  # both machines would be kept longer for it, at more than one more costs
        replace(leaving("b", 1), offer_rules=OfferRules(spot=True)),
    ],
)
def test_what_fits_no_single_machine_or_lasts_longer_joins_nothing(other: Job) -> None:
    desk = with_gang(3, 3, offers=[BIG, offer("spot", 4, 3, spot=True)])
    desk.submit(other)
    assert "i-000001" not in desk.nodes_of("b")
    assert launches(desk.actions)


def test_without_a_packer_nobody_joins() -> None:
    desk = with_gang(3, 3, packer="none")
    assert launches(desk.submit(leaving("b", 1))) == ["big"]


def test_a_ceiling_of_a_job_is_for_each_machine() -> None:
    desk = with_gang(3, 3)
    cheap = OfferRules(ceiling=Money.of(3))
    assert starts(desk.submit(replace(leaving("b", 1), offer_rules=cheap))) == ["b"]
    assert desk.nodes_of("b") == ["i-000001"]


def test_a_job_that_waits_for_the_cluster_joins_room_that_costs_nothing() -> None:
    desk = Desk(1, offers=[BIG], packer="eva")
    desk.submit(job("busy", hours=9), leaving("a", 3, 3, hours=2, spread=True))
    desk.started("busy")
    desk.offload("a")
    assert starts(desk.submit(job("b", hours=1))) == ["b"]
    assert desk.nodes_of("b") == ["i-000001"]


def test_who_joins_waits_until_the_machines_are_up() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(leaving("a", 3, 3, hours=2, spread=True))
    assert not desk.submit(leaving("b", 1))
    assert (desk.phase("b"), desk.nodes_of("b")) == ("offloading", ["i-000001"])
    assert starts(desk.ready("i-000001")) == ["a", "b"]


def test_the_bill_of_the_machines_is_shared_by_what_each_had_of_all() -> None:
    desk = with_gang(3, 3)
    desk.submit(leaving("b", 1, hours=1))
    desk.started("b")
    desk.now = HOUR
    desk.ended("b")
    desk.now = 2 * HOUR
    assert returns(desk.ended("a")) == ["i-000001"]
    desk.gone("i-000001")
    # In the first hour b has 1/8 and a 6/8 of what is billed; then a has it alone.
    shares = [desk[name].cloud_micro_usd for name in ("a", "b")]
    assert sum(shares) == Money.of(12).micro_usd
    assert shares[1] == pytest.approx(Money.of(6).micro_usd / 7, abs=1)


def test_the_machines_are_given_back_when_the_last_job_leaves_them() -> None:
    desk = with_gang(3, 3)
    desk.submit(leaving("b", 1))
    desk.started("b")
    desk.now = HOUR
    assert not returns(desk.ended("a"))
    assert returns(desk.ended("b")) == ["i-000001"]


def test_when_one_machine_is_taken_away_all_jobs_of_the_whole_start_anew() -> None:
    desk = with_gang(3, 3)
    desk.submit(leaving("b", 1))
    desk.started("b")
    actions = desk.gone("i-000001", preempted=True)
    assert (desk.phase("a"), desk.phase("b")) == ("offloading", "offloading")
    assert launches(actions)
    assert (desk["a"].losses, desk["b"].losses) == (0, 0)


def test_machines_that_do_not_answer_are_joined_by_nobody() -> None:
    desk = with_gang(3, 3)
    desk.cut_off("i-000001")
    assert launches(desk.submit(leaving("b", 1))) == ["big"]


def test_a_restart_knows_the_room_of_each_machine() -> None:
    desk = with_gang(4, 3)
    kept = codec.decode(Snapshot, codec.encode(snapshot(desk.scheduler)))
    for older in (False, True):
        if older:  # a version that did not record what is held of each machine
            kept = replace(kept, instances=tuple(replace(one, held_on={}) for one in kept.instances))
        again = restore(desk.scheduler.state.settings, kept, desk.scheduler.state.fleet._packer)
        again.state.unconfirmed_instances.clear()
        found = again.state.fleet.join(Leaver(leaving("b", 1), HOUR), {"i-000001": 2 * HOUR})
        assert [slot.node for slot in found] == ([] if older else [1])


def test_a_job_moves_from_a_machine_of_its_own_onto_one_of_several() -> None:
    desk = Desk(offers=[BIG], packer="eva", pack_period_s=10 * MINUTE)
    desk.submit(leaving("a", 3, 3, hours=10, spread=True))
    desk.offload("a")
    desk.submit(leaving("b", 1, hours=9), leaving("d", 1, hours=9))
    desk.started("b", "d")
    desk.submit(leaving("c", 1, hours=5, checkpoint=True))
    desk.offload("c")
    assert desk.nodes_of("c") == ["i-000002"]
    desk.now = HOUR
    assert stops(desk.ended("d")) == ["c"]
    assert starts(desk.stopped("c")) == ["c"]
    assert places(desk["c"]) == [("i-000001", 1)]
    assert returns(desk.actions) == ["i-000002"]


def test_two_jobs_do_not_move_onto_the_same_gpu() -> None:
    desk = Desk(offers=[BIG], packer="eva", pack_period_s=10 * MINUTE)
    desk.submit(leaving("a", 3, 3, hours=10, spread=True))
    desk.offload("a")
    desk.submit(leaving("b", 1, 1, hours=9, spread=True))
    desk.started("b")
    for name in ("c", "d"):  # each on a machine of its own, beside a job that cannot move
        desk.submit(leaving(name, 3, hours=5), leaving(f"{name}2", 1, hours=5, checkpoint=True))
        desk.ready(desk.nodes_of(name)[0])
        desk.started(name, f"{name}2")
    desk.now = HOUR
    desk.tell(*map(desk.end_of, ("b", "c", "d")))
    assert stops(desk.actions) == ["c2"]
    assert starts(desk.stopped("c2")) == ["c2"]
    assert (places(desk["c2"]), stops(desk.wait(10 * MINUTE))) == ([("i-000001", 0)], ["d2"])


def test_a_job_that_is_left_alone_on_several_machines_moves_to_one_of_its_own() -> None:
    desk = Desk(offers=[BIG, offer("small", 1, 1)], packer="eva", pack_period_s=10 * MINUTE)
    desk.submit(leaving("a", 3, 3, hours=10, spread=True))
    desk.offload("a")
    desk.submit(leaving("b", 1, hours=9, checkpoint=True))
    desk.started("b")
    desk.now = HOUR
    assert launches(desk.ended("a")) == ["small"]
    assert stops(desk.ready("i-000002")) == ["b"]
    assert starts(desk.stopped("b")) == ["b"]
    assert (places(desk["b"]), returns(desk.actions)) == ([("i-000002", 0)], ["i-000001"])


def test_a_gang_on_several_machines_does_not_move() -> None:
    desk = Desk(offers=[BIG], packer="eva", pack_period_s=10 * MINUTE)
    desk.submit(leaving("a", 3, 3, hours=10, spread=True, checkpoint=True))
    desk.offload("a")
    desk.submit(leaving("b", 1, hours=9, checkpoint=True))
    desk.started("b")
    assert not desk.wait(2 * HOUR)


def test_jobs_on_other_machines_are_no_company() -> None:
    desk = with_gang(3, 3)
    desk.submit(leaving("b", 1, alone_per_s=4.0))
    desk.started("b")
    desk.now += SETTLED_S
    state = desk.scheduler.state
    state.fleet.speeds.table.observe((("b", ("a",)),), 0.1, now=desk.now)
    state.fleet.speeds.table.observe((("a", ("b",)),), 0.1, now=desk.now)
    assert teaches(state, desk["b"], desk.now)
    assert slowed_by(state, leaving("b2", 1, workload="b")) == {("i-000001", 0), ("i-000001", 1)}


def test_the_invariant_names_a_machine_that_is_given_away_twice() -> None:
    desk = with_gang(3, 3)
    desk.submit(leaving("b", 1))
    state = desk.scheduler.state
    (slot,) = desk["b"].slots
    other = replace(slot, node=1 - slot.node, resources=Resources.of(2))
    desk["b"].slots = (other,)
    state.fleet.hold("b", (other,), desk.now)
    with pytest.raises(InvariantError, match="machine 1 of i-000001 is over its capacity"):
        validate(state)


tasks = st.lists(st.integers(0, 4), min_size=1, max_size=4)
rooms = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@given(tasks, rooms, st.booleans())
def test_seats_are_within_the_room_and_found_for_equal_tasks_if_there_are_any(
    gpus: Sequence[int], free: Sequence[int], spread: bool
) -> None:
    demands = [Resources.of(count, 1) for count in gpus]
    left = {node: Resources.of(count, 64, 256) for node, count in enumerate(free)}
    found = seat(demands, left, BIG.resources, spread=spread)
    if found is not None:
        used = [sum(count for count, at in zip(gpus, found, strict=True) if at == n) for n in left]
        assert all(count <= room for count, room in zip(used, free, strict=True))
        assert not spread or len(set(found)) == len(found)
    elif len(set(gpus)) == 1:
        for nodes in product(left, repeat=len(gpus)):
            used = [sum(count for count, at in zip(gpus, nodes, strict=True) if at == n) for n in left]
            fits = all(count <= room for count, room in zip(used, free, strict=True))
            assert not fits or (spread and len(set(nodes)) < len(nodes))


@given(st.lists(st.tuples(tasks, st.booleans()), max_size=12))
def test_no_machine_is_ever_over_its_capacity(joiners: Sequence[tuple[list[int], bool]]) -> None:
    fleet = Fleet(NoPacking())
    whole = fleet.launch(BIG.times(3), 0.0)
    search = fleet.search({whole.id: HOUR}, [whole])
    held: list[Slot] = []
    for number, (gpus, spread) in enumerate(joiners):
        mine = job(f"j{number}", gang=gpus, spread=spread)
        slots = search.slots(Leaver(mine, HOUR / 2))
        if slots:
            fleet.hold(mine.id, slots, 0.0)
            held += slots
    for node in range(3):
        used = sum(slot.resources.gpus for slot in held if slot.node == node)
        assert whole.room(node).gpus == 4 - used >= 0
    assert sum(whole.room(node).gpus for node in range(3)) == whole.free.gpus
    leave_all(whole)
    assert [whole.room(node) for node in range(3)] == [BIG.resources] * 3


def leave_all(instance: InstanceRecord) -> None:
    for job_id in list(instance.job_ids):
        instance.leave(job_id, 1.0)
