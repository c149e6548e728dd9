"""A step of the scheduler is kept whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from starburst.core.model.events import (
    CancelRequested,
    InstanceGone,
    InstanceReady,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Facts, facts
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import CloudChoice, Member, Phase
from starburst.store.arrays import TakenJobs
from starburst.store.errors import StoreError
from starburst.store.listings import queries
from starburst.store.schema import metadata
from starburst.store.store import Step, Store
from tests.store.samples import NODE, OFFER, started, step, submission


def contents(store: Store) -> dict[str, list[tuple[object, ...]]]:
    with store.read() as conn:
        return {
            name: [tuple(row) for row in conn.execute(table.select())]
            for name, table in metadata.tables.items()
        }


def test_an_empty_store_gives_an_empty_snapshot(store: Store) -> None:
    snapshot = store.snapshot()
    assert snapshot.facts == Facts()
    assert [*snapshot.jobs, *snapshot.instances, *snapshot.nodes, *snapshot.offers] == []


def test_a_snapshot_has_what_the_step_left(store: Store) -> None:
    scheduler = started()
    store.commit(step(scheduler, now=5.0, submissions=[submission("a"), submission("b", gpus=2)]))
    snapshot = store.snapshot()
    assert snapshot.facts == facts(scheduler.state)
    assert {record.id: record for record in snapshot.jobs} == scheduler.state.jobs
    assert {record.id: record for record in snapshot.instances} == scheduler.state.fleet.instances
    assert (snapshot.nodes, snapshot.offers) == ((NODE,), (OFFER,))


def test_nodes_and_offers_are_kept_when_they_changed_and_only_then(store: Store) -> None:
    scheduler = started()
    store.commit(step(scheduler))
    store.commit(Step(1.0, Changes(), facts(scheduler.state)))
    assert (store.snapshot().nodes, store.snapshot().offers) == ((NODE,), (OFFER,))


def test_a_finished_job_stays_in_the_snapshot_until_its_bill_is_in(store: Store) -> None:
    scheduler = started()
    store.commit(step(scheduler, submissions=[submission("a", cloud=CloudChoice.ONLY)]))
    (machine,) = scheduler.state.fleet.instances
    store.commit(step(scheduler, [InstanceReady(machine, 1.0)], 1.0))
    store.commit(step(scheduler, [RunStarted("a", 1)], 1.0))
    store.commit(step(scheduler, [RunEnded("a", 1, RunEnd.EXITED, 0)], 2.0))
    assert [(record.phase, record.open_bills) for record in store.snapshot().jobs] == [(Phase.SUCCEEDED, 1)]
    assert [item.phase for item in store.snapshot().instances] == [InstancePhase.TERMINATING]
    store.commit(step(scheduler, [InstanceGone(machine, 1.0, 3601.0)], 3601.0))
    assert store.snapshot().jobs == []
    assert store.snapshot().instances == []
    row = queries.job(store, "a")
    assert (row.phase, row.open_bills, row.cloud_micro_usd) == ("succeeded", 0, 3_600_000)


def test_both_logs_keep_everything_in_order(store: Store) -> None:
    scheduler = started()
    store.commit(step(scheduler, submissions=[submission("a")]))
    store.commit(step(scheduler, [RunStarted("a", 1)], 1.0))
    assert [(e.kind, e.subject, e.at) for e in queries.events(store)] == [
        ("JobSubmitted", "a", 0.0),
        ("RunStarted", "a", 1.0),
    ]
    assert [(d.seq, d.kind, d.subject) for d in queries.decisions(store)] == [
        (1, "waits", "a"),
        (2, "placed", "a"),
        (3, "started", "a"),
    ]


def test_actions_are_pending_until_they_are_done(store: Store) -> None:
    scheduler = started()
    new = step(scheduler, submissions=[submission("a"), submission("b"), submission("c", gpus=8)])
    store.commit(new)
    assert store.pending_actions() == new.changes.actions
    assert [action.key for action in new.changes.actions] == ["start/a/1", "start/b/1"]
    store.actions_done(["start/a/1"], 1.0)
    assert [action.key for action in store.pending_actions()] == ["start/b/1"]


def test_an_action_asked_for_again_is_pending_again(store: Store) -> None:
    scheduler = started()
    store.commit(step(scheduler, submissions=[submission("a")]))
    scheduler.handle(RunStarted("a", 1), 1.0)
    stop = step(scheduler, [CancelRequested("a")], 2.0)
    store.commit(stop)
    store.actions_done(["stop/a/1"], 3.0)
    again = Changes()
    again.actions = stop.changes.actions * 2
    store.commit(Step(4.0, again, facts(scheduler.state)))
    assert [action.key for action in store.pending_actions()] == ["start/a/1", "stop/a/1"]


def _with_an_instance_too(scheduler: Scheduler) -> Step:
    return step(
        scheduler,
        [RunStarted("a", 1)],
        1.0,
        submissions=[submission("b", cloud=CloudChoice.ONLY), submission("x-0", array=Member("x", 0, 4))],
        request_seqs=[1],
        arrays=[TakenJobs("x", 1, 1)],
    )


#: No step writes these.
NOT_OF_STEPS = {"tokens", "cron_jobs", "leader", "writers", "history", "past_instances"}


@pytest.mark.parametrize("table", sorted(metadata.tables.keys() - NOT_OF_STEPS))
def test_a_commit_that_fails_anywhere_changes_nothing(path: Path, table: str) -> None:
    class DiskError(Exception):
        pass

    store = Store.open(path)
    scheduler = started()
    store.commit(step(scheduler, submissions=[submission("a")]))
    store.submit([submission("b"), submission("x", array=Member("x", 0, 4))], 0.5)
    before = contents(store)

    def failing(execute: Callable[..., None]) -> Callable[..., None]:
        def fails(cursor: object, statement: str, *more: object) -> None:
            execute(cursor, statement, *more)
            verb, _, rest = statement.partition(" ")
            if verb in ("INSERT", "UPDATE", "DELETE") and table in rest.split("(")[0].split():
                raise DiskError

        return fails

    with pytest.MonkeyPatch.context() as patch:
        for name in ("do_execute", "do_executemany"):
            patch.setattr(store._engine.dialect, name, failing(getattr(store._engine.dialect, name)))
        with pytest.raises(DiskError):
            store.commit(_with_an_instance_too(scheduler))
    assert contents(store) == before
    store.close()


def test_a_changed_job_that_was_never_stored_is_refused(store: Store) -> None:
    scheduler = started()
    lost = step(scheduler, submissions=[submission("a")])
    with pytest.raises(StoreError, match="of a at least one was never stored"):
        store.commit(Step(lost.now, lost.changes, lost.facts))
    assert queries.decisions(store) == []


def test_small_documents_are_kept(store: Store, path: Path) -> None:
    assert store.fact("clock") is None
    store.set_fact("clock", {"origin": 1.5, "speed": 60.0})
    store.set_fact("clock", {"origin": 1.5, "speed": 1.0})
    with Store.open(path) as other:
        assert other.fact("clock") == {"origin": 1.5, "speed": 1.0}


def test_a_restart_goes_on_where_the_last_step_ended(store: Store, path: Path) -> None:
    scheduler = started()
    store.commit(step(scheduler, submissions=[submission("a", gpus=2), submission("b", gpus=2)]))
    store.commit(step(scheduler, [RunStarted("a", 1)], 1.0))
    with Store.open(path) as again:
        heir = restore(scheduler.state.settings, again.snapshot())
        end = step(heir, [RunEnded("a", 1, RunEnd.EXITED, 0)], 2.0)
        assert [action.key for action in end.changes.actions] == ["start/b/1"]
        again.commit(end)
    assert [d.seq for d in queries.decisions(store)] == list(range(1, heir.state.decided + 1))
