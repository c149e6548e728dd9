"""Runs the migrations in the transaction it is given: a schema changes as a whole or not at all."""

from __future__ import annotations

from alembic import context

from starburst.store.schema import metadata

conn = context.config.attributes["connection"]
if conn.dialect.name == "postgresql":
    from starburst.store.databases.postgres import collate, patient

    patient(conn)
context.configure(
    connection=conn,
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
if conn.dialect.name == "postgresql":
    collate(conn)
