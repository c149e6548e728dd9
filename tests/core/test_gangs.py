"""Gangs on the cluster: all tasks or none."""

from __future__ import annotations

from starburst.core.model.events import NodesChanged
from tests.builders import Desk, job, nodes, starts


def test_a_gang_spreads_over_nodes_when_one_cannot_hold_it() -> None:
    desk = Desk(8, 8, 8)
    desk.submit(job("a", gang=(8, 8, 2)))
    assert desk.nodes_of("a") == ["n0", "n1", "n2"]
    assert [desk.free(name) for name in ("n0", "n1", "n2")] == [0, 0, 6]


def test_tasks_of_a_gang_share_a_node_but_not_its_gpus() -> None:
    desk = Desk(4)
    desk.submit(job("a", gang=(1, 1, 2)))
    assert desk.nodes_of("a") == ["n0", "n0", "n0"]
    assert desk.free() == 0


def test_a_gang_that_does_not_fit_whole_takes_nothing() -> None:
    desk = Desk(4, 4)
    desk.submit(job("busy", 1))
    assert not desk.submit(job("a", gang=(4, 4)))
    assert sorted([desk.free("n0"), desk.free("n1")]) == [3, 4]
    assert starts(desk.ended("busy")) == ["a"]


def test_when_a_gang_ends_all_its_room_is_free() -> None:
    desk = Desk(4, 4)
    desk.submit(job("a", gang=(4, 4)))
    desk.started("a")
    desk.ended("a")
    assert [desk.free("n0"), desk.free("n1")] == [4, 4]


def test_a_gang_larger_than_the_cluster_leaves_at_once() -> None:
    desk = Desk(4, 4)
    desk.submit(job("a", gang=(4, 4, 4)))
    assert desk.phase("a") == "offloading"


def test_a_node_that_comes_lets_a_waiting_gang_start() -> None:
    desk = Desk(4)
    desk.submit(job("a", gang=(4, 4), cloud="never"))
    assert desk.phase("a") == "queued"
    assert starts(desk.tell(NodesChanged(nodes(4, 4)))) == ["a"]
