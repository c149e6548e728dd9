"""Gangs: all or none."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chakra.builders import World, job, node, owned, placed, pod


def gang(name: str, size: int, gpus: int, **other: object) -> list:
    """All pods of a gang."""
    return [pod(f"{name}{i}", gpus, gang=f"{name}/{size}", **other) for i in range(size)]


def test_all_members_get_their_places_in_one_round():
    world = World(node("a"), node("b"))
    world.add(*gang("g", 4, 4))
    binds = world.binds()
    assert sorted(placed(binds).values()) == ["a", "a", "b", "b"]
    assert sorted(bind.rank for bind in binds) == [0, 1, 2, 3]


def test_a_gang_that_does_not_fit_whole_takes_no_room():
    world = World(node("a"))
    world.add(*gang("g", 3, 4, created_at=1.0), pod("small", 8, created_at=2.0))
    assert world.round() == {"small": "a"}
    assert world.reasons()["g0"] == (
        "gang g needs 3 places at once, found 2: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    )


def test_a_gang_waits_for_all_of_its_pods():
    world = World(node("a"))
    first, second, third = gang("g", 3, 1)
    world.add(first, second)
    assert world.round() == {}
    assert world.reasons()["g1"] == "gang g of 3 waits for 1 more of its pods."
    world.add(third)
    assert len(world.round()) == 3


def test_gangs_of_one_name_in_two_namespaces_are_two():
    world = World(node("a"))
    here, there = gang("g", 2, 1)
    world.add(here, dataclasses.replace(there, namespace="other"))
    assert world.round() == {}


def test_members_may_differ_and_the_largest_is_placed_first():
    world = World(node("a"), node("b", 4))
    small = pod("small", 4, gang="g/2")
    world.add(small, pod("large", 8, gang="g/2", created_at=1.0))
    assert world.round() == {"large": "a", "small": "b"}


def test_two_gangs_of_which_one_fits_do_not_starve_each_other():
    world = World(node("a"), node("b"))
    one, two = gang("one", 3, 4), gang("two", 3, 4)
    world.add(*(member for pair in zip(one, two, strict=True) for member in pair))
    first = world.round()
    assert set(first) in ({"one0", "one1", "one2"}, {"two0", "two1", "two2"})
    world.remove(*(world.pods[f"uid-{name}"] for name in first))
    assert len(world.round()) == 3


def test_a_failed_member_is_replaced_alone():
    world = World(node("a"))
    members = gang("g", 3, 2)
    world.add(*members)
    world.round()
    world.remove(world.pods["uid-g1"])
    world.add(pod("again", 2, gang="g/3"))
    [bind] = world.binds()
    assert (bind.pod.name, bind.rank) == ("again", 1)


def test_beside_members_of_its_job_that_succeeded_too():
    world = World(node("a"))
    train = job("train")
    world.planner.state.job_changed(None, train, world.now)
    members = [owned(train, f"g{i}", gang="g/2") for i in range(2)]
    world.add(*members)
    world.round()
    world.add(dataclasses.replace(world.pods["uid-g0"], phase="Succeeded"))
    world.remove(world.pods["uid-g1"])
    world.add(owned(train, "again", gang="g/2"))
    assert world.round() == {"again": "a"}


def test_a_past_run_of_the_same_name_is_no_member():
    world = World(node("a"))
    for name in ("past", "now"):
        world.planner.state.job_changed(None, job(name), world.now)
    world.add(*(owned(job("past"), f"past{i}", gang="g/2") for i in range(2)))
    assert len(world.round()) == 2
    for i in range(2):
        world.add(dataclasses.replace(world.pods[f"uid-past{i}"], phase="Succeeded"))
    world.remove(world.pods["uid-past1"])
    world.add(owned(job("now"), "now0", gang="g/2"))
    assert world.round() == {}
    world.add(owned(job("now"), "now1", gang="g/2"))
    assert len(world.round()) == 2


def test_members_whose_bindings_fail_keep_their_places_and_are_sent_again():
    world = World(node("a", 4), gang_timeout_s=300)
    world.add(*gang("g", 2, 2), pod("other", 2, created_at=9.0))
    done, failed = world.binds()
    world.planner.state.bound(done)
    assert world.planner.state.refused(failed, world.now) == world.now + 1
    assert world.binds() == []
    world.now += 1
    assert world.planner.state.valid(failed)


def test_until_the_timeout_when_they_let_others_in():
    world = World(node("a", 4), gang_timeout_s=300)
    world.add(*gang("g", 2, 2), pod("other", 2, created_at=9.0))
    done, failed = world.binds()
    world.planner.state.bound(done)
    world.now += 300
    assert world.planner.state.refused(failed, world.now) is None
    assert placed(world.binds()) == {"other": "a"}


def test_a_member_whose_node_is_lost_gets_another_one():
    world = World(node("a", 2), node("b", 2))
    world.add(*gang("g", 2, 2))
    done, lost = sorted(world.binds(), key=lambda bind: bind.node)
    world.planner.state.bound(done)
    world.planner.state.node_changed(node("b", 2), None)
    assert world.planner.state.refused(lost, world.now, lost=True) is None
    assert world.binds() == []
    world.planner.state.node_changed(None, node("c", 2))
    [bind] = world.binds()
    assert (bind.pod.name, bind.node, bind.rank) == (lost.pod.name, "c", lost.rank)


def test_a_gang_annotation_that_makes_no_sense_is_said_to():
    world = World(node())
    world.add(pod("a", gang="train"), pod("b", gang="train/0"))
    assert world.round() == {}
    assert world.reasons() == {
        "a": 'starburst.io/gang: "train" is not name/size, such as "train/4".',
        "b": 'starburst.io/gang: "train/0" is not name/size, such as "train/4".',
    }


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_whatever_comes_and_goes_every_gang_has_all_places_or_none(gpus, sizes, draw):
    """Gangs arrive pod by pod and in any order; whole gangs end."""
    world = World(*(node(f"n{i}", count) for i, count in enumerate(gpus)))
    gangs = {f"g{i}-": gang(f"g{i}-", size, each) for i, (size, each) in enumerate(sizes)}
    coming = [member for members in gangs.values() for member in members]
    draw.shuffle(coming)
    while coming:
        world.add(coming.pop())
        if draw.random() < 0.3:
            world.round()
        whole = {name: [world.pods.get(member.uid) for member in members] for name, members in gangs.items()}
        for name, members in whole.items():
            assert len({bool(member and member.node) for member in members}) == 1
            if members[0] and members[0].node and draw.random() < 0.3:
                world.remove(*members)
                del gangs[name]
