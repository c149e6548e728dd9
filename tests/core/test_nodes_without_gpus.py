"""Jobs without GPUs use nodes without GPUs before they leave; nodes with GPUs stay free for GPU jobs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.events import CancelRequested, JobSubmitted, NodesChanged
from tests.builders import Desk, job, node, offer, starts

CHEAP = offer("cpu", 0, 0.1)


def mixed(*, plain_cpus: float = 4, **settings: object) -> Desk:
    """A node with GPUs, listed first, and one without."""
    desk = Desk(offers=[CHEAP, offer()], **settings)
    desk.tell(NodesChanged((node("gpu", 4), node("plain", 0, cpus=plain_cpus))))
    return desk


def test_a_job_without_gpus_starts_on_a_node_without_gpus() -> None:
    desk = mixed()
    assert starts(desk.submit(job("prep", 0, cpus=2))) == ["prep"]
    assert [slot.where for slot in desk["prep"].slots] == ["plain"]


def test_each_job_of_an_array_is_promised_room_of_its_own() -> None:
    """Four CPUs hold two of these jobs; the others leave, and none takes CPUs from the node with GPUs."""
    desk = mixed()
    desk.submit(*(job(f"prep-{n}", 0, cpus=2) for n in range(4)))
    assert [desk.phase(f"prep-{n}") for n in range(4)] == ["starting"] * 2 + ["offloading"] * 2
    assert "it needs no GPU" in desk.why("prep-2", "offloaded")


def test_a_job_that_the_nodes_without_gpus_cannot_hold_leaves_at_once() -> None:
    desk = mixed()
    desk.submit(job("prep", 0, cpus=5))
    assert desk.phase("prep") == "offloading"


def test_room_promised_to_a_job_that_is_cancelled_at_once_is_given_back() -> None:
    desk = mixed()
    desk.tell(JobSubmitted(job("gone", 0, cpus=4)), CancelRequested("gone"))
    assert starts(desk.submit(job("prep", 0, cpus=4))) == ["prep"]


def test_a_job_that_may_not_leave_takes_a_node_with_gpus_when_the_others_are_full() -> None:
    desk = mixed()
    desk.submit(job("first", 0, cpus=4, cloud="never"), job("second", 0, cpus=4, cloud="never"))
    assert [desk[name].slots[0].where for name in ("first", "second")] == ["plain", "gpu"]


@settings(max_examples=40, deadline=None)
@given(
    plain=st.lists(st.integers(1, 8), max_size=3),
    sizes=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8)), min_size=1, max_size=8),
)
def test_no_job_leaves_while_a_node_without_gpus_has_room_for_it(
    plain: list[int], sizes: list[tuple[int, int]]
) -> None:
    """A CPU-only job leaves exactly if no such node has room, and never takes CPUs of a node with GPUs."""
    desk = Desk(offers=[CHEAP, offer()])
    there = [node(f"plain-{n}", 0, cpus=cpus) for n, cpus in enumerate(plain)]
    desk.tell(NodesChanged((node("gpu", 16), *there)))
    capacity = desk.scheduler.state.capacity
    for n, (gpus, cpus) in enumerate(sizes):
        name, had_room = f"j{n}", any(capacity.free(it.name).cpus >= cpus for it in there)
        desk.submit(job(name, gpus, cpus=cpus))
        if gpus:
            assert all(slot.where == "gpu" for slot in desk[name].slots)
        elif had_room:
            assert desk[name].slots[0].where.startswith("plain")
        else:
            assert desk.phase(name) == "offloading"
