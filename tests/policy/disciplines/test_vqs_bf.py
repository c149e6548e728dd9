"""How VQS-BF fills a server, by example."""

from __future__ import annotations

from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit


def started(sizes: list[int]) -> list[int]:
    """Sizes in the order they start on one empty server of 100, with three levels."""
    discipline = VirtualQueuesBestFit(1, 100, levels=3)
    for job, size in enumerate(sizes):
        discipline.arrive(job, size)
    return [sizes[job] for job, _ in discipline.start()]


def test_a_type_gets_no_more_than_its_slots_before_the_largest_of_all() -> None:
    assert started([18] * 10 + [26]) == [18, 18, 18, 18, 26]


def test_type_1_comes_first_where_the_configuration_has_a_slot_for_it() -> None:
    assert started([20] * 2 + [55] * 9) == [55, 20, 20]


def test_a_larger_job_waits_where_the_configuration_has_no_slot_for_it() -> None:
    assert started([90, 18, 17, 18]) == [18, 18, 17]
