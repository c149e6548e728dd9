"""Images on machines: what is there is nearer, what is not is pulled while its machine comes up."""

from __future__ import annotations

import pytest

from starburst.core.model.actions import PrepareRun
from starburst.core.model.events import ImagesReported, JobsNotKeptApart
from starburst.core.model.throughput import Speeds
from starburst.core.views.restoring import restore
from starburst.policy.image_pulls import UNKNOWN_S
from tests.builders import Desk, job, launches, offer, snapshot

BIG = offer("big", 4, 3)
TORCH = "pytorch/pytorch:2.4"


def two_machines(*images: tuple[tuple[str, float | None], ...]) -> Desk:
    """Two machines that are needed for long; the first is the tighter fit. Each reports images."""
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(job("a", 3, cloud="only", hours=9), job("b", 2, cloud="only", hours=9))
    for name in ("a", "b"):
        desk.offload(name)
    for number, reported in enumerate(images, 1):
        desk.tell(ImagesReported(f"i-{number:06d}", reported))
    return desk


def joined(desk: Desk, image: str = TORCH) -> str:
    """The machine that a short job with an image joins."""
    desk.submit(job("c", 1, cloud="only", hours=1, image=image))
    return desk.nodes_of("c")[0]


def test_the_tightest_fit_is_joined_while_no_machine_tells_of_its_images() -> None:
    assert joined(two_machines()) == "i-000001"


def test_a_machine_that_has_the_image_is_nearer_and_the_log_says_so() -> None:
    desk = two_machines((), ((TORCH, 60.0),))
    assert joined(desk) == "i-000002"
    assert desk.why("c", "offloaded").endswith("which b needs for longer anyway and has its image")


def test_where_no_machine_has_it_the_log_says_how_long_its_pull_takes() -> None:
    desk = two_machines((), ())
    assert joined(desk) == "i-000001"
    assert desk.why("c", "offloaded").endswith("; its image is not there: about 2 min to pull it")


def test_a_job_without_an_image_joins_the_tightest_fit_whatever_is_there() -> None:
    desk = two_machines((), ((TORCH, 60.0),))
    assert joined(desk, "") == "i-000001"
    assert desk.why("c", "offloaded").endswith("which a needs for longer anyway")


def test_the_seconds_of_a_pull_are_learnt_once_and_outlive_a_restart() -> None:
    desk = two_machines()
    for _ in range(3):
        desk.tell(ImagesReported("i-000001", ((TORCH, 40.0), ("was:there", None))))
    desk.tell(ImagesReported("i-000002", ((TORCH, 20.0),)))
    pulls = desk.scheduler.state.fleet.speeds.pulls
    assert (pulls.expected_s(TORCH), pulls.expected_s("was:there")) == (30.0, UNKNOWN_S)
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler)).state.fleet
    assert again.instances["i-000001"].images == (TORCH, "was:there")
    known = Speeds.restored(desk.scheduler.state.fleet.speeds.snapshot())
    assert known.pulls.expected_s(TORCH) == 30.0


def test_a_report_of_a_machine_that_has_ended_changes_nothing() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.tell(ImagesReported("i-000009", ((TORCH, 40.0),)))
    assert desk.scheduler.state.fleet.speeds.pulls.expected_s(TORCH) == UNKNOWN_S


def test_an_image_is_pulled_while_the_machine_of_its_job_comes_up() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    told = desk.submit(job("a", 2, cloud="only", image=TORCH), job("b", 1, cloud="only"))
    (prepares,) = [action for action in told if isinstance(action, PrepareRun)]
    assert (prepares.job_id, prepares.attempt) == ("a", 1)
    assert {slot.where for slot in prepares.slots} == {"i-000001"}
    desk.ready("i-000001")
    desk.started("a", "b")
    later = desk.submit(job("c", 1, cloud="only", hours=0.1, image=TORCH))
    assert not [action for action in later if isinstance(action, PrepareRun)]


@pytest.mark.parametrize(("pull_s", "moves"), [(60.0, True), (3600.0, False)])
def test_a_move_that_saves_less_than_the_pull_of_its_image_costs_is_left_out(
    pull_s: float, moves: bool
) -> None:
    """The move saves $2 an hour for 1.5 hours; both machines, $4 an hour, are paid for meanwhile."""
    desk = Desk(offers=[BIG, offer("small", 1, 1)], packer="eva", pack_period_s=600.0)
    desk.submit(
        job("b", 1, cloud="only", hours=2.5, checkpoint=True, image=TORCH), job("a", 3, cloud="only", hours=1)
    )
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.scheduler.state.fleet.speeds.pulls.observe(TORCH, pull_s)
    desk.now = 3600.0
    desk.tell(desk.end_of("a"))
    assert bool(launches(desk.actions)) is moves
    assert bool([action for action in desk.actions if isinstance(action, PrepareRun)]) is moves


def test_a_run_on_a_machine_that_keeps_nobody_apart_says_so_once() -> None:
    desk = Desk(offers=[BIG], packer="eva")
    desk.submit(job("a", 1, cloud="only", hours=9), job("b", 1, cloud="only", hours=9))
    desk.ready("i-000001")
    desk.started("a")
    desk.tell(JobsNotKeptApart("i-000001", "its user cannot become root"))
    desk.started("b")
    why = "; jobs there are not kept apart from it: its user cannot become root"
    assert [desk.why(name, "started").endswith(why) for name in "ab"] == [False, True]
    desk.tell(JobsNotKeptApart("i-000009", "it has ended"))
