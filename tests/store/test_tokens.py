"""Tokens in the store."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import select

from starburst.domain.job import ANYBODY
from starburst.store import tokens
from starburst.store.errors import StoreError
from starburst.store.schema import tokens as table
from starburst.store.store import Store
from starburst.store.tokens import Role, Token


def test_only_the_hash_is_kept(store: Store) -> None:
    secret = tokens.create(store, Token("a", Role.ADMIN, ("x", "y"), 1.0, 2.0))
    with store.read() as conn:
        (row,) = conn.execute(select(table)).all()
    assert row.hash == sha256(secret.encode()).hexdigest()
    assert secret not in str(row)
    assert tokens.find(store, secret) == Token("a", Role.ADMIN, ("x", "y"), 1.0, 2.0)
    assert tokens.find(store, secret[:-1]) is None
    assert tokens.find(store, "\ud800") is None


def test_no_two_secrets_are_alike_and_no_two_names(store: Store) -> None:
    made = {tokens.create(store, Token(f"t{i}", Role.VIEWER, None, 0.0)) for i in range(20)}
    assert len(made) == 20
    with pytest.raises(StoreError, match="there is a token 't3' already"):
        tokens.create(store, Token("t3", Role.ADMIN, None, 0.0))


def test_use_and_revocation(store: Store) -> None:
    assert not tokens.any_exist(store)
    secret = tokens.create(store, Token("a", Role.VIEWER, None, 1.0))
    tokens.used(store, "a", 5.0)
    assert [token.last_used_at for token in tokens.listed(store)] == [5.0]
    tokens.revoke(store, "a")
    assert tokens.find(store, secret) is None
    assert not tokens.any_exist(store)


def test_roles_cover_those_before_them() -> None:
    assert [[role.covers(other) for other in Role] for role in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_a_token_holds_until_it_expires() -> None:
    assert [Token("a", Role.VIEWER, None, 0.0, 9.0).holds(now) for now in (8.9, 9.0)] == [True, False]
    assert Token("a", Role.VIEWER, None, 0.0).holds(1e18)


@pytest.mark.sqlite
def test_a_store_whose_tokens_know_nothing_of_kubernetes_still_opens(path: Path) -> None:
    with Store.open(path) as store:
        secret = tokens.create(store, Token("old", Role.SUBMITTER, None, 0.0))
    with sqlite3.connect(path) as conn:
        conn.execute("ALTER TABLE tokens DROP COLUMN kubernetes")
        conn.execute("DROP TABLE cron_jobs")
        for later in ("arrays", "leader", "writers", "history", "past_instances"):
            conn.execute(f"DROP TABLE {later}")
        for later in (
            "phase_user",
            "phase_queue",
            "phase_deadline",
            "seq",
            "queue_seq",
            "line",
            "obstructed",
        ):
            conn.execute(f"DROP INDEX ix_jobs_{later}")
        conn.execute("DROP INDEX ix_instances_ended")
        for later in ("shape", "order_key", "obstructed"):
            conn.execute(f"ALTER TABLE jobs DROP COLUMN {later}")
        conn.execute("UPDATE alembic_version SET version_num = '0002'")
    conn.close()
    with Store.open(path) as store:
        token = tokens.find(store, secret)
    assert token is not None
    assert token.submitter == ANYBODY
