"""Rules of jobs and taints of nodes decide where a job may go, and whether it fits at all."""

from __future__ import annotations

from typing import Any

from starburst.core.model.events import NodesChanged, RunEnd
from starburst.domain.constraints import NODE_NAME, Requirement, Rules, Taint, Toleration
from starburst.domain.job import Job
from starburst.domain.node import Node
from tests.builders import HOUR, Desk, job, node, starts

GPU = Taint("nvidia.com/gpu", "present", "NoSchedule")
TOLERANT = Rules(tolerations=(Toleration("nvidia.com/gpu", "Exists"),))
#: On the tainted node and nowhere else.
TOLERANT_OF_N0 = Rules(((Requirement(NODE_NAME, "In", ("n0",)),),), TOLERANT.tolerations)
ON_SSD = Rules(((Requirement("disk", "In", ("ssd", "nvme")),),))


def desk_of(*nodes: Node, **settings: Any) -> Desk:
    desk = Desk(**settings)
    desk.tell(NodesChanged(nodes))
    return desk


def test_a_tainted_node_takes_only_jobs_that_tolerate_it() -> None:
    desk = desk_of(node("n0", 4, taints=(GPU,)), node("n1", 4))
    desk.submit(job("a", 4), job("b", 4, rules=TOLERANT))
    assert (desk.nodes_of("a"), desk.nodes_of("b")) == (["n1"], ["n0"])


def test_a_taint_that_is_only_a_wish_keeps_nobody_away() -> None:
    desk = desk_of(node("n0", 4, taints=(Taint("old", "", "PreferNoSchedule"),)))
    desk.submit(job("a"))
    assert desk.nodes_of("a") == ["n0"]


def test_affinity_chooses_among_labels_and_names() -> None:
    desk = desk_of(node("n0", 4, labels=(("disk", "hdd"),)), node("n1", 4, labels=(("disk", "nvme"),)))
    named = Rules(((Requirement(NODE_NAME, "In", ("n0",)),),))
    desk.submit(job("a", rules=ON_SSD), job("b", rules=named))
    assert (desk.nodes_of("a"), desk.nodes_of("b")) == (["n1"], ["n0"])


def test_affinity_and_node_selector_must_both_agree() -> None:
    desk = desk_of(node("n0", 4, labels=(("disk", "ssd"),)), node("n1", 4, labels=(("zone", "b"),)))
    desk.submit(job("a", rules=ON_SSD, node_selector=(("zone", "b"),), cloud="never"))
    assert desk.phase("a") == "queued"


def test_a_gang_is_placed_on_admitted_nodes_or_not_at_all() -> None:
    desk = desk_of(node("n0", 4, taints=(GPU,)), node("n1", 4))
    desk.submit(job("a", gang=(4, 4)), job("b", gang=(4, 4), rules=TOLERANT))
    assert desk.phase("a") == "offloading", "it can never fit"
    assert desk.nodes_of("b") == ["n0", "n1"]


def test_a_job_that_no_node_admits_can_never_fit() -> None:
    desk = desk_of(node("n0", 4, taints=(GPU,)))
    desk.submit(job("a"), job("b", rules=TOLERANT))
    assert (desk.phase("a"), desk.phase("b")) == ("offloading", "starting")


def test_jobs_that_differ_in_rules_only_do_not_block_one_another() -> None:
    desk = desk_of(node("n0", 1, taints=(GPU,)), node("n1", 1))
    desk.submit(job("busy"), job("a"), job("b", rules=TOLERANT))
    assert (desk.phase("a"), desk.nodes_of("b")) == ("queued", ["n0"])


def test_a_taint_that_goes_lets_waiting_jobs_in() -> None:
    desk = desk_of(node("n0", 4, taints=(GPU,)))
    desk.submit(job("a", cloud="never"))
    assert desk.phase("a") == "queued"
    assert starts(desk.tell(NodesChanged((node("n0", 4),)))) == ["a"]


def test_a_taint_that_comes_leaves_what_runs() -> None:
    desk = desk_of(node("n0", 4))
    desk.submit(job("a"))
    desk.started("a")
    assert not desk.tell(NodesChanged((node("n0", 4, taints=(GPU,)),)))
    desk.ended("a", RunEnd.EXITED)
    assert (desk.phase("a"), desk.free()) == ("succeeded", 4)


def test_a_job_kept_off_the_node_that_comes_free_in_time_is_hopeless() -> None:
    def stays(mine: Rules) -> bool:
        desk = desk_of(node("n0", 4, taints=(GPU,)), node("n1", 4), hopeless="leave")
        desk.submit(
            Job("soon", "soon", job(gang=(4,)).tasks, runtime_estimate_s=HOUR / 2, rules=TOLERANT_OF_N0),
            job("late", 4, hours=3),
        )
        desk.started("soon", "late")
        desk.submit(job("a", 4, rules=mine))
        return desk.phase("a") == "queued"

    assert stays(TOLERANT)
    assert not stays(Rules())
