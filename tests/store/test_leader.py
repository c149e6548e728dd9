"""The row of the leader: one of several takes it, commits of an older epoch are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from starburst.core.model.events import Tick
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.store import leader
from starburst.store.errors import FencedError
from starburst.store.leader import LeaderClaim, epoch_fence, leader_record
from starburst.store.schema import leader as table
from starburst.store.store import Store
from tests.store.samples import step

ADA, BEA = LeaderClaim("ada", "http://ada:8585", "home-a"), LeaderClaim("bea")


def test_a_new_store_has_no_leader_and_the_first_to_take_it_leads(store: Store) -> None:
    assert leader_record(store) is None
    assert leader.take(store, None, ADA) == 1
    record = leader_record(store)
    assert record is not None
    assert (record.holder, record.address, record.home, record.renews) == (
        "ada",
        "http://ada:8585",
        "home-a",
        True,
    )
    assert record.age_s < 5


def test_of_two_that_saw_the_same_row_one_leads(store: Store) -> None:
    assert leader.take(store, None, ADA) == 1
    assert leader.take(store, None, BEA) is None
    seen = leader_record(store)
    leader.renew(store, 1, "home-a")
    assert leader.take(store, seen, BEA) is None, "it was renewed since"
    seen = leader_record(store)
    assert leader.take(store, seen, BEA) == 2
    assert leader.take(store, seen, replace(BEA, holder="cyd")) is None


def test_who_has_lost_the_lead_can_neither_renew_nor_give_it_back(store: Store) -> None:
    leader.take(store, None, ADA)
    leader.take(store, leader_record(store), BEA)
    with pytest.raises(FencedError, match=r"bea leads now \(epoch 2\)"):
        leader.renew(store, 1, "")
    leader.release(store, 1)
    leader.ask_drain(store, 1)
    record = leader_record(store)
    assert record is not None
    assert (record.holder, record.drain) == ("bea", 0)


def test_a_lead_that_is_given_back_is_nobodys_and_the_epoch_stays(store: Store) -> None:
    leader.take(store, None, ADA)
    leader.ask_drain(store, 1)
    assert leader.renew(store, 1, "").drain == 1
    leader.release(store, 1)
    record = leader_record(store)
    assert record is not None
    assert (record.holder, record.address, record.epoch) == ("", "", 1)
    assert leader.take(store, record, BEA) == 2
    record = leader_record(store)
    assert record is not None
    assert record.drain == 0, "the request was for the epoch before"


def test_no_commit_of_an_older_epoch_is_stored(store: Store, path: Path) -> None:
    leader.take(store, None, ADA)
    store.fence = epoch_fence(1)
    scheduler = Scheduler(Settings())
    store.commit(step(scheduler, [Tick()], 1.0))
    with Store.open(path) as other:
        leader.take(other, leader_record(other), BEA)
        before = other.snapshot().facts
        for write in (
            lambda: store.commit(step(scheduler, [Tick()], 2.0)),
            lambda: store.actions_done(["start/a/1"], 2.0),
            lambda: store.set_fact("config", {}),
        ):
            with pytest.raises(FencedError, match="bea leads now"):
                write()
        assert other.snapshot().facts == before
        assert other.fact("config") is None


def test_a_row_that_was_removed_is_no_leave_to_write(store: Store) -> None:
    leader.take(store, None, ADA)
    store.fence = epoch_fence(1)
    store.fence, fence = lambda _conn: None, store.fence
    with store.write() as conn:
        conn.execute(table.delete())
    store.fence = fence
    with pytest.raises(FencedError, match="was replaced"):
        store.set_fact("x", 1)


def test_the_age_is_the_stores_own(store: Store) -> None:
    leader.take(store, None, ADA)
    with store.write() as conn:
        conn.execute(update(table).values(changed_at=table.c.changed_at - 60))
    record = leader_record(store)
    assert record is not None
    assert 60 <= record.age_s < 65
