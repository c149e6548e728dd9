"""Copies all of a store into another one, between any two databases, in one transaction of each."""

from __future__ import annotations

from itertools import islice

from sqlalchemy import Connection, Table, delete, func, insert, select

from starburst.store.engine import next_numbers, number_from
from starburst.store.errors import StoreError
from starburst.store.schema import facts, leader, metadata, writers
from starburst.store.store import Store

#: Rows per statement.
BATCH = 1000

#: The tables of a store; who leads and the names of writes belong to a database, not to its contents.
TABLES = [table for table in metadata.sorted_tables if table not in (leader, writers)]


def copy_all(source: Connection, target: Connection) -> dict[str, int]:
    """Replace the contents of a store by those of another one; the number of rows by table.

    Nothing has changed if this fails, or the target's transaction is rolled back.

    Raises:
        StoreError: the copy has other numbers of rows than the source.
    """
    copied = {table.name: _copy(table, source, target) for table in TABLES}
    for name, last in next_numbers(source).items():
        number_from(target, name, last)
    found = counts(target)
    if found != copied:
        raise StoreError(f"the copy has {found} rows, and the store {copied}; nothing was changed: try again")
    return copied


def counts(conn: Connection) -> dict[str, int]:
    """The number of rows by table."""
    return {table.name: conn.scalar(select(func.count()).select_from(table)) or 0 for table in TABLES}


def is_fresh(conn: Connection) -> bool:
    """Whether nothing was ever stored: a new store has its id and nothing else."""
    filled = {name: count for name, count in counts(conn).items() if count}
    keys = set(conn.scalars(select(facts.c.key)))
    return set(filled) <= {facts.name} and keys <= {"controller", "tried"}


def copy_store(source: Store, target: Store) -> dict[str, int]:
    """`copy_all` from one consistent state of a store that may be in use."""
    with source.read() as reading, target.write() as writing:
        return copy_all(reading, writing)


def _copy(table: Table, source: Connection, target: Connection) -> int:
    target.execute(delete(table))
    rows = iter(source.execute(select(table).execution_options(yield_per=BATCH)).mappings())
    copied = 0
    while batch := [dict(row) for row in islice(rows, BATCH)]:
        target.execute(insert(table), batch)
        copied += len(batch)
    return copied
