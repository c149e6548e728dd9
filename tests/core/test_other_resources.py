"""Whatever a node can run out of is counted: local disk, devices by name, host ports, the number of pods."""

from __future__ import annotations

from dataclasses import replace

from starburst.core.model.events import NodesChanged
from starburst.domain.job import Job
from starburst.domain.node import Node
from starburst.domain.resources import HOST_PORT, Others
from tests.builders import Desk, job, node


def counted(name: str, **others: int) -> Node:
    plain = node(name, 8)
    listed = tuple(sorted({"pods": 110, **others}.items()))
    return replace(plain, capacity=replace(plain.capacity, others=listed))


def asking(name: str, *others: tuple[str, int], tasks: int = 1) -> Job:
    wanted: Others = tuple(sorted(others))
    plain = job(name, gang=[1] * tasks, cloud="never")
    return replace(plain, tasks=tuple(replace(task, others=wanted) for task in plain.tasks))


def desk_of(*nodes: Node) -> Desk:
    desk = Desk()
    desk.tell(NodesChanged(nodes))
    return desk


def test_a_second_job_waits_for_the_disk_of_the_first() -> None:
    desk = desk_of(counted("n0", **{"ephemeral-storage": 100}))
    desk.submit(asking("a", ("ephemeral-storage", 60)), asking("b", ("ephemeral-storage", 60)))
    assert (desk.nodes_of("a"), desk.nodes_of("b")) == (["n0"], [])
    desk.ended("a")
    assert desk.nodes_of("b") == ["n0"]


def test_what_no_node_lists_is_never_free() -> None:
    desk = desk_of(counted("n0"), counted("n1", **{"example.com/fpga": 2}))
    desk.submit(asking("a", ("example.com/fpga", 2)), asking("b", ("example.com/nic", 1)))
    assert (desk.nodes_of("a"), desk.nodes_of("b")) == (["n1"], [])
    assert not desk.scheduler.state.capacity.ever(asking("b", ("example.com/nic", 1)))


def test_two_tasks_with_one_host_port_are_on_two_nodes() -> None:
    desk = desk_of(counted("n0"), counted("n1"))
    desk.submit(asking("a", (f"{HOST_PORT}TCP/80", 1), tasks=2), asking("b", (f"{HOST_PORT}TCP/80", 1)))
    assert sorted(desk.nodes_of("a")) == ["n0", "n1"]
    assert desk.nodes_of("b") == []


def test_a_node_takes_as_many_pods_as_it_says() -> None:
    desk = desk_of(replace(counted("n0"), capacity=replace(counted("n0").capacity, others=(("pods", 2),))))
    desk.submit(asking("a", tasks=2), asking("b"))
    assert (len(desk.nodes_of("a")), desk.nodes_of("b")) == (2, [])


def test_a_node_that_shrinks_keeps_what_runs_on_it() -> None:
    desk = desk_of(counted("n0", **{"ephemeral-storage": 100}))
    desk.submit(asking("a", ("ephemeral-storage", 60)))
    desk.tell(NodesChanged((counted("n0", **{"ephemeral-storage": 50}),)))
    desk.submit(asking("b"))
    assert (desk.nodes_of("a"), desk.nodes_of("b")) == (["n0"], ["n0"])
