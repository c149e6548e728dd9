"""Elastic gangs: after a lost node they start again with the tasks that fit on what is left."""

from __future__ import annotations

from starburst.core.model.events import NodesChanged, RunEnd, SiteSynced
from starburst.domain.job import Site
from starburst.domain.node import Node
from starburst.store.rows import job_progress
from tests.builders import HOUR, Desk, job, node, nodes, starts


def running(*gpus: int, least: int = 1) -> Desk:
    """A desk of some nodes, on each of the first three of which a task of the elastic gang "a" runs."""
    desk = Desk(*gpus)
    desk.submit(job("a", gang=gpus[:3], least_tasks=least))
    desk.started("a")
    return desk


def lose(desk: Desk, *left: Node) -> list[str]:
    """Only these nodes are left, and the run of "a" is lost; which jobs start."""
    return starts(desk.tell(NodesChanged(left), desk.end_of("a", RunEnd.LOST)))


def test_it_starts_again_at_once_on_the_nodes_that_are_left() -> None:
    desk = running(4, 4, 4)
    assert lose(desk, *nodes(4, 4)) == ["a"]
    assert (desk.nodes_of("a"), desk["a"].attempt, len(desk["a"].job.tasks)) == (["n0", "n1"], 2, 3)
    assert desk.why("a", "placed") == (
        "starts on n0, n1 with 2 of its 3 tasks, as it is elastic: 8 GPUs free there after 0 s"
    )


def test_lists_say_what_the_smaller_attempt_has() -> None:
    desk = running(4, 4, 4)
    assert job_progress(desk["a"])["need"] == "12 GPUs"
    lose(desk, *nodes(4, 4))
    assert job_progress(desk["a"])["need"] == "8 GPUs, 2 of its 3 tasks"
    desk.tell(desk.end_of("a", RunEnd.LOST), NodesChanged(nodes(2)))
    assert (desk.phase("a"), job_progress(desk["a"])["need"]) == ("queued", "12 GPUs")


def test_it_starts_whole_where_that_fits() -> None:
    desk = running(4, 4, 4, 4)
    assert lose(desk, *nodes(4, 4, 4)) == ["a"]
    assert desk.nodes_of("a") == ["n0", "n1", "n2"]
    assert "elastic" not in desk.why("a", "placed")


def test_below_its_least_number_of_tasks_it_waits_for_a_whole_gang() -> None:
    desk = running(4, 4, 4, least=2)
    assert lose(desk, node("n0")) == []
    assert (desk.phase("a"), desk["a"].deadline) == ("queued", HOUR)
    assert starts(desk.tell(NodesChanged(nodes(4, 4)))) == [], (
        "that it would fit smaller counts at the loss alone"
    )
    assert starts(desk.tell(NodesChanged(nodes(4, 4, 4)))) == ["a"]


def test_a_gang_that_is_not_elastic_waits() -> None:
    desk = running(4, 4, 4, least=0)
    assert lose(desk, *nodes(4, 4)) == []


def test_it_does_not_start_smaller_at_first() -> None:
    desk = Desk(4, 4)
    desk.submit(job("busy", 4), job("a", gang=(4, 4), least_tasks=1))
    assert desk.phase("a") == "queued"


def test_after_the_next_loss_it_is_whole_again_if_there_is_room() -> None:
    desk = running(4, 4, 4)
    lose(desk, *nodes(4, 4))
    desk.started("a")
    assert lose(desk, *nodes(4, 4, 4)) == ["a"]
    assert len(desk.nodes_of("a")) == 3


def test_it_goes_before_jobs_that_wait_for_what_it_held() -> None:
    desk = running(4, 4, 4)
    desk.submit(job("b", 4))
    assert lose(desk, *nodes(4, 4)) == ["a"]
    assert desk.phase("b") == "queued"


def test_what_it_held_is_free_when_it_ends() -> None:
    desk = running(4, 4, 4)
    lose(desk, *nodes(4, 4))
    desk.started("a")
    desk.ended("a")
    assert (desk.phase("a"), desk.free("n0"), desk.free("n1")) == ("succeeded", 4, 4)


def test_a_gang_that_is_lost_in_the_cloud_is_rented_whole_again() -> None:
    desk = Desk(4)
    desk.submit(job("a", gang=(4, 4), least_tasks=1))
    desk.wait(60)
    desk.offload("a")
    assert starts(desk.ended("a", RunEnd.LOST)) == [], "a task of it would fit on the cluster"
    assert (desk.phase("a"), desk.free()) == ("offloading", 4)


def test_after_a_restart_it_starts_smaller_once_the_cluster_is_known() -> None:
    desk = running(4, 4)
    desk.scheduler.rest()
    assert starts(desk.tell(desk.end_of("a", RunEnd.LOST))) == []
    assert starts(desk.tell(NodesChanged(nodes(4)), SiteSynced(Site.CLUSTER, frozenset()))) == ["a"]
    assert len(desk.nodes_of("a")) == 1
