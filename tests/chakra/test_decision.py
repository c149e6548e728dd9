"""Which of the nodes that fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra_plugin.scheduling.demand import demand_of
from chakra_plugin.scheduling.filters import admits
from chakra_plugin.scheduling.node_ranking import triple
from starburst.policy.placement import PLACEMENTS
from tests.chakra.builders import World, bound, node, pod


@pytest.mark.parametrize(
    ("placement", "chosen"),
    [("best-fit", "b"), ("first-fit", "a"), ("worst-fit", "c"), ("tetris", "c")],
)
def test_the_placement_policy_chooses_among_the_nodes_that_fit(placement, chosen):
    world = World(node("a"), node("b"), node("c"), node("full"), placement=placement)
    for name, taken in (("a", 4), ("b", 6), ("full", 8)):
        world.add(bound(pod(f"on-{name}", taken), name))
    world.add(pod(gpus=1))
    assert world.round() == {"p": chosen}


def test_ties_go_to_the_node_that_was_known_first():
    world = World(node("b"), node("a"))
    world.add(pod(gpus=1))
    assert world.round() == {"p": "b"}


def test_cpu_pods_leave_gpus_alone_by_going_where_few_are_free():
    world = World(node("gpus"), node("none", gpus=0))
    world.add(pod())
    assert world.round() == {"p": "none"}


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30),
    st.sampled_from(sorted(PLACEMENTS)),
)
def test_a_ranking_that_remembers_chooses_as_one_that_looks_at_every_node(gpus, steps, placement):
    """The remembered ranking against the definition: the smallest score of all nodes that fit."""
    world = World(*(node(f"n{i}", count) for i, count in enumerate(gpus)), placement=placement)
    score = PLACEMENTS[placement]
    for number, (asked, ends) in enumerate(steps):
        running = [view for view in world.pods.values() if view.node]
        if ends and running:
            world.remove(running[number % len(running)])
        new = pod(f"p{number}", asked)
        fitting = [room for room in world.cache.nodes() if admits(demand_of(new), room)]
        best = min(
            fitting,
            key=lambda room: score(
                triple(room.free), triple(room.view.allocatable), triple(dict(demand_of(new).requests))
            ),
            default=None,
        )
        world.add(new)
        assert world.round().get(new.name) == (best.name if best else None)
        if best is None:
            world.remove(new)
