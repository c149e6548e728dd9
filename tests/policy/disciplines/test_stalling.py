"""A server that works inefficiently takes nothing until it is empty."""

from __future__ import annotations

from starburst.policy.disciplines.best_fit import BestFitBoth
from starburst.policy.disciplines.vqs import VirtualQueues
from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit


def test_under_bf_js_a_half_empty_server_is_kept_for_the_large_job() -> None:
    plain, stalling = BestFitBoth(1, 10), BestFitBoth(1, 10, stall=True)
    for discipline in (plain, stalling):
        for job, size in enumerate((4, 4)):
            discipline.arrive(job, size)
        assert discipline.start() == [(0, 0), (1, 0)]
        discipline.arrive(2, 9)
        discipline.leave(0, 0)
        assert discipline.start() == []
        discipline.arrive(3, 4)
    assert plain.start() == [(3, 0)]
    assert stalling.start() == []
    stalling.leave(1, 0)
    assert stalling.start() == [(2, 0)]


def test_under_vqs_bf_a_server_with_a_light_configuration_is_stalled() -> None:
    plain = VirtualQueuesBestFit(1, 10, levels=3)
    stalling = VirtualQueuesBestFit(1, 10, levels=3, stall=0.5)
    for discipline in (plain, stalling):
        for job in range(2):
            discipline.arrive(job, 5)
        assert discipline.start() == [(0, 0), (1, 0)]
        for job in range(2, 8):
            discipline.arrive(job, 2)
        discipline.arrive(8, 5)
        # Two slots for sizes of 5 weigh 2, four for sizes of 2 weigh 24.
        discipline.leave(0, 0)
    assert plain.start() == [(8, 0)]
    assert stalling.start() == []
    stalling.leave(1, 0)
    assert [job for job, _ in stalling.start()] == [2, 3, 4, 5, 6]


def test_a_stalled_server_stays_stalled_until_its_last_job_is_done() -> None:
    for discipline in (
        VirtualQueues(1, 10, levels=3, stall=0.5),
        VirtualQueuesBestFit(1, 10, levels=3, stall=0.5),
    ):
        for job in range(6):
            discipline.arrive(job, 2)
        assert len(discipline.start()) == 5
        for job in range(6, 20):
            discipline.arrive(job, 5)
        discipline.leave(0, 0)
        assert discipline.start() == []
        # Now its configuration would be the heaviest again.
        for job in range(20, 60):
            discipline.arrive(job, 2)
        for job in range(1, 5):
            assert discipline.start() == []
            discipline.leave(job, 0)
        assert len(discipline.start()) == 5


def test_under_vqs_a_server_with_a_light_configuration_is_stalled() -> None:
    plain, stalling = VirtualQueues(1, 10, levels=3), VirtualQueues(1, 10, levels=3, stall=0.5)
    for discipline in (plain, stalling):
        for job in range(2):
            discipline.arrive(job, 5)
        assert discipline.start() == [(0, 0), (1, 0)]
        for job in range(2, 8):
            discipline.arrive(job, 2)
        discipline.arrive(8, 5)
        discipline.leave(0, 0)
    assert plain.start() == [(8, 0)]
    assert stalling.start() == []
    stalling.leave(1, 0)
    assert [job for job, _ in stalling.start()] == [2, 3, 4, 5, 6]
