"""Moves a store out of its SQLite file into another database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, select, text

from starburst.store.databases.sqlite_failures import MOVED
from starburst.store.errors import StoreError
from starburst.store.schema import arrays, cron_jobs, facts, requests, tokens
from starburst.store.store import Store
from starburst.store.upkeep.copying import copy_all, is_fresh

#: Tables into which commands write while no scheduler runs.
WRITTEN = (requests, arrays, tokens, cron_jobs)


def move(file: Path, where: str) -> dict[str, int]:
    """Copy the store in a file to a database; the number of rows by table. No scheduler may use the file.

    Commands wait meanwhile; after it the file refuses them, so that none stores a job where no one looks. The
    move may be repeated, until the new store is in use: it begins anew.

    Raises:
        StoreError: the database holds another store.
    """
    with Store.open(file) as source, Store.open(where) as target:
        with source.write() as leaving:
            with target.write() as arriving:
                if not is_fresh(arriving) and _controller(arriving) != _controller(leaving):
                    raise StoreError(
                        "the database holds another store already; name an empty one, made with createdb"
                    )
                moved = copy_all(leaving, arriving)
            for table in WRITTEN:
                leaving.execute(
                    text(
                        f"CREATE TRIGGER IF NOT EXISTS moved_{table.name} BEFORE INSERT ON {table.name} "
                        f"BEGIN SELECT RAISE(ABORT, '{MOVED}'); END"
                    )
                )
        return moved


def take_back(store: Store) -> None:
    """Have a copy of a file whose store was moved take jobs again; it is to be a home's store."""
    with store.write() as conn:
        for table in WRITTEN:
            conn.execute(text(f"DROP TRIGGER IF EXISTS moved_{table.name}"))


def _controller(conn: Connection) -> str | None:
    return conn.scalar(select(facts.c.body).where(facts.c.key == "controller"))
