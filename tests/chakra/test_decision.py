"""Chakra's decision: filter, score, and a message that counts who rejected whom."""

from __future__ import annotations

import pytest

from chakra_plugin.decision import Candidate, choose
from starburst.domain.node import Node
from starburst.domain.resources import Resources


def candidate(name: str, free_gpus: int, *, gpu_type: str = "V100", labels=(), schedulable=True) -> Candidate:
    node = Node(name, Resources.of(8, 96, 768, gpu_type), tuple(labels), schedulable)
    return Candidate(node, Resources.of(free_gpus, 12 * free_gpus, 96 * free_gpus, gpu_type))


ONE = Resources.of(1, 4, 16)


@pytest.mark.parametrize(
    ("placement", "chosen"),
    [("best-fit", "b"), ("first-fit", "a"), ("worst-fit", "c"), ("tetris", "c")],
)
def test_the_placement_policy_chooses_among_the_nodes_that_fit(placement, chosen):
    nodes = [candidate("a", 4), candidate("b", 2), candidate("c", 8), candidate("full", 0)]
    assert choose(ONE, (), nodes, placement).node == chosen


def test_ties_go_to_the_first():
    assert choose(ONE, (), [candidate("a", 4), candidate("b", 4)]).node == "a"


def test_the_message_counts_every_reason():
    nodes = [
        candidate("full", 0),
        candidate("cordoned", 8, schedulable=False),
        candidate("other", 8, gpu_type="A100"),
        candidate("small", 1),
    ]
    asked = Resources.of(2, 24, 192, "V100")
    decision = choose(asked, (), nodes)
    assert decision.node is None
    assert decision.message == (
        "0/4 nodes are available: 2 Insufficient cpu, 2 Insufficient memory, 2 Insufficient nvidia.com/gpu, "
        "1 node(s) had no V100 GPU, 1 node(s) were unschedulable."
    )


def test_a_selector_must_match():
    zone = ("zone", "a")
    nodes = [candidate("there", 8, labels=[zone]), candidate("elsewhere", 1)]
    assert choose(ONE, [zone], nodes).node == "there"
    message = choose(ONE, [("zone", "b")], nodes).message
    assert message == "0/2 nodes are available: 2 node(s) didn't match Pod's node selector."


def test_no_nodes_at_all():
    assert choose(ONE, (), []).message == "0/0 nodes are available: there are none."
