"""Runs the migrations in the transaction it is given: a schema changes as a whole or not at all."""

from __future__ import annotations

from alembic import context

from starburst.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
