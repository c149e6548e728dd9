"""A client of PostgreSQL that is cut off within a batch of statements holds up nobody for long."""

from __future__ import annotations

import time
from contextlib import closing

import psycopg
import pytest

from starburst.store import leader
from starburst.store.databases import postgres
from starburst.store.errors import BusyError
from starburst.store.leader import LeaderClaim, leader_record
from starburst.store.store import Store
from tests.postgres import database_of, server

#: More than a writer that is silent gets.
TRIES = 20


@pytest.mark.postgres
def test_a_writer_that_was_cut_off_within_a_batch_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between statements the server ends it by itself; within a batch it would wait for half a minute."""
    monkeypatch.setattr(postgres, "SILENCE_S", 1)
    with server() as running:
        url, tries, epoch = running.create(), 0, None
        with Store.open(url, 500) as store, closing(psycopg.connect(running.url(database_of(url)))) as cut:
            leader.take(store, None, LeaderClaim("ada"))
            seen = leader_record(store)
            cut.pgconn.enter_pipeline_mode()
            for statement in ("BEGIN", f"SELECT pg_advisory_xact_lock({postgres.WRITE_LOCK})"):
                cut.pgconn.send_query_params(statement.encode(), None)
            cut.pgconn.send_flush_request()
            cut.pgconn.flush()
            while not running.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"):
                time.sleep(0.01)
            while epoch is None and tries < TRIES:
                try:
                    epoch = leader.take(store, seen, LeaderClaim("bea"))
                except BusyError:
                    tries += 1
                    leader.make_way(store)
    assert epoch == 2
    assert tries, "it did hold the others up"
