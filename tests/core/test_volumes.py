"""The claims of a job choose among nodes, or keep it out of the queue, as its cluster says."""

from __future__ import annotations

import pytest

from starburst.core.model.events import InstanceUnfit, JobSubmitted, NodesChanged, RunEnd, VolumesRuled
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.domain.constraints import NODE_NAME, Requirement, Term
from starburst.policy.disciplines.registry import DISCIPLINES
from tests.builders import HOUR, Desk, job, node, snapshot

ANYWHERE: tuple[Term, ...] = ((Requirement(NODE_NAME, "Exists"),),)
UNBOUND = "waits for claim data: it is not bound"


def on(*names: str) -> tuple[Term, ...]:
    return ((Requirement(NODE_NAME, "In", names),),)


def desk_of(**settings: object) -> Desk:
    desk = Desk(**settings)
    desk.tell(NodesChanged((node("n0", 4), node("n1", 4))))
    return desk


def submit(desk: Desk, name: str, rule: VolumesRuled, gpus: int = 4, **more: object) -> None:
    """As the daemon does: the rule is in the step of the submission."""
    desk.tell(JobSubmitted(job(name, gpus, **more)), rule)


def test_a_job_goes_where_its_volumes_are() -> None:
    desk = desk_of()
    submit(desk, "a", VolumesRuled("a", on("n1")))
    submit(desk, "b", VolumesRuled("b", on("n1")))
    submit(desk, "c", VolumesRuled("c", ANYWHERE))
    assert [desk.nodes_of(name) for name in "abc"] == [["n1"], [], ["n0"]]
    desk.ended("a")
    assert desk.nodes_of("b") == ["n1"]


def test_a_job_without_a_bound_claim_is_held_with_the_reason_and_others_have_its_gpus() -> None:
    desk = desk_of()
    submit(desk, "a", VolumesRuled("a", ANYWHERE, UNBOUND))
    desk.submit(job("b", 4), job("c", 4))
    assert [desk.nodes_of(name) for name in "bc"] == [["n0"], ["n1"]]
    assert desk.phase("a") == "blocked"
    assert UNBOUND in desk["a"].message
    assert UNBOUND in explain(desk.scheduler.state, desk["a"], str).sentence
    desk.wait(10 * HOUR)
    assert desk.phase("a") == "blocked", "it neither waits nor leaves"
    desk.tell(VolumesRuled("a", on("n0")))
    assert desk.phase("a") == "queued"
    desk.ended("b")
    assert desk.nodes_of("a") == ["n0"]


def test_a_claim_that_is_lost_holds_a_queued_job_and_one_whose_run_is_taken_away() -> None:
    desk = desk_of()
    submit(desk, "a", VolumesRuled("a", on("n0")))
    submit(desk, "b", VolumesRuled("b", on("n0")), cloud="never")
    desk.tell(VolumesRuled("a", ANYWHERE, UNBOUND), VolumesRuled("b", ANYWHERE, UNBOUND))
    assert (desk.phase("a"), desk.phase("b")) == ("starting", "blocked")
    desk.ended("a", RunEnd.DISPLACED, None)
    assert desk.phase("a") == "blocked"
    desk.tell(VolumesRuled("a", on("n1")))
    assert desk.nodes_of("a") == ["n1"]


def test_a_job_that_pauses_keeps_its_pause() -> None:
    desk = desk_of()
    submit(desk, "a", VolumesRuled("a", on("n0")))
    desk.ended("a", RunEnd.NOT_STARTED, None)
    desk.tell(VolumesRuled("a", ANYWHERE, UNBOUND))
    desk.tell(VolumesRuled("a", on("n1")))
    assert desk.phase("a") == "blocked"
    desk.wait(20.0)
    assert desk.nodes_of("a") == ["n1"]


def test_a_pause_that_is_over_does_not_start_a_job_without_its_volume() -> None:
    desk = desk_of()
    submit(desk, "a", VolumesRuled("a", on("n0")))
    desk.ended("a", RunEnd.NOT_STARTED, None)
    desk.tell(VolumesRuled("a", ANYWHERE, UNBOUND))
    desk.wait(20.0)
    assert (desk.phase("a"), UNBOUND in desk["a"].message) == ("blocked", True)


def test_a_hold_and_a_release_come_before_the_claim() -> None:
    desk = desk_of()
    submit(desk, "a", VolumesRuled("a", ANYWHERE, UNBOUND))
    desk.hold("a")
    desk.tell(VolumesRuled("a", on("n0")))
    assert desk.phase("a") == "held"
    desk.release("a")
    assert desk.nodes_of("a") == ["n0"]


def test_a_job_for_the_cloud_alone_does_not_mind() -> None:
    desk = desk_of()
    submit(desk, "a", VolumesRuled("a", ANYWHERE, UNBOUND), cloud="only")
    assert desk.phase("a") != "blocked"


@pytest.mark.parametrize("order", ["fifo", "bf-js"])
def test_what_a_claim_demands_survives_a_restart(order: str) -> None:
    desk = desk_of(order=order)
    submit(desk, "a", VolumesRuled("a", on("n0")))
    submit(desk, "b", VolumesRuled("b", on("n0")))
    submit(desk, "c", VolumesRuled("c", ANYWHERE, UNBOUND))
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    records = again.state.jobs
    assert (records["b"].job.volume_affinity, records["c"].awaits_volumes) == (on("n0"), UNBOUND)
    assert records["c"].phase.value == "blocked"


def test_a_job_whose_volumes_choose_anew_keeps_no_other_job_from_its_turn() -> None:
    """It leaves the jobs of its shape without having been their first, and comes back to others."""
    desk = Desk(4, 4, 4)
    desk.submit(*(job(name, 4, cloud="never") for name in "xyz"))
    for name in "abcd":
        submit(desk, name, VolumesRuled(name, ANYWHERE), cloud="never")
    desk.tell(VolumesRuled("b", on("n2")))
    desk.ended("x")
    desk.ended("y")
    assert [desk.nodes_of(name) for name in "abcd"] == [["n0"], [], ["n1"], []]
    desk.cancel("b")
    desk.ended("a")
    assert desk.nodes_of("d") == ["n0"]


def test_a_job_that_cannot_be_tried_again_in_place_waits_for_its_claim() -> None:
    desk = Desk(4)
    desk.submit(job("x", 4, cloud="never"))
    submit(desk, "a", VolumesRuled("a", ANYWHERE), retries=5, max_wait_s=0.0)
    desk.wait(0)
    desk.offload("a")
    desk.wait(100)
    desk.ended("a", RunEnd.EXITED, 1)
    desk.tell(VolumesRuled("a", ANYWHERE, UNBOUND), InstanceUnfit(desk.instances[0], "its disk is full"))
    desk.wait(60)
    assert (desk.phase("a"), desk["a"].slots) == ("blocked", ())
    assert UNBOUND in desk["a"].message


def test_a_job_that_comes_back_from_a_launch_waits_for_its_claim() -> None:
    desk = Desk(4, short_job_s=600.0)
    submit(desk, "a", VolumesRuled("a", ANYWHERE, UNBOUND), 2, hours=0.1)
    assert desk.phase("a") == "offloading"
    desk.no_launch(desk.instances[0])
    assert (desk.phase("a"), desk.nodes_of("a")) == ("blocked", [])


@pytest.mark.parametrize("order", sorted(DISCIPLINES))
def test_a_run_counts_for_a_discipline_by_what_its_volumes_permit_now(order: str) -> None:
    """A restart counts it so, and would decide otherwise than the scheduler that went on."""
    desk = desk_of(order=order)  # each step is validated beside one that is rebuilt
    desk.submit(job("a", 2), job("b", 2))
    for rule in (on("n0", "n1"), ANYWHERE, (), on("n1"), ()):
        desk.tell(VolumesRuled("a", rule), VolumesRuled("b", on("n1")))
        assert (desk.phase("a"), desk.phase("b")) == ("starting", "starting")
    desk.ended("a")
    desk.ended("b")
    desk.submit(job("c", 4), job("d", 4))
    assert sorted(desk.nodes_of("c") + desk.nodes_of("d")) == ["n0", "n1"]
