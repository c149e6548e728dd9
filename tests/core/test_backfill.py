"""EASY backfill: later jobs may start if that does not delay the first."""

from __future__ import annotations

from tests.builders import HOUR, Desk, job, starts


def desk_with_head(*gpus: int, head: int = 4) -> Desk:
    """A one-GPU run until 1 h on the first node, and "head", which has to wait for it."""
    desk = Desk(*gpus, out_of_order=False, backfill=True, waiting="infinite")
    desk.submit(job("running", 1, hours=1))
    desk.started("running")
    desk.submit(job("head", head, hours=1))
    assert desk.phase("head") == "queued"
    return desk


def test_a_job_that_ends_before_the_first_can_start_goes_ahead() -> None:
    desk = desk_with_head(4)
    assert starts(desk.submit(job("a", 2, hours=1))) == ["a"]
    assert desk.why("a", "placed").endswith("passed head, which does not fit yet")


def test_a_job_that_would_delay_the_first_waits() -> None:
    desk = desk_with_head(4)
    assert not desk.submit(job("a", 2, hours=1.01))


def test_a_long_job_goes_ahead_where_there_is_room_beside_the_first() -> None:
    desk = Desk(8, out_of_order=False, backfill=True, waiting="infinite")
    desk.submit(job("running", 4, hours=1))
    desk.started("running")
    desk.submit(job("head", 6, hours=1))
    desk.submit(job("beside", 2, hours=9), job("too much", 2, hours=9), job("short", 1, hours=1))
    assert starts(desk.actions) == ["beside", "short"], "2 GPUs beside the first are 2, not 4"


def test_the_first_starts_when_it_was_promised() -> None:
    desk = desk_with_head(4)
    desk.submit(*(job(f"a{n}", 1, hours=1 - n / 10) for n in range(5)))
    names = [name for name in ("a0", "a1", "a2", "a3", "a4") if desk.phase(name) == "starting"]
    assert names == ["a0", "a1", "a2"]
    desk.started(*names)
    desk.now = HOUR
    desk.tell(desk.end_of("running"), *(desk.end_of(name) for name in names))
    assert desk.phase("head") == "starting"


def test_the_first_may_be_a_gang() -> None:
    desk = Desk(2, 2, out_of_order=False, backfill=True, waiting="infinite")
    desk.submit(job("running", 1, hours=1))
    desk.started("running")
    desk.submit(job("head", gang=(2, 2), hours=1))
    assert desk.phase("head") == "queued"
    assert starts(desk.submit(job("long", 2, hours=3), job("short", 2, hours=0.5))) == ["short"]


def test_a_first_that_can_never_start_holds_up_nobody() -> None:
    desk = desk_with_head(4)
    desk.cancel("head")
    desk.submit(job("never", 9, cloud="never"))
    assert starts(desk.submit(job("a", 3, hours=99))) == ["a"]
