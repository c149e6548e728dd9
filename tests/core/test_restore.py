"""A scheduler rebuilt from its snapshot goes on where it was; what nobody confirms is lost."""

from __future__ import annotations

from dataclasses import replace

from starburst.core.model.events import (
    InstanceUnfit,
    InstanceUnreachable,
    JobSubmitted,
    RunEnd,
    RunEnded,
    SiteSynced,
    Tick,
)
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.domain.job import Phase, Site
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, returns, snapshot, starts, stops

NOTHING: frozenset[tuple[str, int]] = frozenset()


def reborn(desk: Desk) -> Scheduler:
    """The scheduler after a crash."""
    scheduler = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    validate(scheduler.state)
    return scheduler


def test_an_empty_snapshot_is_a_new_scheduler() -> None:
    assert not reborn(Desk()).state.jobs


def test_the_books_go_on() -> None:
    desk = Desk(4)
    desk.submit(job("a", 2), job("b", cloud="only"))
    desk.offload("b")
    desk.now = 3600
    desk.ended("b")
    desk.gone("i-000001")
    again = reborn(desk)
    assert again.state.fleet.settled == desk.scheduler.state.fleet.settled
    assert again.state.factor == desk.scheduler.state.factor
    assert again.state.load == desk.scheduler.state.load
    assert (again.state.arrivals, again.state.decided, again.state.fleet.launches) == (
        2,
        desk.scheduler.state.decided,
        1,
    )
    assert again.state.capacity.free("n0").gpus == 2


def test_a_waiting_job_keeps_its_place_and_its_deadline() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a"), job("b"))
    again = reborn(desk)
    assert [record.id for record in again.state.queue] == ["a", "b"]
    assert again.next_wakeup() == 3600


def test_after_a_restart_under_another_order_those_that_wait_are_in_that_order_too() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), *(job(name, cloud="never", hours=4) for name in "abc"))
    desk.submit(job("short", cloud="never", hours=1), job("urgent", cloud="never", hours=4, priority=9))
    for order, first in (("priority", "urgent"), ("sjf", "short"), ("fair", "a"), ("fifo", "a")):
        again = restore(replace(desk.scheduler.state.settings, order=order), snapshot(desk.scheduler))
        validate(again.state)
        again.handle(JobSubmitted(job("new", cloud="never", hours=4)), 1)
        names = [record.id for record in again.state.queue]
        assert (names[0], names[-1]) == (first, "new")
        kept = again.take_changes().jobs
        assert order == "fifo" or kept["a"].order_key == again.state.jobs["a"].order_key
        assert restore(again.state.settings, snapshot(again)).state.queue.first().id == first


def test_a_pause_of_an_offer_survives() -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only"))
    desk.no_launch("i-000001")
    again = reborn(desk)
    assert again.state.fleet.paused == {"small": 300}
    assert launches(again.handle((), again.next_wakeup())) == ["small"]


def test_runs_that_no_site_knows_are_lost_and_those_it_knows_go_on() -> None:
    desk = Desk(4)
    desk.submit(job("kept"), job("gone"))
    desk.started("kept", "gone")
    again = reborn(desk)
    actions = again.handle(SiteSynced(Site.CLUSTER, frozenset({("kept", 1)})), 1)
    assert starts(actions) == ["gone"]
    assert again.state.jobs["kept"].phase is Phase.RUNNING
    assert (again.state.jobs["gone"].attempt, again.state.jobs["gone"].losses) == (2, 1)
    validate(again.state)


def test_a_site_speaks_only_for_its_own_runs() -> None:
    desk = Desk(4)
    desk.submit(job("home"), job("away", cloud="only"))
    desk.started("home")
    desk.offload("away")
    again = reborn(desk)
    again.handle(SiteSynced(Site.CLUSTER, frozenset({("home", 1)})), 1)
    assert again.state.jobs["away"].phase is Phase.RUNNING
    again.handle(SiteSynced(Site.CLOUD, NOTHING, frozenset({"i-000001"})), 1)
    assert again.state.jobs["away"].attempt == 1
    assert again.state.jobs["away"].phase is Phase.OFFLOADING
    validate(again.state)


def test_a_run_that_reported_before_the_sync_is_confirmed() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.started("a")
    again = reborn(desk)
    again.handle(RunEnded("a", 1, RunEnd.EXITED, 0), 1)
    assert not again.handle(SiteSynced(Site.CLUSTER, NOTHING), 2)
    assert not again.state.jobs["a"].alive


def test_once_confirmed_a_run_is_not_lost_by_a_later_sync() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    desk.started("a")
    again = reborn(desk)
    again.handle(SiteSynced(Site.CLUSTER, frozenset({("a", 1)})), 1)
    assert not again.handle(SiteSynced(Site.CLUSTER, NOTHING), 2)
    assert again.state.jobs["a"].attempt == 1


def test_without_a_restart_a_sync_loses_nothing() -> None:
    desk = Desk(4)
    desk.submit(job("a"))
    assert not desk.tell(SiteSynced(Site.CLUSTER, NOTHING))


def test_machines_the_cloud_never_heard_of_do_not_exist() -> None:
    desk = Desk()
    desk.submit(job("a", cloud="only"), job("b", cloud="only"))
    again = reborn(desk)
    actions = again.handle(SiteSynced(Site.CLOUD, NOTHING, frozenset({"i-000002"})), 1)
    assert launches(actions) == ["small"]
    assert list(again.state.fleet.instances) == ["i-000002", "i-000003"]
    validate(again.state)


def test_machines_stand_in_the_order_of_their_launches_whichever_was_stored_last() -> None:
    desk = Desk()
    desk.submit(*(job(name, 4, cloud="only") for name in "abc"))
    known = snapshot(desk.scheduler)
    mixed = replace(known, instances=[known.instances[n] for n in (2, 0, 1)])
    restored = restore(desk.scheduler.state.settings, mixed)
    assert list(restored.state.fleet.instances) == ["i-000001", "i-000002", "i-000003"]


def test_a_reservation_survives() -> None:
    desk = Desk(1, waiting="no-wait", returns="if-it-pays", t_max_s=MINUTE)
    desk.submit(job("busy"), job("a", hours=1))
    desk.started("busy")
    desk.offload("a")
    desk.wait(MINUTE)
    desk.ended("busy")
    again = reborn(desk)
    assert again.state.capacity.free("n0").gpus == 0
    assert starts(again.handle(RunEnded("a", 1, RunEnd.STOPPED), 100)) == ["a"]


def test_jobs_that_only_lack_room_to_come_home_keep_their_turn() -> None:
    desk = Desk(1, waiting="no-wait", returns="if-it-pays", t_max_s=MINUTE)
    desk.submit(job("busy"), job("a", hours=9), job("b", hours=9))
    desk.started("busy")
    desk.offload("b")
    desk.now = 10
    desk.offload("a")
    desk.wait(2 * MINUTE)
    again = reborn(desk)
    assert stops(again.handle(desk.end_of("busy"), 200)) == ["b"]


def test_a_restart_alone_makes_nobody_think_again() -> None:
    """Past T_max it would pay to come home, later no more; it is asked again when there is room."""
    desk = Desk(1, waiting="no-wait", returns="if-it-pays", t_max_s=MINUTE)
    desk.submit(job("busy"), job("a", hours=0.05))
    desk.started("busy")
    desk.offload("a")
    desk.wait(2 * MINUTE)
    again = reborn(desk)
    assert not again.handle(SiteSynced(Site.CLUSTER, frozenset({("busy", 1)})), desk.now)
    assert not again.take_changes().decisions
    again.handle(RunEnded("busy", 1, RunEnd.EXITED, 0), desk.now)
    assert [d.kind for d in again.take_changes().decisions] == ["succeeded", "stays-away"]


def test_settings_may_change_with_a_restart() -> None:
    desk = Desk(1)
    desk.submit(job("busy"), job("a"), job("b"))
    again = restore(Settings(waiting="constant", queue_limit=1), snapshot(desk.scheduler))
    assert launches(again.handle((), 1)) == ["small"]


def test_a_wait_that_ran_out_while_nobody_watched_gets_a_look_at_the_cluster_first() -> None:
    desk = Desk(2)
    desk.submit(job("busy", 2), job("a", 2, max_wait_s=HOUR), job("b", 2, max_wait_s=HOUR))
    desk.started("busy")
    again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
    again.rest()
    assert again.next_wakeup() == float("inf")
    assert not again.handle(RunEnded("busy", 1, RunEnd.EXITED, 0), 3 * HOUR)
    actions = again.handle(SiteSynced(Site.CLUSTER, frozenset({("busy", 1)})), 3 * HOUR)
    assert starts(actions) == ["a"], "room came up meanwhile"
    assert launches(actions) == ["small"], "b has waited long enough"
    validate(again.state)


# --- while the cluster's API is away after a restart -------------------------------------------------------


def resting(*names: str) -> Scheduler:
    """After a restart; these jobs run on machines of their own, i-000001 and on, and `a` has tries left."""
    desk = Desk(1, offers=[offer("m", 4, ready_s=6 * MINUTE)])
    desk.submit(*(job(name, 4, cloud="only", retries=5) for name in names))
    for name in names:
        desk.offload(name)
    again = reborn(desk)
    again.rest()
    return again


def cloud_synced(again: Scheduler) -> SiteSynced:
    return SiteSynced(
        Site.CLOUD, frozenset(again.state.unconfirmed_runs), frozenset(again.state.fleet.instances)
    )


def test_a_failed_command_is_tried_again_on_its_machine_while_the_cluster_is_away() -> None:
    again = resting("a")
    again.handle(cloud_synced(again), 600.0)
    assert again.handle(RunEnded("a", 1, RunEnd.EXITED, 1), 700.0) == []
    assert again.next_wakeup() == 710.0
    assert starts(again.handle(Tick(), 710.0)) == ["a"]
    assert again.next_wakeup() == float("inf")
    validate(again.state)


def test_a_machine_of_no_use_is_ended_while_the_cluster_is_away() -> None:
    again = resting("a", "b")
    again.handle(cloud_synced(again), 600.0)
    again.handle([InstanceUnreachable("i-000001"), InstanceUnfit("i-000002", "its disk is full")], 700.0)
    assert again.next_wakeup() == 700.0 + again.state.settings.unreachable_s
    assert returns(again.handle(Tick(), again.next_wakeup())) == ["i-000001"], "b has begun: it goes on"
    validate(again.state)


def test_no_machine_is_ended_after_a_restart_before_the_cloud_has_said_whether_it_answers() -> None:
    again = resting("a")
    again.handle(InstanceUnreachable("i-000001"), 10.0)
    late = HOUR
    assert again.next_wakeup() == float("inf")
    assert again.handle(Tick(), late) == []
    assert returns(again.handle(cloud_synced(again), late)) == ["i-000001"], (
        "it has had its time, and does not"
    )


def test_a_refused_start_waits_for_the_cluster_after_a_restart() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.ended("a", RunEnd.NOT_STARTED)
    again = reborn(desk)
    again.rest()
    again.handle(cloud_synced(again), 700.0)
    assert (again.state.jobs["a"].phase, again.next_wakeup()) == (Phase.BLOCKED, float("inf"))
    assert starts(again.handle(SiteSynced(Site.CLUSTER, NOTHING), 700.0)) == ["a"]


def test_a_job_that_leaves_while_the_cluster_is_away_leaves_at_the_end_of_its_pack_window() -> None:
    desk = Desk(1, pack_window_s=MINUTE)
    desk.submit(job("a", cloud="only"))
    again = reborn(desk)
    again.rest()
    assert again.next_wakeup() == MINUTE
    assert launches(again.handle(Tick(), MINUTE)) == ["small"]
