"""A store that is put back to a backup: what it owes the sites, and what becomes of its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.app.wiring.resuming import resume
from starburst.core.model.actions import StartRun
from starburst.core.model.events import NodesChanged, RunStarted, SiteSynced
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Phase, Site
from starburst.store.errors import UnusableError
from starburst.store.listings import pages
from starburst.store.store import Store
from starburst.store.upkeep.backup import back_up, stage
from starburst.store.upkeep.moving import move
from starburst.store.upkeep.restored import owed_actions, was_put_back
from tests.store.samples import NODE, started, step, submission

pytestmark = pytest.mark.sqlite  # the copy is a file, and is opened where it lies


def owing_two_starts(path: Path) -> None:
    with Store.open(path) as store:
        store.commit(step(started(), submissions=[submission("a"), submission("b")]))
        assert [action.key for action in store.pending_actions()] == ["start/a/1", "start/b/1"]


def put_back(path: Path) -> Scheduler:
    with Store.open(stage(path, path)) as store:
        assert not store.pending_actions()
        scheduler = resume(Settings(), store)
    assert {record.phase for record in scheduler.state.jobs.values()} == {Phase.STARTING}
    return scheduler


def listed(*on_cluster: tuple[str, int]) -> list[SiteSynced]:
    return [SiteSynced(Site.CLUSTER, frozenset(on_cluster)), SiteSynced(Site.CLOUD, frozenset())]


def test_no_start_is_made_before_the_sites_are_listed_and_then_each_job_has_one(path: Path) -> None:
    owing_two_starts(path)
    scheduler = put_back(path)
    made = scheduler.handle([NodesChanged((NODE,)), *listed()], 5.0)
    assert {(start.job_id, start.attempt) for start in made if isinstance(start, StartRun)} == {
        ("a", 2),
        ("b", 2),
    }


def test_a_run_that_began_after_the_backup_goes_on(path: Path) -> None:
    owing_two_starts(path)
    scheduler = put_back(path)
    made = scheduler.handle([NodesChanged((NODE,)), RunStarted("a", 1), *listed(("a", 1))], 5.0)
    assert [(start.job_id, start.attempt) for start in made if isinstance(start, StartRun)] == [("b", 2)]
    assert scheduler.state.jobs["a"].phase is Phase.RUNNING


def test_no_later_restart_makes_a_start_before_the_sites_are_listed_either(path: Path) -> None:
    """It waits for the end of a later run, which only a listing shows; the scheduler is killed meanwhile."""
    owing_two_starts(path)
    with Store.open(stage(path, path)) as store:
        assert was_put_back(store)
        scheduler = resume(Settings(), store)
        store.commit(step(scheduler, [NodesChanged((NODE,)), *listed()], 5.0))
        assert [action.key for action in store.pending_actions()] == ["start/a/2", "start/b/2"]
        assert owed_actions(store) == store.pending_actions() == []


def test_a_store_that_was_not_put_back_owes_its_starts_after_a_restart(path: Path) -> None:
    owing_two_starts(path)
    with Store.open(path) as store:
        assert not was_put_back(store)
        assert [action.key for action in owed_actions(store)] == ["start/a/1", "start/b/1"]


def test_who_has_followed_the_log_past_the_backup_misses_no_decision_after_it(path: Path) -> None:
    backup = path.with_name("backup.db")
    with Store.open(path) as store:
        scheduler = started()
        store.commit(step(scheduler, submissions=[submission("a")]))
        back_up(path, backup)
        store.commit(step(scheduler, now=1.0, submissions=[submission("b"), submission("c")]))
        followed = pages.head(store)
    with Store.open(stage(backup, path)) as store:
        store.commit(step(resume(Settings(), store), now=2.0, submissions=[submission("d")]))
        rows, _ = pages.decisions(store, None, after_seq=followed, limit=9)
        assert {row.subject for row in rows} == {"d"}


def test_a_file_whose_store_was_moved_takes_jobs_again_once_it_is_put_back(path: Path) -> None:
    with Store.open(path) as store:
        store.submit([submission("a")], 1.0)
    move(path, str(path.with_name("server.db")))
    with Store.open(path) as left, pytest.raises(UnusableError, match="was moved to another database"):
        left.submit([submission("b")], 2.0)
    with Store.open(stage(path, path)) as store:
        store.submit([submission("b")], 3.0)
        assert [request.job_id for request in store.requests(9)] == ["a", "b"]
